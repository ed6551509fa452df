"""What the commands share: the --config and --set options, the configuration, output."""

from __future__ import annotations

import gc
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, cast

import typer

from daemon.exits import EX_OK, tell
from daemon.text import safe

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from checkpoints import Ledger, LedgerEntry, VersionStore
    from daemon.config import Config

DEFAULT_FILE = "tripletd.toml"
WIDE = 1000
"""Columns of what goes to a file or a pipe: more than any table has."""

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        envvar="TRIPLETD_CONFIG",
        help=f"Configuration file; ./{DEFAULT_FILE} when there is one.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="SECTION.KEY=VALUE", help="Override one key; may be repeated."),
]


def flag(name: str, text: str) -> Any:
    """An option that is given or not; `text` is its help."""
    return typer.Option(name, metavar="", help=text)


JsonOption = Annotated[bool, flag("--json", "One JSON document instead of text.")]
VERSION = typer.Argument(metavar="VERSION", help="A number, or latest, best, stable, own, a pinned name.")
VersionArgument = Annotated[str, VERSION]
ReasonOption = Annotated[
    str, typer.Option(metavar="TEXT", show_default=False, help="Why, for those who read the ledger later.")
]
ToOption = Annotated[
    str | None, typer.Option("--to", metavar="ADDRESS", help="Another stream than stream.address.")
]


def load(
    path: Path | None,
    settings: Sequence[str] | None,
    options: Mapping[str, Any] | None = None,
    *,
    of_role: bool = False,
) -> Config:
    """The effective configuration of a command; `options` ("section.key" -> value, None where it was not
    given) win over `settings`. Keys under former names are noted on stderr, and that there is no file, unless
    it is `of_role`, which does not run without one. UserError: it is not valid.
    """
    from daemon.config import load_config, parse_setting

    overrides = dict(parse_setting(text) for text in settings or ())
    overrides |= {key: value for key, value in (options or {}).items() if value is not None}
    config = load_config(config_file(path), overrides)
    write_notes(config.notes)
    given = {key.partition(".")[0] for key in config.origins}
    if not of_role and config.file is None and not given & {"space", "stream", "catalog", "checkpoints"}:
        write_note(f"no {DEFAULT_FILE} in {Path.cwd()}: every setting has its default")
    return config


def config_file(path: Path | None) -> Path | None:
    """The file named, else ./tripletd.toml when there is one."""
    here = Path(DEFAULT_FILE)
    return path if path is not None or not here.is_file() else here


@contextmanager
def loading() -> Iterator[None]:
    """While a role loads its modules the garbage collector rests: it would go through all of them again and
    again and find nothing, for a sixth of the start. Afterwards it leaves them alone."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def start_role(name: str, path: Path | None, settings: Sequence[str] | None) -> Config:
    """Configuration and logging of a long-running role; it ends with the parent that started it."""
    from daemon.runtime.leaving import follow_lifeline, leave_on_signals
    from daemon.runtime.logs import configure, get_logger

    leave_on_signals()
    follow_lifeline()
    with loading():
        config = load(path, settings, of_role=True)
    configure(config.log.level, config.log.format, name)
    for one in config.exposed:
        get_logger().warning(one.text, remedy=one.remedy)
    if name != "feed":  # it can pass on what it knows no space of; other roles have nothing to do then
        config.space_spec()
    return config


def write_json(value: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")


def show(as_json: bool, document: Any, write: Callable[[], object]) -> int:
    """Write the document as JSON, else what `write` does as text; the exit code of a command that is done."""
    if as_json:
        write_json(document)
    else:
        write()
    return EX_OK


def write_notes(notes: Iterable[str]) -> None:
    """Write to stderr what was passed over."""
    for note in notes:
        write_note(note)


def write_note(note: str) -> None:
    """A line worth knowing, on stderr."""
    tell(f"tripletd: note: {note}\n")


class _Trimmed:
    """Standard output without the spaces that pad the last column of a table."""

    def write(self, text: str) -> int:
        return sys.stdout.write(re.sub(r" +$", "", text, flags=re.MULTILINE))

    def flush(self) -> None:
        sys.stdout.flush()


def console() -> Console:
    """A console on stdout: as wide as the terminal, plain when it is not one or NO_COLOR is set.

    In a file or a pipe a line is as long as its text, unless COLUMNS says how long, and ends without spaces.
    """
    from rich.console import Console

    shown = sys.stdout.isatty()
    width = None if shown or "COLUMNS" in os.environ else WIDE
    file = None if shown else cast(IO[str], _Trimmed())
    return Console(file=file, width=width, highlight=False, soft_wrap=False, emoji=False)


def say(*lines: str) -> None:
    """Lines on stdout in which nothing steers the terminal."""
    for line in lines:
        console().print(safe(line), markup=False, soft_wrap=True)


def table(*left: str, right: Iterable[str] = ()) -> Table:
    """An empty table with these columns, the `right` ones last and aligned to the right."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold")
    for title in left:
        made.add_column(title, overflow="fold")
    for title in right:
        made.add_column(title, justify="right", no_wrap=True, min_width=len(title))
    return made


def facts(rows: Iterable[Sequence[RenderableType]], narrow: int = 1, style: str | None = "bold") -> Table:
    """Rows in columns without titles; the first `narrow` are as wide as their words, the last is folded."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    for _ in range(narrow):
        grid.add_column(style=style, no_wrap=True)
    grid.add_column(overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return grid


def opened(settings: Config) -> tuple[VersionStore, Ledger, list[LedgerEntry]]:
    """The versions, the ledger and its entries; those that cannot be read are noted. Raises UserError."""
    from daemon.look.overview import read_entries
    from daemon.versions.storage import open_for_reading

    versions, ledger = open_for_reading(settings)
    entries, notes = read_entries(ledger)
    write_notes(notes)
    return versions, ledger, entries
