"""The positive semi-definite part of a learned W, and what tells how far W is from it.

PSD projection in the Frobenius norm: sym(W) without its negative eigenpairs. Up to `MAX_FULL_DIM` dimensions
all of them are found by a full eigendecomposition; beyond that the most negative ones by Lanczos iteration.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, eigh_tridiagonal
from threadpoolctl import threadpool_limits

from .block import Float32s
from .errors import ConfigError
from .kernels.fold import symmetric_product

MAX_FULL_DIM = 4096
"""Largest dimension for a full eigendecomposition: about 10 s and 0.5 GB there, minutes and gigabytes at
10,000."""

LANCZOS_SEED = 20100
LANCZOS_STEPS_PER_PAIR = 3
LANCZOS_STEPS = 20
"""Steps of the iteration: 170 for 50 pairs, each one reading of W."""

TILE = 512


def project_psd(W: Float32s) -> Float32s:
    """The symmetric PSD matrix nearest to W, float32, symmetric bit for bit.

    PSD up to float32 rounding: the smallest eigenvalue is above -1e-5 times the largest. W is not changed.
    Raises ConfigError above MAX_FULL_DIM dimensions.
    """
    values, vectors = full_negative_pairs(W)
    # One full precision copy besides W: the symmetric part, from which the negative pairs are taken away.
    projected = _symmetric_part(W)
    if len(values):
        scaled = vectors * np.sqrt(-values)
        with threadpool_limits(limits=1, user_api="blas"):
            projected += scaled @ scaled.T
        projected = (projected + projected.T) / 2
    return np.asarray(projected, np.float32)


def full_negative_pairs(W: Float32s) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """All negative eigenpairs of sym(W): values float64 [k], most negative first, vectors float64 [d, k].

    Values within rounding of zero count as zero. Raises ConfigError above MAX_FULL_DIM dimensions.
    """
    dim = W.shape[0]
    if dim > MAX_FULL_DIM:
        raise ConfigError(
            f"a full eigendecomposition needs dim <= {MAX_FULL_DIM}, not {dim}: use the Lanczos form"
        )
    rounding = _rounding(W)
    with threadpool_limits(limits=1, user_api="blas"):
        values, vectors = eigh(_symmetric_part(W), subset_by_value=(-np.inf, -rounding), overwrite_a=True)
    return values, vectors


def lanczos_negative_pairs(W: Float32s, k: int) -> tuple[Float32s, Float32s]:
    """At most k negative eigenpairs of sym(W), the most negative ones: values [<= k], vectors [d, <= k],
    float32.

    Lanczos iteration with full reorthogonalisation over LANCZOS_STEPS_PER_PAIR * k + LANCZOS_STEPS steps
    (exact up to that many dimensions). Pairs that stand apart are found to rounding; ones crowded together
    come as their Ritz approximations, whose removal still takes their negative part away. Needs W, read once
    per step, and that many vectors, no second matrix. Deterministic: fixed start vector, one BLAS thread.
    Raises ConfigError on another k.
    """
    dim = W.shape[0]
    if not 1 <= k < dim:
        raise ConfigError(f"the number of eigenpairs must be in 1..{dim - 1}, not {k}")
    with threadpool_limits(limits=1, user_api="blas"):
        basis, diagonal, off = _lanczos(W, min(dim, LANCZOS_STEPS_PER_PAIR * k + LANCZOS_STEPS))
        values, coordinates = eigh_tridiagonal(diagonal, off)
        chosen = np.flatnonzero(values < -_rounding(W))[:k]
        vectors = basis.T @ coordinates[:, chosen]
    return values[chosen].astype(np.float32), np.ascontiguousarray(vectors, np.float32)


def _lanczos(W: Float32s, steps: int) -> tuple[Float32s, NDArray[np.float64], NDArray[np.float64]]:
    """Orthonormal Krylov basis [m, d] of sym(W) and its tridiagonal form: diagonal [m], off-diagonal [m -
    1]."""
    dim = W.shape[0]
    basis, product = np.empty((steps, dim), np.float32), np.empty(dim, np.float32)
    diagonal, off = np.zeros(steps), np.zeros(steps)
    vector = np.random.default_rng(LANCZOS_SEED).standard_normal((dim,))
    for m in range(steps):
        basis[m] = vector / np.linalg.norm(vector)
        symmetric_product(W, basis[m], product)
        diagonal[m] = basis[m].astype(np.float64) @ product
        rest = product.copy()
        for _ in range(2):  # once is not enough in float32: the second pass removes what rounding left
            rest -= basis[: m + 1].T @ (basis[: m + 1] @ rest)
        vector, off[m] = rest.astype(np.float64), np.linalg.norm(rest)
        if off[m] <= _rounding(W):
            return basis[: m + 1], diagonal[: m + 1], off[:m]
    return basis, diagonal, off[:-1]


def _rounding(W: Float32s) -> float:
    """What is smaller than this in a product with the float32 W carries no sign."""
    return float(np.finfo(np.float32).eps) * max(float(np.linalg.norm(W)), 1e-30)


def factor(W: Float32s) -> Float32s:
    """A float32 [r, d] with A^T A = the PSD part of W, r its rank: A x embeds x, the inner product is the
    similarity.

    Its Euclidean distance is another measure, which ranks alike only where ||A x|| is constant.
    Raises ConfigError above MAX_FULL_DIM dimensions.
    """
    if W.shape[0] > MAX_FULL_DIM:
        raise ConfigError(f"a factor needs dim <= {MAX_FULL_DIM}, not {W.shape[0]}")
    rounding = _rounding(W)
    with threadpool_limits(limits=1, user_api="blas"):
        values, vectors = eigh(_symmetric_part(W), subset_by_value=(rounding, np.inf), overwrite_a=True)
    return np.ascontiguousarray((vectors * np.sqrt(values)).T, np.float32)


def symmetry_index(W: Float32s) -> float:
    """rho(W) = ||sym(W)||_F^2 / ||W||_F^2, in [0, 1], 1 for a symmetric W; the papers see 0.94. 1 for W =
    0."""
    symmetric = total = 0.0
    for rows, columns in _tiles(W.shape[0]):
        tile = W[rows, columns].astype(np.float64)
        total += float(np.sum(tile * tile))
        symmetric += float(np.sum(np.square((tile + W[columns, rows].T) / 2)))
    return symmetric / total if total else 1.0


def _symmetric_part(W: Float32s) -> NDArray[np.float64]:
    symmetric = W.astype(np.float64)
    symmetric += W.T
    symmetric /= 2
    return symmetric


def _tiles(dim: int) -> Iterator[tuple[slice, slice]]:
    for row in range(0, dim, TILE):
        for column in range(0, dim, TILE):
            yield slice(row, row + TILE), slice(column, column + TILE)
