"""Whether a role that ended is to be started again: one pure decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from daemon.exits import EX_CANTCREAT, EX_CONFIG, EX_DATAERR, EX_OK, EX_SOFTWARE, EX_USAGE

FATAL = frozenset({EX_USAGE, EX_DATAERR, EX_CONFIG})
"""Exit codes that another start cannot cure: wrong usage, data or configuration."""

LEAVES = frozenset({EX_CANTCREAT})
"""Exit codes of a role that must not or cannot write: another learner has its place, or there is no room."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """At most `max_failures` within `window_s`; the wait doubles from `first_delay_s` up to `max_delay_s`."""

    max_failures: int = 5
    window_s: float = 300.0
    first_delay_s: float = 0.5
    max_delay_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Finished:
    """The role ended as it should."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Start it again after `delay_s`."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class Leave:
    """Do not start it again, and let the others go on: answers need nobody who writes. `code`: of the end."""

    code: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Stop everything and exit with `code`; `reason` is for the log."""

    code: int
    reason: str


Action = Finished | Restart | Leave | GiveUp


def decide(returncode: int, failures: Sequence[float], now: float, policy: RestartPolicy) -> Action:
    """What to do about a role that ended.

    Args:
        returncode: as of subprocess: the exit code, or minus the signal that killed it.
        failures: monotonic times of its earlier failures, ascending, this one not among them.
        now: monotonic time of this failure.
        policy: the bounds.
    """
    if returncode == EX_OK:
        return Finished()
    if returncode in LEAVES:
        return Leave(returncode)
    if returncode in FATAL:
        return GiveUp(returncode, "another start would end the same way")
    recent = sum(1 for moment in failures if now - moment <= policy.window_s)
    if recent + 1 > policy.max_failures:
        code = returncode if returncode > 0 else EX_SOFTWARE
        return GiveUp(code, f"{recent + 1} failures within {policy.window_s:.0f} s")
    return Restart(min(policy.first_delay_s * 2.0**recent, policy.max_delay_s))
