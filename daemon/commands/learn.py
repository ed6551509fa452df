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
    effective = start_role("learn", config, set_)
    from daemon.learn.role import run
    from daemon.learn.starting.options import LearnOptions

    options = LearnOptions(exit_when_caught_up, start, restart_from, accept_gap, jump, accept_log, again)
    return run(effective, options, partial(load, config, set_))
