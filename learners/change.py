"""What changed between two matrices W: how much, in which coordinates, along which directions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learners import lanczos
from learners.block import Float32s
from learners.errors import ConfigError
from learners.kernels.fold import symmetric_product
from learners.psd import tiles
from learners.spectrum import EPS, FULL_UP_TO, checked, eigen, symmetric

COORDINATES = 6
"""Coordinates told of a direction."""


@dataclass(frozen=True, slots=True)
class Entry:
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
    entries: tuple[Entry, ...]
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
    found: list[Entry] = []
    for rows, columns in tiles(dim):
        a, b = A[rows, columns].astype(np.float64), B[rows, columns].astype(np.float64)
        old, new = (a + A[columns, rows].T) / 2, (b + B[columns, rows].T) / 2
        squares += [np.sum(np.square(part)) for part in (b - a, a, new - old, old)]
        if columns.start >= rows.start:
            found += _largest(old, new, (rows.start, columns.start), entries)
            found = sorted(found, key=_rank)[:entries]
    moved, own, moved_symmetric, own_symmetric = np.sqrt(squares).tolist()
    return Change(
        moved / own if own else None,
        moved_symmetric / own_symmetric if own_symmetric else None,
        tuple(found),
        _directions(A, B, directions, full_up_to, EPS * moved_symmetric),
    )


def _largest(
    old: NDArray[np.float64], new: NDArray[np.float64], at: tuple[int, int], count: int
) -> list[Entry]:
    """The entries of one tile that changed most, each pair of coordinates once."""
    size = np.abs(new - old)
    if at[0] == at[1]:
        size = np.triu(size)
    flat = size.reshape(-1)
    best = np.argpartition(-flat, min(max(count, 1), flat.size) - 1)[:count]
    places = (divmod(int(place), size.shape[1]) for place in best if flat[place] > 0)
    return [Entry(at[0] + i, at[1] + j, float(old[i, j]), float(new[i, j])) for i, j in places]


def _rank(entry: Entry) -> tuple[float, int, int]:
    return -abs(entry.after - entry.before), entry.row, entry.column


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
