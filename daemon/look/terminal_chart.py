"""A line chart in braille characters: two dots across and four down per character. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]], dtype=np.int64)
_BLANK = 0x2800
_DASH = 6

Layer = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Chart:
    """Rows of text, top first; `line` and `reference` are bool[rows, columns]: which layer fills a cell."""

    rows: list[str]
    line: Layer
    reference: Layer
    low: float
    high: float


def draw(
    x: Sequence[float], y: Sequence[float], reference: Sequence[float | None], width: int, height: int
) -> Chart:
    """Chart of y over x as one line and `reference` over x as a dashed one, `width` x `height` characters.

    x ascending, at least one point; None in `reference` is a gap.
    """
    known = [value for value in reference if value is not None]
    low, high = _range([*y, *known])
    place = _Placing(x[0], x[-1], low, high, width * 2, height * 4)
    line, dashed = _blank(place), _blank(place)
    _polyline(line, place, list(zip(x, y, strict=True)))
    _polyline(dashed, place, [(a, b) for a, b in zip(x, reference, strict=True) if b is not None])
    dashed[:, np.arange(dashed.shape[1]) % _DASH >= _DASH // 2] = False
    line_codes, dash_codes = _codes(line), _codes(dashed)
    # Where both run through one cell the line alone is drawn: its colour must not lie about the other.
    codes = np.where(line_codes > 0, line_codes, dash_codes)
    rows = ["".join(chr(_BLANK + int(code)) for code in row) for row in codes]
    return Chart(rows, line_codes > 0, (line_codes == 0) & (dash_codes > 0), low, high)


@dataclass(frozen=True, slots=True)
class _Placing:
    left: float
    right: float
    low: float
    high: float
    columns: int
    rows: int

    def column(self, x: float) -> int:
        if self.right <= self.left:
            return 0
        return round((x - self.left) / (self.right - self.left) * (self.columns - 1))

    def row(self, y: float) -> int:
        return round((self.high - y) / (self.high - self.low) * (self.rows - 1))


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = (high - low) * 0.05 or 0.01
    return low - margin, high + margin


def _blank(place: _Placing) -> Layer:
    return np.zeros((place.rows, place.columns), dtype=np.bool_)


def _polyline(layer: Layer, place: _Placing, points: Sequence[tuple[float, float]]) -> None:
    spots = [(place.column(x), place.row(y)) for x, y in points]
    for column, row in spots:
        layer[row, column] = True
    for (c0, r0), (c1, r1) in pairwise(spots):
        steps = max(abs(c1 - c0), abs(r1 - r0), 1)
        columns = np.rint(np.linspace(c0, c1, steps + 1)).astype(np.int64)
        layer[np.rint(np.linspace(r0, r1, steps + 1)).astype(np.int64), columns] = True


def _codes(layer: Layer) -> npt.NDArray[np.int64]:
    """Braille code of each cell, int64[rows / 4, columns / 2]."""
    rows, columns = layer.shape
    cells = layer.reshape(rows // 4, 4, columns // 2, 2)
    return np.asarray(np.einsum("rdcw,dw->rc", cells.astype(np.int64), _DOTS), dtype=np.int64)
