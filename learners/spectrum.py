"""The spectrum of sym(W), for people: its ends, how much of it is negative, and how many directions it uses.

Up to `FULL_UP_TO` dimensions from all eigenvalues; beyond that from the two ends that Lanczos iteration
finds, and what needs the whole spectrum is None.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from learners import lanczos
from learners.block import Float32s
from learners.errors import ConfigError
from learners.kernels.eigen import symmetric_eigen
from learners.kernels.fold import symmetric_product
from learners.psd import tiles

FULL_UP_TO = 2048
"""Largest dimension that is decomposed as a whole here: about a second."""

EPS = float(np.finfo(np.float32).eps)


@dataclass(frozen=True, slots=True)
class Spectrum:
    """Eigenvalues of S = sym(W).

    largest: descending; smallest: ascending, the most negative first; at most as many as asked for.
    frobenius: ||S||_F. stable_rank: ||S||_F^2 / max |lambda|^2, a lower bound of the rank for which the ends
    are enough (0 for S = 0). full: whether all were computed. Then negatives: how many are below 0, up to
    rounding; negative_share: sum |negative| / sum |all|; effective_rank: exp of the entropy of
    |lambda| / sum |lambda| (Roy and Vetterli, 2007); else these are None.
    """

    dim: int
    largest: tuple[float, ...]
    smallest: tuple[float, ...]
    frobenius: float
    stable_rank: float
    full: bool
    negatives: int | None = None
    negative_share: float | None = None
    effective_rank: float | None = None


def spectrum(W: Float32s, ends: int = 8, full_up_to: int = FULL_UP_TO) -> Spectrum:
    """Spectrum of sym(W) with `ends` eigenvalues of each end. W float32 [d, d], not changed.

    Lanczos values are right to rounding where they stand apart, and bounds from inside where they are
    crowded. Raises ConfigError where W is not square or not finite.
    """
    dim = checked(W)
    norm = symmetric_norm(W)
    if dim > full_up_to:
        values = lanczos.ends(partial(symmetric_product, W), dim, ends, EPS * norm)[0]
        return Spectrum(dim, *_ends(values, ends), norm, _stable(norm, values), False)
    values = eigen(symmetric(W))[0].astype(np.float64)
    sizes = np.abs(values)
    total, below = float(sizes.sum()), values < -EPS * norm
    shares = sizes[sizes > 0] / max(total, 1e-300)
    return Spectrum(
        dim,
        *_ends(values, ends),
        norm,
        _stable(norm, values),
        True,
        negatives=int(below.sum()),
        negative_share=float(sizes[below].sum()) / max(total, 1e-300),
        effective_rank=float(np.exp(-np.sum(shares * np.log(shares)))) if total else 0.0,
    )


def checked(W: Float32s) -> int:
    """The dimension of a square, finite W; raises ConfigError for another."""
    if W.ndim != 2 or W.shape[0] != W.shape[1] or W.dtype != np.float32:
        raise ConfigError(f"expected a square float32 matrix, not {W.dtype} {W.shape}")
    if not all(np.isfinite(row).all() for row in W):
        raise ConfigError("the matrix holds numbers that are not finite")
    return int(W.shape[0])


def symmetric(W: Float32s) -> Float32s:
    """sym(W) as a new float32 matrix."""
    out = W + W.T
    out *= np.float32(0.5)
    return out


def eigen(S: Float32s) -> tuple[Float32s, Float32s]:
    """Eigenvalues ascending and eigenvectors as columns of a symmetric matrix, which is overwritten."""
    with threadpool_limits(limits=1, user_api="blas"):
        return symmetric_eigen(S)


def symmetric_norm(W: Float32s) -> float:
    """||sym(W)||_F, without a second matrix."""
    return float(np.sqrt(_symmetric_squares(W)))


def symmetry_index(W: Float32s) -> float:
    """rho(W) = ||sym(W)||_F^2 / ||W||_F^2 in [0, 1], 1 for a symmetric W and for 0 (Chechik et al., JMLR 11
    (2010), section 6.1). Exactly 1 where W is symmetric. Reads W three times: under a second at 4,096
    dimensions."""
    whole = 0.0
    for rows, columns in tiles(W.shape[0]):
        whole += float(np.sum(np.square(W[rows, columns].astype(np.float64))))
    return min(1.0, _symmetric_squares(W) / whole) if whole else 1.0


def _symmetric_squares(W: Float32s) -> float:
    total = 0.0
    for rows, columns in tiles(W.shape[0]):
        total += float(np.sum(np.square((W[rows, columns].astype(np.float64) + W[columns, rows].T) / 2)))
    return total


def _ends(values: NDArray[np.float64], ends: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The largest, descending, and the smallest, ascending."""
    return tuple(map(float, values[::-1][:ends])), tuple(map(float, values[:ends]))


def _stable(norm: float, values: NDArray[np.float64]) -> float:
    top = float(np.abs(values).max(initial=0))
    return (norm / top) ** 2 if top else 0.0
