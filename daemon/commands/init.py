"""`tripletd init`."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from daemon.commands.common import DEFAULT_FILE, flag, say, write_notes
from daemon.exits import EX_CANTCREAT, EX_DATAERR, EX_OK, EX_USAGE, UserError

_MOST = 20
"""Files of a folder that are looked at where none is named."""


def init(
    *,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE...]",
            help="Objects with vectors, click logs, labels; without any, the files of this folder.",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Where tripletd.toml is written.")
    ] = Path(),
    force: Annotated[bool, flag("--force", "Replace a tripletd.toml that is there.")] = False,
    dry_run: Annotated[bool, flag("--dry-run", "Print what would be written; write nothing.")] = False,
) -> int:
    """Look at your files, and write a configuration for them.

    Parquet, Arrow, CSV, JSON lines, .npy, .npz and .safetensors are looked at by their first rows. For click
    logs that need a mapping one is written for each kind of columns. What was not recognized is a comment.
    """
    from daemon.setup.guess import guess
    from daemon.setup.seen import look_at
    from daemon.setup.written import mapping_text, next_commands, settings_text
    from streams.durable import replacing

    names = list(dict.fromkeys(files or _files_here()))
    for name in (*names, str(out)):
        if (whole := os.path.abspath(name)).encode(errors="ignore").decode() != whole:
            raise UserError(f"{name!r} or its folder: the name is not UTF-8", "rename it", EX_DATAERR)
    seen = [look_at(one) for one in names]
    made, home = guess(seen), out.resolve()
    texts = {out / DEFAULT_FILE: settings_text(made, seen, home)}
    guessed = [(out / group.mapping, group.guess, group.logs) for group in made.logs if group.guess]
    texts |= {path: mapping_text(meaning, logs) for path, meaning, logs in guessed}
    there = [str(one) for one in texts if one.exists()]
    if there and not force and not dry_run:
        raise UserError(f"{' and '.join(there)}: already exists", "look at it, or use --force", EX_CANTCREAT)
    for path, text in texts.items():
        if dry_run:
            sys.stdout.write(f"# {path}\n{text}\n")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                file.write(text.encode())
            say(f"wrote {path}")
    unknown = ((path, " and which is ".join(meaning.unknown)) for path, meaning, _ in guessed)
    write_notes([*made.notes, *(f"{path}: say which column is {keys}" for path, keys in unknown if keys)])
    moved = [] if home == Path.cwd() else [shlex.join(["cd", str(out)])]
    say("next:")
    for command in (*moved, *next_commands(made, home)):
        say(f"  {command}")
    return EX_OK


def _files_here() -> list[str]:
    """The files of this folder that objects or clicks may be in. Raises UserError where there is none."""
    from daemon.setup.seen import ARRAYS, LABELS, LINES
    from streams.tables import SUFFIXES

    endings = (*SUFFIXES, *ARRAYS, *LINES, *LABELS)
    files = (one.name for one in Path().iterdir() if one.is_file())
    if not (found := sorted(one for one in files if one.lower().endswith(endings))):
        remedy = "name them: tripletd init OBJECTS CLICKS; or see an example with `tripletd demo`"
        raise UserError(f"no file with objects or clicks in {Path.cwd()}", remedy, EX_USAGE)
    return found[:_MOST]
