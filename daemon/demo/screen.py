"""What the demo shows while it learns: one line per judged version, on a terminal redrawn in place."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from daemon.demo.run import LISTS_PER_SECOND, MIN_DELTA, PATIENCE, DemoProgress
from daemon.look.curves import Curves, Point

ROWS = 14
SLOW_SECONDS = 120.0
BAR = 28


def introduction(folder: Path) -> str:
    """The text that introduces the demo."""
    return (
        "3,409 photos of clothes, with their real classes. The people are simulated: "
        f"{LISTS_PER_SECOND:.0f} lists a second, each with the 5 nearest photos by the ranking there is (the "
        "mean cosine of five descriptors) and 5 random ones, shuffled. The photo at rank r is looked at with "
        "probability 1/sqrt(r), and clicked with .8 if it is of the query's class, else with .1.\n\n"
        f"Learning stops when {PATIENCE:,} events have not added {MIN_DELTA:g} to the best mAP of "
        "queries that are never trained on. Users, feed, learn and validate are processes; their logs are in "
        f"{folder}.\n"
    )


def reopening(settings: Path, url: str) -> str:
    """How to come back to a finished run."""
    installed = Path(sys.executable).with_name("tripletd")
    command = "tripletd" if which("tripletd") or not installed.exists() else os.path.relpath(installed)
    return f"\nTo look at it on the page: {command} serve --config {settings}, then open {url}"


class Screen:
    """Shows the run on `console`: live on a terminal, otherwise a line whenever a version is judged."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._shown: set[int] = set()

    @contextmanager
    def open(self) -> Iterator[Screen]:
        """Take the terminal while the run lasts."""
        if not self._console.is_terminal:
            yield self
            return
        with Live(console=self._console, refresh_per_second=4) as self._live:
            yield self

    def show(self, look: DemoProgress) -> None:
        """Draw the newest state."""
        if self._live is not None:
            self._live.update(Group(_table(look.curves), _status(look)))
            return
        for point in look.curves.judged:
            if point.version not in self._shown:
                self._shown.add(point.version)
                self._console.print(_line(point))


def _table(curves: Curves) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("version", "events", "mAP", "P@10"):
        table.add_column(name, justify="right")
    table.add_column("")
    highest = max((point.measures.get("map_full", 0.0) for point in curves.judged), default=1.0) or 1.0
    for point in [*curves.judged[:1], *curves.judged[1:][1 - ROWS :]]:
        value = point.measures.get("map_full", 0.0)
        bar = Text("━" * max(1, round(BAR * value / highest)), style="cyan" if point.version else "dim")
        if point.version == 0:
            bar.append("  your ranking", style="dim")
        if point.version and point.version == curves.best:
            bar.append("  best", style="bold green")
        first = f"{point.measures.get('p10_full', 0.0):.3f}"
        table.add_row(str(point.version), f"{point.events:,}", f"{value:.3f}", first, bar)
    return table


def _status(look: DemoProgress) -> Text:
    if not look.versions:
        slow = "; on a slow machine this takes minutes, and the logs say how far it is"
        doing = "starting users, feed, learn and validate" + (slow if look.seconds > SLOW_SECONDS else "")
    elif not look.curves.judged:
        doing = f"validate is starting; learn has written {look.versions} versions"
    else:
        learned, judged = (points[-1].events for points in (look.curves.current.points, look.curves.judged))
        doing = f"{look.versions} versions, {learned:,} events learned, {judged:,} of them judged"
    return Text(f"{look.seconds:3.0f} s  {doing}", style="dim")


def _line(point: Point) -> str:
    measures = point.measures
    return (
        f"version {point.version:3d}  {point.events:8,d} events  mAP {measures.get('map_full', 0.0):.3f}  "
        f"P@10 {measures.get('p10_full', 0.0):.3f}"
    )
