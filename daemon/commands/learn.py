"""`tripletd learn`."""

from __future__ import annotations

from typing import Annotated

import typer

from daemon.commands.common import ConfigOption, SetOption, start_role


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
            help="Branch from this version; every start with it branches anew: not for a service file.",
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
) -> int:
    """Learn from the stream and write numbered versions."""
    effective = start_role("learn", config, set_)
    from daemon.learn.options import LearnOptions
    from daemon.learn.role import run

    return run(effective, LearnOptions(exit_when_caught_up, start, restart_from, accept_gap, jump))
