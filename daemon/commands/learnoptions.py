"""The options of `tripletd learn`, as typer wants them."""

from __future__ import annotations

from typing import Annotated

import typer

ExitWhenCaughtUp = Annotated[
    bool,
    typer.Option(
        "--exit-when-caught-up", metavar="", help="Leave when every record of the stream is learned."
    ),
]
StartPosition = Annotated[
    str,
    typer.Option(
        "--start",
        metavar="POSITION",
        help="Where to begin without a version: earliest, latest, ts=TIME, last=1h, offset={...}; "
        "checkpoint goes on where the newest one stands. With a version, others need --jump.",
    ),
]
RestartFrom = Annotated[
    str | None,
    typer.Option(
        "--restart-from",
        metavar="VERSION",
        help="Branch from this version (a number or a name), once: a restart goes on with the branch; "
        "see --again.",
    ),
]
AcceptGap = Annotated[
    bool,
    typer.Option("--accept-gap", metavar="", help="Go on although the log dropped records not yet learned."),
]
Jump = Annotated[
    bool,
    typer.Option(
        "--jump", metavar="", help="Leave the position of the version for --start: repeats or skips events."
    ),
]
AcceptLog = Annotated[
    bool,
    typer.Option(
        "--accept-log",
        metavar="",
        help="Go on, from --start, with a log that was recreated, lost records or is another one.",
    ),
]
Again = Annotated[
    bool,
    typer.Option(
        "--again", metavar="", help="Make the branch, or the change of the log, although it was made before."
    ),
]
