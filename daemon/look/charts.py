"""Learning curves as CSV, as a picture (PNG, SVG or PDF, by the file's ending) and as a terminal chart."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from daemon.exits import EX_CANTCREAT, EX_USAGE, UserError, not_installed
from daemon.look.curves import LOSS, LOSS_TITLE, REFERENCE, TITLES, Curves, CurveSeries, Point
from daemon.text import measure

T = TypeVar("T")
MOST_ROWS = 20_000
"""Of one line in the CSV; a longer one is thinned evenly, its last version kept."""
_PIECE = 500


def csv_pieces(curves: Curves) -> Iterator[str]:
    """Text of some hundred rows at a time.

    One row per version: line, left, version, records, events, created, epoch, training_loss, measures.

    `line` 0 is the one that is learned on, `left` the version that a line left another one at; what version 0
    reaches on the same window is NAME.version_0. An empty field: not known, or not measured.
    """
    names = sorted(
        {name for line in curves.lines for one in line.points for name in one.measures} - {"events"}
    )
    known = {name for line in curves.lines for one in line.points for name in one.reference}
    references = sorted(known - {"events"})
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    own = ["line", "left", "version", "records", "events", "created", "epoch", LOSS]
    writer.writerow([*own, *names, *(f"{name}.{REFERENCE}" for name in references)])
    for number, line in enumerate(curves.lines):
        left = "" if line.left is None else line.left.version
        for row, point in enumerate(evenly(line.points, MOST_ROWS)):
            writer.writerow([number, left, *_row(point, names, references)])
            if row % _PIECE == _PIECE - 1:
                yield out.getvalue()
                out.seek(0)
                out.truncate()
    yield out.getvalue()


def evenly(points: Sequence[T], most: int) -> Sequence[T]:
    """At most `most` of them and one, evenly, the last one kept."""
    step = -(-len(points) // most) or 1
    return points if step == 1 else [*points[:-1:step], points[-1]]


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


def save_picture(curves: Curves, path: Path, kinds: Sequence[str] = ()) -> None:
    """One panel per measure and one for the loss: the current line, those left behind, version 0 and the
    shown order as reference, the best version marked. `kinds`: only these of them. UserError.
    """
    if path.suffix.lower() not in ENDINGS:
        raise UserError(f"{path}: cannot draw into this kind of file", f"use {', '.join(ENDINGS)}", EX_USAGE)
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise not_installed("drawing a picture", "plot", error) from None
    panels = [kind for kind in curves.drawn() if not kinds or kind in kinds]
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
        (curves.reference, "--", current.reference),
        ("order that was shown", ":", current.shown_order),
    ):
        known = [(x, y) for x, y in zip(current.events, reference, strict=True) if y is not None]
        if known:
            axis.plot(*zip(*known, strict=True), style, color=_REFERENCE, lw=1.4, label=what)
    for number, line in enumerate(curves.lines[1:]):
        behind = line.series(kind)
        note = "left behind" if number == 0 else None
        axis.plot(behind.events, behind.values, "-", color=_BEHIND, lw=1.2, label=note)
    axis.plot(current.events, current.values, "-o", color=_LINE, lw=1.8, ms=3.5, label="versions")
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
    parts = [f"{len(curves.judged)} judged version{'' if len(curves.judged) == 1 else 's'}"]
    if best is not None:
        parts.append(f"best: version {best.version} after {best.events:,} events")
    if curves.stopped_by:
        parts.append(f"stopped: {curves.stopped_by}")
    return "Learning curves: " + ", ".join(parts)


def _short(value: float, _place: int) -> str:
    """A large number, shortened: 20000 -> 20k."""
    for step, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= step:
            return f"{value / step:g}{unit}"
    return f"{value:g}"


def terminal_chart(series: CurveSeries, width: int, height: int) -> str:
    """One measure over the events learned as `width` x `height` characters, in colour: a line with
    a dot at each version, where these are few enough, and version 0 dotted. At least one point.
    """
    try:
        import plotext
    except ImportError as error:
        raise not_installed("drawing a chart in a terminal", "plot", error) from None
    figure = plotext.figure
    figure.clear()
    figure.plot_size(width, height)
    figure.theme("colorless")
    known = [(x, y) for x, y in zip(series.events, series.reference, strict=True) if y is not None]
    if known:
        figure.draw(figure.signal(*zip(*known, strict=True), marker=plotext.marker("dot", "gray")).lines())
    cyan = plotext.marker("braille", "cyan")
    figure.draw(figure.signal(series.events, series.values, marker=cyan).lines())
    if len(series.events) <= width // 4:
        figure.draw(figure.signal(series.events, series.values, marker=plotext.marker("circle", "cyan")))
    figure.axes(False, axis="x", side="upper")
    figure.axes(False, axis="y", side="right")
    ends = sorted({min(series.values), max(series.values)})
    figure.ruler("y").ticks(ends, [measure(value) for value in ends])
    first, last = series.events[0], series.events[-1]
    figure.ruler("x").ticks([first, last], [f"{first:,}", f"{last:,} events"])
    return str(figure.build().string())
