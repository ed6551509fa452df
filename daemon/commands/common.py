"""What the commands share: the --config and --set options, the configuration, output."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, cast

import typer

from daemon.exits import tell

if TYPE_CHECKING:
    from rich.console import Console

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
JsonOption = Annotated[bool, typer.Option("--json", metavar="", help="One JSON document instead of text.")]


def load(
    path: Path | None, settings: Sequence[str] | None, options: Mapping[str, Any] | None = None
) -> Config:
    """The effective configuration of a command; `options` ("section.key" -> value, None where it was not
    given) win over `settings`. Keys under former names are noted on stderr. UserError: it is not valid.
    """
    from daemon.config import load_config, parse_setting

    overrides = dict(parse_setting(text) for text in settings or ())
    overrides |= {key: value for key, value in (options or {}).items() if value is not None}
    config = load_config(config_file(path), overrides)
    write_notes(config.notes)
    return config


def config_file(path: Path | None) -> Path | None:
    """The file named, else ./tripletd.toml when there is one."""
    here = Path(DEFAULT_FILE)
    return path if path is not None or not here.is_file() else here


def start_role(name: str, path: Path | None, settings: Sequence[str] | None) -> Config:
    """Configuration and logging of a long-running role; it ends with whoever started it as a child."""
    from daemon.runtime.logs import configure
    from daemon.runtime.signals import follow_lifeline, leave_when_told

    leave_when_told()
    follow_lifeline()
    config = load(path, settings)
    configure(config.log.level, config.log.format, name)
    return config


def write_json(value: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")


def write_notes(notes: Iterable[str]) -> None:
    """What was passed over, on stderr."""
    for note in notes:
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
