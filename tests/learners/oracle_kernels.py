"""Kernels as printed (Xia, Hoi, Jin, Zhao, TPAMI 36 (2014), section 6.3), on float64 vectors."""

from __future__ import annotations

import numpy as np

from .oracle_step import Doubles, Kernel


def linear(x: Doubles, y: Doubles) -> float:
    """x^T y."""
    return float(np.sum(x * y))


def cosine(x: Doubles, y: Doubles) -> float:
    """cos / 2 + 1 / 2; a vector of length 0 has the cosine 0 with all."""
    norms = np.sqrt(np.sum(x * x)) * np.sqrt(np.sum(y * y))
    return 0.5 + (0.5 * float(np.sum(x * y) / norms) if norms > 0 else 0.0)


def intersection(x: Doubles, y: Doubles) -> float:
    """sum_j min(x_j, y_j)."""
    return float(np.sum(np.minimum(x, y)))


def rbf(width: float) -> Kernel:
    """exp(-||x - y|| / width): the distance itself, not its square; width = gamma sigma^2."""
    return lambda x, y: float(np.exp(-np.sqrt(np.sum((x - y) ** 2)) / width))


def polynomial(degree: int, scale: float = 1.0, offset: float = 1.0) -> Kernel:
    """(scale x^T y + offset)^degree."""
    return lambda x, y: float((scale * np.sum(x * y) + offset) ** degree)


def centred(kernel: Kernel, unrelated: float) -> Kernel:
    """(k - unrelated) / (1 - unrelated)."""
    return lambda x, y: (kernel(x, y) - unrelated) / (1 - unrelated)


def of_map(phi: object) -> Kernel:
    """phi(x)^T phi(y) of an explicit map."""
    assert callable(phi)
    return lambda x, y: float(np.sum(phi(x) * phi(y)))


def on_columns(kernel: Kernel, start: int, stop: int) -> Kernel:
    """The kernel on one view: columns start..stop-1."""
    return lambda x, y: kernel(x[start:stop], y[start:stop])


def on_view(kernel: Kernel, start: int, stop: int) -> Kernel:
    """The kernel on one view of several: 0 where either object lacks it (is all zero there)."""

    def value(x: Doubles, y: Doubles) -> float:
        own = x[start:stop], y[start:stop]
        return kernel(*own) if np.any(own[0]) and np.any(own[1]) else 0.0

    return value


def mean(kernels: list[Kernel]) -> Kernel:
    """The mean of kernels, on which OKS-Avg learns."""
    return lambda x, y: sum(kernel(x, y) for kernel in kernels) / len(kernels)
