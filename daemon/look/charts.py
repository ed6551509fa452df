"""Learning curves as CSV, as a picture (PNG, SVG or PDF, by the file's ending) and as a terminal chart."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from daemon.exits import EX_CANTCREAT, EX_USAGE, UserError
from daemon.look.curves import LOSS, LOSS_TITLE, REFERENCE, TITLES, Curves, Point


def to_csv(curves: Curves) -> str:
    """One row per version: line, left, version, records, events, created, epoch, training_loss, measures.

    `line` 0 is the one that is learned on, `left` the version that a line left another one at; what version 0
    reaches on the same window is NAME.version_0. An empty field: not known, or not measured.
    """
    points = [point for line in curves.lines for point in line.points]
    names = sorted({name for point in points for name in point.measures} - {"events"})
    references = sorted({name for point in points for name in point.reference} - {"events"})
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    own = ["line", "left", "version", "records", "events", "created", "epoch", LOSS]
    writer.writerow([*own, *names, *(f"{name}.{REFERENCE}" for name in references)])
    for number, line in enumerate(curves.lines):
        for point in line.points:
            left = "" if line.left is None else line.left.version
            writer.writerow([number, left, *_row(point, names, references)])
    return out.getvalue()


def _row(point: Point, names: list[str], references: list[str]) -> list[object]:
    records = "" if point.records is None else point.records
    loss = "" if point.loss is None else point.loss
    return [
        *(point.version, records, point.events, point.created, point.epoch, loss),
        *(point.measures.get(name, "") for name in names),
        *(point.reference.get(name, "") for name in references),
    ]


ENDINGS = (".png", ".svg", ".pdf")
_LINE, _REFERENCE, _BEST, _TEXT = "#1f6f8b", "#9a9a9a", "#d1495b", "#333333"
_BEHIND = "#a9c6d1"


def save_picture(curves: Curves, path: Path) -> None:
    """One panel per measure and one for the loss: the current line, those left behind, version 0 and the
    shown order as reference, the best version marked. UserError.
    """
    if path.suffix.lower() not in ENDINGS:
        raise UserError(f"{path}: cannot draw into this kind of file", f"use {', '.join(ENDINGS)}", EX_USAGE)
    from matplotlib.figure import Figure

    panels = curves.drawn()
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.6 * columns, 3.3 * rows + 0.5), dpi=150, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, kind in zip(axes, panels, strict=False):
        _panel(axis, curves, kind)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    figure.suptitle(_headline(curves), fontsize=11, color=_TEXT, x=0.01, ha="left")
    try:
        figure.savefig(path)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be written: {error.strerror}", "name another file", EX_CANTCREAT
        ) from None


def _panel(axis: Any, curves: Curves, kind: str) -> None:
    current = curves.current.series(kind)
    for what, style, reference in (
        ("version 0 (cosine)", "--", current.reference),
        ("order that was shown", ":", current.shown_order),
    ):
        known = [(x, y) for x, y in zip(current.events, reference, strict=True) if y is not None]
        if known:
            axis.plot(*zip(*known, strict=True), style, color=_REFERENCE, lw=1.4, label=what)
    for number, line in enumerate(curves.lines[1:]):
        behind = line.series(kind)
        told = "left behind" if number == 0 else None
        axis.plot(behind.events, behind.values, "-", color=_BEHIND, lw=1.2, label=told)
    axis.plot(current.events, current.values, "-o", color=_LINE, lw=1.8, ms=3.5, label="version")
    best = curves.best_point()
    value = None if best is None else best.value(kind)
    if best is not None and value is not None:
        axis.plot([best.events], [value], "*", color=_BEST, ms=13, zorder=5, label="best")
    axis.set_title(TITLES.get(kind, LOSS_TITLE), fontsize=9.5, color=_TEXT, loc="left")
    axis.set_xlabel("events learned", fontsize=8.5, color=_TEXT)
    axis.xaxis.set_major_formatter(_short)
    axis.margins(y=0.12)
    axis.tick_params(labelsize=8, colors=_TEXT)
    axis.grid(axis="y", color="#e6e6e6", lw=0.8)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=8, frameon=False, loc="best")


def _headline(curves: Curves) -> str:
    best = curves.best_point()
    parts = [f"{len(curves.judged)} judged versions"]
    if best is not None:
        parts.append(f"best: version {best.version} after {best.events:,} events")
    if curves.stopped_by:
        parts.append(f"stopped by {curves.stopped_by}")
    return "Learning curves: " + ", ".join(parts)


def _short(value: float, _place: int) -> str:
    """20000 -> 20k."""
    for step, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= step:
            return f"{value / step:g}{unit}"
    return f"{value:g}"


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
