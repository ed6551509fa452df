"""The positive semi-definite part of a learned W, what was taken away to get it, and how symmetric W is.

PSD projection in the Frobenius norm: sym(W) without its negative eigenpairs. Up to `MAX_FULL_DIM` dimensions
all of them are found by a full eigendecomposition; beyond that the most negative ones by Lanczos iteration:
the ends of the spectrum of a symmetric matrix that is only ever multiplied with.

With full reorthogonalisation, twice per step (once is not enough in float32: the second pass removes what
rounding left). Deterministic: a fixed start vector, and BLAS held to one thread, since the bits of a product
may depend on how many there are.

The full decomposition leaves the interpreter free meanwhile. scipy.linalg.eigh keeps its lock while LAPACK
works: 0.3 s at 2,000 dimensions and seconds at 4,096, in which no other thread of the process moves. numpy's
lets go of it but computes float32 in float64, at twice the time and memory. So the same LAPACK routine is
called here, through the address that scipy exports for compiled code.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cython_lapack, eigh, eigh_tridiagonal

from learners.block import Float32s
from learners.errors import ConfigError
from learners.kernels.fold import symmetric_product

SET_BY_THREADPOOLCTL = "KMP_DUPLICATE_LIB_OK"


def one_blas_thread() -> AbstractContextManager[Any]:
    """While the context lasts, BLAS uses one thread, in the whole process."""
    limits: AbstractContextManager[Any] = _loaded_blas().limit(limits=1, user_api="blas")
    return limits


@cache
def _loaded_blas() -> Any:
    """The BLAS of numpy and scipy, which are loaded by now: to look for libraries in a process takes longer
    than most decompositions."""
    known = SET_BY_THREADPOOLCTL in os.environ
    from threadpoolctl import ThreadpoolController

    if not known:  # its import sets this for the process and its children, which is not for a library to do
        os.environ.pop(SET_BY_THREADPOOLCTL, None)
    return ThreadpoolController()


SEED = 20100
STEPS_PER_PAIR = 3
STEPS = 20
"""Steps of the iteration: 170 for 50 pairs, each one product."""

Product: TypeAlias = Callable[[Float32s, Float32s], None]
"""(x, out): out = S x, both float32 [d], out overwritten."""

Krylov: TypeAlias = tuple[Float32s, NDArray[np.float64], NDArray[np.float64]]

_TEXT, _INT, _FLOATS = ctypes.c_char_p, ctypes.POINTER(ctypes.c_int), ctypes.c_void_p


def symmetric_eigen(matrix: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Eigenvalues ascending, float32 [d], and orthonormal eigenvectors as columns, float32 [d, d].

    matrix: float32 [d, d], C-contiguous, symmetric; overwritten, and the vectors' memory after. LAPACK's
    ssyevd (divide and conquer), as scipy.linalg.eigh(driver="evd") to the bit. Raises LinAlgError where it
    does not converge, ValueError for another layout and for numbers that are not finite.
    """
    dim = matrix.shape[0]
    if matrix.shape != (dim, dim) or matrix.dtype != np.float32 or not matrix.flags.c_contiguous:
        raise ValueError(f"expected a square C-contiguous float32 matrix, not {matrix.dtype} {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError("the matrix holds numbers that are not finite")
    values = np.empty(dim, np.float32)
    work, integers = np.empty(1, np.float32), np.empty(1, np.int32)
    _call(matrix, values, work, integers, -1)
    # The size comes back as a float32, which rounds large ones down: LAPACK's own formula is the floor.
    work = np.empty(max(int(work[0]), 1 + 6 * dim + 2 * dim * dim), np.float32)
    integers = np.empty(max(int(integers[0]), 3 + 5 * dim), np.int32)
    _call(matrix, values, work, integers, len(work))
    return values, matrix.T


def _call(
    matrix: NDArray[Any], values: NDArray[Any], work: NDArray[Any], integers: NDArray[Any], size: int
) -> None:
    """One call of ssyevd; size -1 asks for the lengths of `work` and `integers`."""
    dim, info = ctypes.c_int(matrix.shape[0]), ctypes.c_int(0)
    lengths = ctypes.c_int(size), ctypes.c_int(-1 if size == -1 else len(integers))
    _ssyevd(
        b"V", b"L", dim, matrix.ctypes.data, dim, values.ctypes.data,
        work.ctypes.data, lengths[0], integers.ctypes.data, lengths[1], info,
    )  # fmt: skip
    if info.value != 0:
        raise LinAlgError(f"the eigendecomposition did not converge (ssyevd: {info.value})")


def _routine(name: str) -> Any:
    """The exported routine of that name, to be called without the interpreter's lock."""
    capsule = cython_lapack.__pyx_capi__[name]
    text = ctypes.pythonapi.PyCapsule_GetName
    text.restype, text.argtypes = ctypes.c_char_p, [ctypes.py_object]
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    arguments = (_TEXT, _TEXT, _INT, _FLOATS, _INT, _FLOATS, _FLOATS, _INT, _FLOATS, _INT, _INT)
    return ctypes.CFUNCTYPE(None, *arguments)(address(capsule, text(capsule)))


_ssyevd = _routine("ssyevd")


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
    with one_blas_thread():
        basis, diagonal, off = krylov(product, dim, steps_for(2 * pairs, dim), rounding)
        values, coordinates = eigh_tridiagonal(diagonal, off)
        last = len(values)
        chosen = np.unique([*range(min(pairs, last)), *range(max(0, last - pairs), last)])
        return values[chosen], basis.T.astype(np.float64) @ coordinates[:, chosen]


MAX_FULL_DIM = 4096
"""Largest dimension for a full eigendecomposition: about 7 s and 0.4 GB there, minutes and gigabytes at
10,000."""

TILE = 512


@dataclass(frozen=True, slots=True)
class RemovedPairs:
    """What a projection took away from sym(W): how many negative eigenvalues, and sum |negative| / sum |all|.

    share: in [0, 1]; None where only part of the spectrum was computed.
    """

    negatives: int
    share: float | None


def project_psd(W: Float32s, power: float = 1.0) -> Float32s:
    """`psd_part` without the account of what was removed."""
    return psd_part(W, power)[0]


def psd_part(W: Float32s, power: float = 1.0) -> tuple[Float32s, RemovedPairs]:
    """The symmetric PSD matrix nearest to W, its eigenvalues raised to `power`; and what was removed.

    sym(W) = V diag(lambda) V^T becomes V diag(m (max(lambda, 0) / m)^power) V^T, m the largest eigenvalue.
    The scale of W stays (a normalised score does not depend on it, and no power leaves the range of float32),
    and so does W = I, whatever the power. Power 1 is the projection in the Frobenius norm. A power above 1 is
    our own addition, spectral sharpening: a power of the PSD metric, that is further steps of diffusion along
    the learned directions, which favours those of most evidence over the rest.

    float32, symmetric bit for bit, PSD up to float32 rounding: the smallest eigenvalue is above -1e-5 times
    the largest. Computed in float32, the precision of W: within 1e-5 of the result of float64, in the
    Frobenius norm relative to it. W is not changed. Raises ConfigError above MAX_FULL_DIM dimensions or for a
    power that is not a finite number above 0.
    """
    _require(W.shape[0], power)
    symmetric, scale = _in_range(W)
    rounding = _rounding(symmetric)
    with one_blas_thread():
        values, vectors = symmetric_eigen(symmetric if power != 1 else symmetric.copy())
        negative, kept = values < -rounding, values > rounding
        if power == 1:  # by what is removed: a W that is PSD stays as it is, to the bit
            half = vectors[:, negative] * np.sqrt(-values[negative])
            part = symmetric + half @ half.T
        else:
            largest = max(values[-1], np.float32(0))
            half = vectors[:, kept] * (np.sqrt(largest) * (values[kept] / largest) ** np.float32(power / 2))
            part = half @ half.T
    sizes = np.abs(values)
    share = float(sizes[negative].sum() / max(float(sizes.sum()), rounding))
    removed = RemovedPairs(int(negative.sum()), share)
    return part * scale, removed


def psd_tangent(W: Float32s, power: float = 1.0) -> Float32s:
    """P, float32 [d, d], symmetric, with psd_part(W + D) ~ psd_part(W) + P D P for a small symmetric D.

    P = V diag(sqrt(f'(lambda))) V^T with f'(lambda) = power (lambda / m)^(power - 1) above 0 and 0 below. The
    derivative of such a matrix function weighs the change between eigenvectors i and j by the divided
    difference of f (Daleckii and Krein 1965); sqrt(f'_i f'_j) in its place is equal for i = j, needs no basis
    of W for its use, and leaves a PSD matrix PSD where D is. How m moves is neglected. Errors as `psd_part`.
    """
    _require(W.shape[0], power)
    symmetric = _in_range(W)[0]  # P does not depend on the scale
    rounding = _rounding(symmetric)
    with one_blas_thread():
        values, vectors = symmetric_eigen(symmetric)
        kept = values > rounding
        slopes = np.float32(power) * (values[kept] / max(values[-1], rounding)) ** np.float32(power - 1)
        half = vectors[:, kept] * np.sqrt(np.sqrt(slopes))
        return np.asarray(half @ half.T, np.float32)


def lanczos_negative_pairs(W: Float32s, k: int) -> tuple[Float32s, Float32s]:
    """At most k negative eigenpairs of sym(W), the most negative ones: values [<= k], vectors [d, <= k],
    float32.

    Lanczos iteration over `lanczos.steps_for(k, d)` steps. Pairs that stand apart are found to rounding; ones
    crowded together come as their Ritz approximations, whose removal still takes their negative part away.
    Needs W, read once per step, and that many vectors, no second matrix. Raises ConfigError on another k.
    """
    dim = W.shape[0]
    if not 1 <= k < dim:
        raise ConfigError(f"the number of eigenpairs must be in 1..{dim - 1}, not {k}")
    with one_blas_thread():
        rounding = _rounding(W)
        basis, diagonal, off = krylov(partial(symmetric_product, W), dim, steps_for(k, dim), rounding)
        values, coordinates = eigh_tridiagonal(diagonal, off)
        chosen = np.flatnonzero(values < -rounding)[:k]
        vectors = basis.T @ coordinates[:, chosen]
    return values[chosen].astype(np.float32), np.ascontiguousarray(vectors, np.float32)


def _in_range(W: Float32s) -> tuple[Float32s, np.float32]:
    """(sym(W) / scale, new; scale): a power of two, so that nothing is rounded and an extreme W overflows
    neither norm nor product.
    """
    scale = np.float32(2.0 ** np.frexp(np.abs(W).max(initial=0))[1].clip(-120, 126))
    scaled: Float32s = W / scale
    return np.asarray((scaled + scaled.T) / 2, np.float32), scale


def _rounding(W: Float32s) -> float:
    """What is smaller than this in a product with the float32 W carries no sign."""
    return float(np.finfo(np.float32).eps) * max(float(np.linalg.norm(W)), 1e-30)


def factor(W: Float32s) -> Float32s:
    """A float32 [r, d] with A^T A = the PSD part of W, r its rank: A x embeds x, the inner product is the
    similarity.

    Its Euclidean distance is another measure, which ranks alike only where ||A x|| is constant.
    Raises ConfigError above MAX_FULL_DIM dimensions.
    """
    _require_full(W.shape[0])
    rounding = _rounding(W)
    with one_blas_thread():
        values, vectors = eigh(_symmetric_part(W), subset_by_value=(rounding, np.inf), overwrite_a=True)
    return np.ascontiguousarray((vectors * np.sqrt(values)).T, np.float32)


def _require(dim: int, power: float) -> None:
    _require_full(dim)
    if not 0 < power < np.inf:
        raise ConfigError(f"the power of the eigenvalues must be a finite number above 0, not {power}")


def _require_full(dim: int) -> None:
    if dim > MAX_FULL_DIM:
        raise ConfigError(
            f"a full eigendecomposition needs dim <= {MAX_FULL_DIM}, not {dim}: use the Lanczos form"
        )


def _symmetric_part(W: Float32s) -> NDArray[np.float64]:
    symmetric = W.astype(np.float64)
    symmetric += W.T
    symmetric /= 2
    return symmetric


def tiles(dim: int) -> Iterator[tuple[slice, slice]]:
    """(rows, columns) of the squares that a d x d matrix is cut into, small enough for the cache."""
    for row in range(0, dim, TILE):
        for column in range(0, dim, TILE):
            yield slice(row, row + TILE), slice(column, column + TILE)


def symmetry_index(W: Float32s) -> float:
    """rho(W) = ||sym(W)||_F^2 / ||W||_F^2 in [0, 1], 1 for a symmetric W and for 0 (Chechik et al., JMLR 11
    (2010), section 6.1). Exactly 1 where W is symmetric. Reads W three times: under a second at 4,096
    dimensions."""
    whole = 0.0
    for rows, columns in tiles(W.shape[0]):
        whole += float(np.sum(np.square(W[rows, columns].astype(np.float64))))
    return min(1.0, symmetric_squares(W) / whole) if whole else 1.0


def symmetric_squares(W: Float32s) -> float:
    """||sym(W)||_F^2, without a second matrix."""
    total = 0.0
    for rows, columns in tiles(W.shape[0]):
        total += float(np.sum(np.square((W[rows, columns].astype(np.float64) + W[columns, rows].T) / 2)))
    return total
