"""The learning curves as a picture (PNG, SVG or PDF, by the file's ending)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from daemon.exits import EX_CANTCREAT, EX_USAGE, UserError
from daemon.look.curves import LOSS_TITLE, TITLES, Curves

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
