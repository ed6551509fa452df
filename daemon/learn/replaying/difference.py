"""Where two states differ first: array, row, column. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from daemon.versions.arrays import Arrays

TOLERANCE = 1e-4
"""Where other packages or another processor computed a version: how far apart two numbers may be, relative to
the largest of the array (at least 1). A rounding of float32 is 6e-8; it grows with every step, and beyond any
bound where a step is decided by a loss that is nearly 0."""

BLOCK = 1 << 22  # elements compared at a time


@dataclass(frozen=True, slots=True)
class Place:
    """The first difference: array name, row and column of it, the two values, how many rows differ.

    `row` is None where the array is missing on one side or has another shape or type; the values say which.
    """

    array: str
    row: int | None
    column: int
    recorded: Any
    recomputed: Any
    rows: int

    def __str__(self) -> str:
        if self.row is None:
            return f"array {self.array}: recorded {self.recorded}, recomputed {self.recomputed}"
        values = f"recorded {self.recorded!r}, recomputed {self.recomputed!r}"
        more = f"; {self.rows:,} rows differ" if self.rows > 1 else ""
        return f"array {self.array}, row {self.row} (column {self.column}: {values}{more})"


def first_difference(recorded: Arrays, recomputed: Arrays, tolerance: float | None = None) -> Place | None:
    """The first difference, arrays by name; bit for bit, or of floats beyond a tolerance. None when equal."""
    for name in sorted({*recorded, *recomputed}):
        old, new = recorded.get(name), recomputed.get(name)
        if old is None or new is None or (old.shape, old.dtype) != (new.shape, new.dtype):
            return Place(name, None, 0, _kind(old), _kind(new), 0)
        place = _compare(name, as_rows(old), as_rows(new), tolerance)
        if place is not None:
            return place
    return None


def as_rows(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array with two axes: rows of what lies behind its first axis; a number is one row."""
    return array.reshape(len(array), math.prod(array.shape[1:])) if array.ndim > 1 else array.reshape(-1, 1)


def _compare(
    name: str, old: npt.NDArray[Any], new: npt.NDArray[Any], tolerance: float | None
) -> Place | None:
    scale = None
    if tolerance is not None and old.dtype.kind == "f":
        scale = tolerance * max([1.0, *(float(np.abs(part).max(initial=0.0)) for part in _blocks(old))])
    first, rows, start = None, 0, 0
    for mine, its in zip(_blocks(old), _blocks(new), strict=True):
        differs = _differs(mine, its, scale)
        found = np.flatnonzero(differs.any(axis=1))
        if len(found) and first is None:
            column = int(np.flatnonzero(differs[found[0]])[0])
            first = start + int(found[0]), column
        rows, start = rows + len(found), start + len(mine)
    if first is None:
        return None
    return Place(name, *first, old[first].item(), new[first].item(), rows)


def _differs(old: npt.NDArray[Any], new: npt.NDArray[Any], scale: float | None) -> npt.NDArray[np.bool_]:
    """bool [rows, columns]; without a scale by bits, where -0.0 is not 0.0 and a NaN is itself."""
    if scale is not None:
        return np.asarray(~(np.abs(old - new) <= scale))  # also where either is NaN
    bits = f"u{old.dtype.itemsize}"
    return np.asarray(np.ascontiguousarray(old).view(bits) != np.ascontiguousarray(new).view(bits))


def _blocks(array: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    step = max(1, BLOCK // max(1, array.shape[1]))
    return (array[start : start + step] for start in range(0, len(array), step))


def _kind(array: npt.NDArray[Any] | None) -> str:
    return "none" if array is None else f"{array.dtype} {list(array.shape)}"
