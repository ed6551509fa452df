"""`tripletd learn`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from daemon.commands.common import ConfigOption, SetOption, load, start_role


def learn(
    *,
    config: ConfigOption = None,
    set_: SetOption = None,
    exit_when_caught_up: Annotated[
        bool,
        typer.Option(
            "--exit-when-caught-up", metavar="", help="Leave when every record of the stream is learned."
        ),
    ] = False,
    start: Annotated[
        str,
        typer.Option(
            metavar="POSITION",
            help="Where to begin without a version: earliest, latest, ts=TIME, last=1h, offset={...}; "
            "checkpoint goes on where the newest one stands. With a version, others need --jump.",
        ),
    ] = "checkpoint",
    restart_from: Annotated[
        int | None,
        typer.Option(
            metavar="VERSION",
            help="Branch from this version, once: a restart goes on with the branch; see --again.",
        ),
    ] = None,
    accept_gap: Annotated[
        bool,
        typer.Option(
            "--accept-gap", metavar="", help="Go on although the log dropped records not yet learned."
        ),
    ] = False,
    jump: Annotated[
        bool,
        typer.Option(
            "--jump",
            metavar="",
            help="Leave the position of the version for --start: repeats or skips events.",
        ),
    ] = False,
    accept_log: Annotated[
        bool,
        typer.Option(
            "--accept-log",
            metavar="",
            help="Go on, from --start, with a log that was recreated, lost records or is another one.",
        ),
    ] = False,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            metavar="",
            help="Make the branch, or the change of the log, although it was made before.",
        ),
    ] = False,
) -> int:
    """Learn from the stream and write numbered versions."""
    effective = start_role("learn", config, set_)
    from daemon.learn.options import LearnOptions
    from daemon.learn.role import run

    options = LearnOptions(exit_when_caught_up, start, restart_from, accept_gap, jump, accept_log, again)
    return run(effective, options, partial(load, config, set_))
