"""`tripletd curves`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.commands.common import ConfigOption, SetOption, console, load, write_notes
from daemon.exits import EX_CANTCREAT, EX_OK, EX_UNAVAILABLE, UserError
from daemon.text import measure

if TYPE_CHECKING:
    from rich.text import Text

    from daemon.look.curves import Curves

_HEIGHT = 7
_LABEL = 7
_CHARTS = 3
"""Charts on one screen; the picture and the CSV hold every measure."""


def curves(
    *,
    config: ConfigOption = None,
    set_: SetOption = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw into a picture: .png, .svg or .pdf.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the numbers as CSV; - is standard output.")
    ] = None,
) -> int:
    """Learning curves: each measure of each version over the events learned, pruned versions included."""
    from daemon.look.curve_reader import CurveReader
    from daemon.look.curves_csv import to_csv
    from daemon.versions.storage import open_for_reading

    reader = CurveReader(*open_for_reading(load(config, set_)))
    found = reader.read()
    write_notes(reader.notes)
    if not found.drawn():
        raise UserError(
            "nothing is learned or judged yet",
            "start `tripletd learn` and `tripletd validate`",
            EX_UNAVAILABLE,
        )
    if csv is not None:
        _write(csv, to_csv(found))
    if out is not None:
        from daemon.look.curve_picture import save_picture

        save_picture(found, out)
        sys.stderr.write(f"written: {out}\n")
    if csv is None and out is None:
        _print(found)
    return EX_OK


def _write(path: Path, text: str) -> None:
    if str(path) == "-":
        sys.stdout.write(text)
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"{path}: cannot be written: {error.strerror}", "name another file", EX_CANTCREAT
        ) from None
    sys.stderr.write(f"written: {path}\n")


def _print(found: Curves) -> None:
    from rich.text import Text

    terminal = console()
    width = max(20, min(terminal.width, 100) - _LABEL - 2)
    for kind in [kind for kind in found.drawn() if found.current.series(kind).events][:_CHARTS]:
        terminal.print(_chart(found, kind, width))
    legend = Text()
    legend.append("⣀⣀ ", style="cyan").append("versions   ").append("⣀ ⣀ ", style="dim").append("version 0")
    best = found.best_point()
    if best is not None:
        legend.append(f"   best: version {best.version} after {best.events:,} events", style="green")
    if found.stopped_by:
        legend.append(f"   stopped by {found.stopped_by}")
    terminal.print(legend)


def _chart(found: Curves, kind: str, width: int) -> Text:
    from rich.text import Text

    from daemon.look.curves import LOSS_TITLE, TITLES
    from daemon.look.terminal_chart import draw

    line = found.current.series(kind)
    events = line.events
    chart = draw(events, line.values, line.reference, width, _HEIGHT)
    title = TITLES.get(kind, LOSS_TITLE)
    text = Text(title, style="bold")
    change = _change(found, kind)
    fits = len(title) + 2 + len(change) <= width + _LABEL + 1
    text.append(f"{'  ' if fits else chr(10)}{change}\n", style="not bold")
    for number, row in enumerate(chart.rows):
        label = {0: measure(chart.high), _HEIGHT - 1: measure(chart.low)}.get(number, "")
        text.append(f"{label:>{_LABEL - 1}} ", style="not bold dim").append("│", style="not bold dim")
        for column, cell in enumerate(row):
            text.append(cell, style="not bold cyan" if chart.line[number, column] else "not bold dim")
        text.append("\n")
    first, last = f"{events[0]:,}", f"{events[-1]:,} events"
    text.append(" " * _LABEL + "└" + "─" * width + "\n", style="not bold dim")
    text.append(" " * (_LABEL + 1) + first + last.rjust(width - len(first)) + "\n", style="not bold dim")
    return text


def _change(found: Curves, kind: str) -> str:
    """From version 0 to the best version (the newest while there is none), on the same window."""
    point = found.best_point() or (found.judged or found.current.points)[-1]
    if kind not in point.measures:
        return ""
    name = "best" if point.version == found.best else "newest"
    before = point.reference.get(kind)
    own = f"{name} {measure(point.measures[kind])}"
    return own if before is None else f"version 0 {measure(before)}, {own}"
