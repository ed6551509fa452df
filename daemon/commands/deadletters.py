"""`tripletd deadletters`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.commands.common import ConfigOption, JsonOption, SetOption, console, load, write_json
from daemon.exits import EX_OK
from daemon.text import safe

if TYPE_CHECKING:
    from daemon.look.letters import Shown


def deadletters(
    *,
    last: Annotated[int, typer.Option("--last", min=1, metavar="N", help="How many, the newest.")] = 20,
    config: ConfigOption = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> int:
    """The newest records that could not be learned from: where they were, why, their first bytes."""
    from daemon.look.letters import newest_letters

    letters = newest_letters(load(config, set_).stream.to_address(), last)
    if json:
        write_json([asdict(one) for one in letters])
    else:
        _print(letters)
    return EX_OK


def _print(letters: list[Shown]) -> None:
    from daemon.look.letters import HEAD_BYTES

    for one in letters:
        size = "no value" if one.size is None else f"{one.size:,} bytes"
        place = f"{one.topic} partition {one.partition} offset {one.offset}"
        why = f"{one.reason}: {one.detail}" if one.partition is not None else one.detail
        _say(f"{one.time}  {place if one.partition is not None else '?'}  {size}")
        _say(f"  {why}")
        if one.head:
            _say(f"  {one.head}{'...' if (one.size or 0) > HEAD_BYTES else ''}")
    if not letters:
        _say("no dead letters")


def _say(line: str) -> None:
    """A line in which nothing steers the terminal."""
    console().print(safe(line), markup=False, soft_wrap=True)
