"""The spectrum of sym(W), for people: its ends, how much of it is negative, and how many directions it uses.

Up to `FULL_UP_TO` dimensions from all eigenvalues; beyond that from the two ends that Lanczos iteration
finds, and what needs the whole spectrum is None.

What changed between two matrices W: how much, in which coordinates, along which directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from learners import psd as lanczos
from learners.block import Float32s
from learners.errors import ConfigError
from learners.kernels.fold import symmetric_product
from learners.psd import one_blas_thread, symmetric_eigen, symmetric_squares, tiles

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
    norm = float(np.sqrt(symmetric_squares(W)))  # ||sym(W)||_F, without a second matrix
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
    with one_blas_thread():
        return symmetric_eigen(S)


def _ends(values: NDArray[np.float64], ends: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return tuple(map(float, values[::-1][:ends])), tuple(map(float, values[:ends]))


def _stable(norm: float, values: NDArray[np.float64]) -> float:
    top = float(np.abs(values).max(initial=0))
    return (norm / top) ** 2 if top else 0.0


COORDINATES = 6
"""Coordinates reported of a direction."""


@dataclass(frozen=True, slots=True)
class EntryChange:
    """A pair of coordinates, row <= column, whose value in the symmetric part went from `before` to
    `after`."""

    row: int
    column: int
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Direction:
    """An eigenpair of sym(B) - sym(A): similarity along it rose (value > 0) or fell by `value`.

    coordinates: those of largest weight in its unit vector with their weights, the first one positive.
    """

    value: float
    coordinates: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Change:
    """From A to B. relative: ||B - A||_F / ||A||_F; symmetric: the same of the symmetric parts, which is what
    scores are made of; None where A is 0. entries and directions: largest change first, no zeros.
    """

    relative: float | None
    symmetric: float | None
    entries: tuple[EntryChange, ...]
    directions: tuple[Direction, ...]


def change(
    A: Float32s, B: Float32s, entries: int = 20, directions: int = 5, full_up_to: int = FULL_UP_TO
) -> Change:
    """What changed from A to B, both float32 [d, d] and left as they are.

    Above `full_up_to` dimensions no further matrix is made: directions come from Lanczos iteration. Raises
    ConfigError for unequal shapes or numbers that are not finite.
    """
    dim = checked(A)
    if checked(B) != dim:
        raise ConfigError(f"matrices of {dim} and {len(B)} dimensions have no difference")
    squares = np.zeros(4)
    found: list[EntryChange] = []
    for rows, columns in tiles(dim):
        a, b = A[rows, columns].astype(np.float64), B[rows, columns].astype(np.float64)
        old, new = (a + A[columns, rows].T) / 2, (b + B[columns, rows].T) / 2
        squares += [np.sum(np.square(part)) for part in (b - a, a, new - old, old)]
        if columns.start >= rows.start:
            found += _largest(old, new, (rows.start, columns.start), entries)
            found.sort(key=lambda one: (-abs(one.after - one.before), one.row, one.column))
            del found[entries:]
    moved, own, moved_symmetric, own_symmetric = np.sqrt(squares).tolist()
    return Change(
        moved / own if own else None,
        moved_symmetric / own_symmetric if own_symmetric else None,
        tuple(found),
        _directions(A, B, directions, full_up_to, EPS * moved_symmetric),
    )


def _largest(
    old: NDArray[np.float64], new: NDArray[np.float64], at: tuple[int, int], count: int
) -> list[EntryChange]:
    """The entries of one tile that changed most, each pair of coordinates once."""
    size = np.abs(new - old)
    if at[0] == at[1]:
        size = np.triu(size)
    flat = size.reshape(-1)
    best = np.argpartition(-flat, min(max(count, 1), flat.size) - 1)[:count]
    places = (divmod(int(place), size.shape[1]) for place in best if flat[place] > 0)
    return [EntryChange(at[0] + i, at[1] + j, float(old[i, j]), float(new[i, j])) for i, j in places]


def _directions(
    A: Float32s, B: Float32s, count: int, full_up_to: int, rounding: float
) -> tuple[Direction, ...]:
    dim = len(A)
    if dim <= full_up_to:
        difference = symmetric(B)
        difference -= symmetric(A)
        values, vectors = (array.astype(np.float64) for array in eigen(difference))
    else:
        values, vectors = lanczos.ends(_Difference(A, B), dim, count, rounding)
    order = np.argsort(-np.abs(values), kind="stable")[:count]
    return tuple(_direction(values[n], vectors[:, n]) for n in order if abs(values[n]) > rounding)


def _direction(value: float, vector: NDArray[np.float64]) -> Direction:
    heavy = np.argsort(-np.abs(vector), kind="stable")[:COORDINATES]
    sign = -1.0 if vector[heavy[0]] < 0 else 1.0
    return Direction(float(value), tuple((int(j), sign * float(vector[j])) for j in heavy))


class _Difference:
    """(sym(B) - sym(A)) x, without forming it."""

    def __init__(self, A: Float32s, B: Float32s) -> None:
        self._A, self._B = A, B
        self._of_A = np.empty(len(A), np.float32)

    def __call__(self, x: Float32s, out: Float32s) -> None:
        symmetric_product(self._A, x, self._of_A)
        symmetric_product(self._B, x, out)
        out -= self._of_A
