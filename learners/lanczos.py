"""Lanczos iteration: the ends of the spectrum of a symmetric matrix that is only ever multiplied with.

With full reorthogonalisation, twice per step (once is not enough in float32: the second pass removes what
rounding left). Deterministic: fixed start vector; run it with one BLAS thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal
from threadpoolctl import threadpool_limits

from learners.block import Float32s

SEED = 20100
STEPS_PER_PAIR = 3
STEPS = 20
"""Steps of the iteration: 170 for 50 pairs, each one product."""

Product: TypeAlias = Callable[[Float32s, Float32s], None]
"""(x, out): out = S x, both float32 [d], out overwritten."""

Krylov: TypeAlias = tuple[Float32s, NDArray[np.float64], NDArray[np.float64]]


def steps_for(pairs: int, dim: int) -> int:
    """Iterations for so many pairs; exact up to that many dimensions."""
    return min(dim, STEPS_PER_PAIR * pairs + STEPS)


def krylov(product: Product, dim: int, steps: int, rounding: float) -> Krylov:
    """Orthonormal Krylov basis [m, d] of S and its tridiagonal form: diagonal [m], off-diagonal [m - 1].

    m = steps, or fewer where what is left is below `rounding`.
    """
    basis, image = np.empty((steps, dim), np.float32), np.empty(dim, np.float32)
    diagonal, off = np.zeros(steps), np.zeros(steps)
    vector = np.random.default_rng(SEED).standard_normal((dim,))
    for m in range(steps):
        basis[m] = vector / np.linalg.norm(vector)
        product(basis[m], image)
        diagonal[m] = basis[m].astype(np.float64) @ image
        rest = image.copy()
        for _ in range(2):
            rest -= basis[: m + 1].T @ (basis[: m + 1] @ rest)
        vector, off[m] = rest.astype(np.float64), np.linalg.norm(rest)
        if off[m] <= rounding:
            return basis[: m + 1], diagonal[: m + 1], off[:m]
    return basis, diagonal, off[:-1]


def ends(
    product: Product, dim: int, pairs: int, rounding: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """At most `pairs` eigenpairs of each end: values ascending [m], vectors as columns [d, m].

    Values that stand apart are found to rounding; crowded ones are bounds from inside.
    """
    with threadpool_limits(limits=1, user_api="blas"):
        basis, diagonal, off = krylov(product, dim, steps_for(2 * pairs, dim), rounding)
        values, coordinates = eigh_tridiagonal(diagonal, off)
        last = len(values)
        chosen = np.unique([*range(min(pairs, last)), *range(max(0, last - pairs), last)])
        return values[chosen], basis.T.astype(np.float64) @ coordinates[:, chosen]
