"""`tripletd learn`."""

from __future__ import annotations

from functools import partial

from daemon.commands.common import ConfigOption, SetOption, load, start_role
from daemon.commands.learnoptions import (
    AcceptGap,
    AcceptLog,
    Again,
    ExitWhenCaughtUp,
    Jump,
    RestartFrom,
    StartPosition,
)
from daemon.exits import EX_USAGE, UserError


def learn(
    *,
    config: ConfigOption = None,
    set_: SetOption = None,
    exit_when_caught_up: ExitWhenCaughtUp = False,
    start: StartPosition = "checkpoint",
    restart_from: RestartFrom = None,
    accept_gap: AcceptGap = False,
    jump: Jump = False,
    accept_log: AcceptLog = False,
    again: Again = False,
) -> int:
    """Learn from the stream and write numbered versions."""
    if jump and start == "checkpoint":
        raise UserError(
            "--jump leaves the position of the version, but not where to",
            "name the place with --start, such as --start earliest",
            EX_USAGE,
        )
    effective = start_role("learn", config, set_)
    from checkpoints.aliases import MOST_DIGITS
    from daemon.learn.resume.options import LearnOptions
    from daemon.learn.start import run

    is_number = restart_from is not None and restart_from.isdecimal() and len(restart_from) <= MOST_DIGITS
    number = int(restart_from) if restart_from is not None and is_number else None
    options = LearnOptions(
        exit_when_caught_up,
        start,
        number,
        accept_gap,
        jump,
        accept_log,
        again,
        restart_name=restart_from if number is None else None,
    )
    return run(effective, options, partial(load, config, set_))
