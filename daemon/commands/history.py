"""What the commands that read click logs of months share: their options, and what they show meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daemon.exits import EX_USAGE, UserError
from daemon.text import safe

try:
    from streams.feed.options import FORMATS  # light: without a reader
except ImportError:  # another project's `streams`: the command line says so before any command runs
    FORMATS = ()  # type: ignore[assignment]

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from daemon.judging.samples import PlacedVersion

SourcesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE...",
        help="Files, patterns, folders whose files belong together, s3://..., log:..., kafka://...",
    ),
]
FormatOption = Annotated[
    str | None, typer.Option("--format", metavar="NAME", help="As for feed; detected if left out.")
]
MappingOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="What the columns mean, as for feed: a name or a file.")
]
MeasureOption = Annotated[
    str | None,
    typer.Option(
        "--by",
        metavar="MEASURE",
        help="What is compared: map_full where there are judgments, else map_shown; or preference, loss.",
    ),
]
WorkersOption = Annotated[
    int, typer.Option(min=1, max=1024, metavar="N", help="Processes side by side, a core each.")
]
ClusterOption = Annotated[
    str | None,
    typer.Option("--address", metavar="ADDRESS", help="Of a Ray cluster, whose cores are the workers."),
]
RateOption = Annotated[
    float, typer.Option(min=0.0, metavar="N", help="Of all learners together; 0: no limit.")
]
NiceOption = Annotated[
    int, typer.Option(min=0, max=19, metavar="N", help="By how much the workers give way.")
]
CsvOption = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the table there, too.")]


def require_known(option: str, given: str | None, known: Sequence[str]) -> None:
    """Raise UserError for a value that is none of these."""
    if given is not None and given not in known:
        raise UserError(f"{option} {given!r} is not known", f"use one of {', '.join(known)}", EX_USAGE)


def require_format(given: str | None) -> None:
    """Raise UserError for a format that no reader has."""
    require_known("--format", given, FORMATS)


def csv_of(lines: Sequence[Mapping[str, Any]]) -> str:
    """Lines of plain values by column as CSV, a header first."""
    import csv
    import io

    out = io.StringIO()
    columns = dict.fromkeys(name for line in lines for name in line)
    writer = csv.DictWriter(out, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()


class ReadingStatus:
    """What a terminal shows while history is read; where it is none, only what is worth a line."""

    def __init__(self, console: Console, status: Status | None) -> None:
        self._console, self._status = console, status

    def note(self, text: str) -> None:
        """A line worth knowing; what is being read is shown in place."""
        if not text.startswith("reading "):
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            self.update(safe(text))

    def update(self, text: str) -> None:
        """How far it is, in place."""
        if self._status is not None:
            self._status.update(text)


def placed_cells(placed: PlacedVersion) -> list[str]:
    """Score, difference to the best, each with its half width, and whether the two are told apart."""
    apart = [f"{placed.to_best.mean:+.4f}", number(placed.to_best.half_width())]
    told = "best" if placed.is_best else "within noise" if placed.noise else ""
    score = [f"{placed.score.mean:.4f}", number(placed.score.half_width())]
    return [*score, *(["", ""] if placed.is_best else apart), told]


def number(value: float, form: str = ".4f") -> str:
    """A cell of a table."""
    return format(value, form) if math.isfinite(value) else "-"


@contextmanager
def reading(console: Callable[[], Console], what: str = "reading") -> Iterator[ReadingStatus]:
    """While history is read."""
    made = console()
    if not made.is_terminal:
        yield ReadingStatus(made, None)
        return
    with made.status(what) as status:
        yield ReadingStatus(made, status)
