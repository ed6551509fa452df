"""The files of a first configuration as texts: `tripletd.toml`, and a mapping where a click log needs one."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from daemon.setup.guess import MappingGuess, SetupGuess
from daemon.setup.seen import FileSeen
from daemon.toml_text import toml_key, toml_table, toml_value

_COMMENTS = {
    "query": "an object of the catalog: its id",
    "time": "when the list was shown",
    "shown": "best place first",
    "clicked": "ids of shown objects",
    "clicked_positions": "places in that list, from 0",
    "id": "which list a row belongs to",
    "source": "who clicked: one with many lists counts as others do",
}


def settings_text(made: SetupGuess, files: Sequence[FileSeen], home: Path) -> str:
    """tripletd.toml with comments that say what was seen. Paths are relative to `home` where they can be."""
    lines = ["# Written by `tripletd init` from the first rows of:"]
    lines += [f"#   {_folded(one.described())}" for one in files]
    lines += [f"# NOTE: {_folded(note)}" for note in made.notes]
    lines.append("# Every key with its default: docs/configuration.md. `tripletd check` prints what counts.")
    if not made.views:
        lines += ["", "# [space.views.x]       # no file with vectors was given", "# dim = 384"]
    tables = {f"space.views.{toml_key(name)}": settings for name, settings in made.views.items()}
    tables["catalog"] = {"path": _place(made.catalog.path, home)} if made.catalog else {}
    tables["catalog.columns"] = made.columns
    if made.judgments is not None:
        kind, path = made.judgments
        tables["validate"] = {"judgments": f"{kind}:{_place(path, home)}"}
    tables["serve"] = {"display": _place(made.display, home)} if made.display else {}
    for table, keys in tables.items():
        lines += ["", *toml_table(table, keys)] if keys else []
        if keys.get("kind") == "sparse":
            lines.append("# dim is the largest index in the first rows plus 1: raise it if needed")
    return "\n".join(lines) + "\n"


def mapping_text(mapping: MappingGuess, logs: Sequence[FileSeen]) -> str:
    """A mapping of these logs as TOML; a key whose column was not recognized is a comment."""
    names = _folded(", ".join(one.path for one in logs))
    lines = [f"# What the columns of {names} mean, guessed by `tripletd init` from the first rows.", "#"]
    lines += [f"# {_folded(logs[0].columns_described())}", ""]
    for key, value in mapping.keys.items():
        comment = f"        # {_COMMENTS[key]}" if key in _COMMENTS else ""
        lines.append(f"{key} = {toml_value(value)}{comment}")
    lines += [f'# {key} = "COLUMN"        # not recognized: name the column' for key in mapping.unknown]
    if mapping.keys["rows"] == "impressions":
        lines.append("# no id: it is made of the whole row, so that feeding a file twice changes nothing")
    return "\n".join(lines) + "\n"


def next_commands(made: SetupGuess, home: Path) -> list[str]:
    """What to type next in a shell, in the folder `home`: a `feed` for each group of logs."""
    feeds = ["tripletd feed CLICKS --explain"] if not made.logs else []
    for group in made.logs:
        mapping = ["--mapping", group.mapping] if group.mapping else []
        words = [*(_place(one.path, home) for one in group.logs), *mapping, "--explain"]
        feeds.append(shlex.join(["tripletd", "feed", *words]))
    return ["tripletd check", *feeds, "tripletd up"]


def _place(path: str, home: Path) -> str:
    whole = Path(os.path.abspath(path))
    place = str(whole.relative_to(home) if whole.is_relative_to(home) else whole)
    return f"./{place}" if place.startswith("-") else place  # which commands take for an option


def _folded(text: str) -> str:
    """For a comment: one line without control characters, at most 300 long."""
    plain = "".join(one if one.isprintable() else "?" for one in text)
    return plain if len(plain) <= 300 else plain[:297] + "..."
