"""What `up` does about a role that ended, and how its roles stand: pure, from exit codes and times.

Answers come first. A role is started again for as long as another start may succeed. One whose start would
end the same way stays down alone until somebody asks for it, and the others keep running.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from daemon import exits

REFUSED = frozenset({exits.EX_USAGE, exits.EX_DATAERR, exits.EX_CANTCREAT, exits.EX_CONFIG})
"""Exit codes that another start cannot cure: wrong usage, data or configuration, or not allowed to write.

73 is among them: two learners that are both started again would take each other's place for ever.
"""

MOST_REASON = 400
"""Characters of a reason; it is a label of a metric, too."""
_KEPT = 16
"""Failures that are remembered: more than it takes to reach the longest wait."""

_MEANING = {
    exits.EX_USAGE: "wrong usage",
    exits.EX_DATAERR: "bad data",
    exits.EX_UNAVAILABLE: "something that it needs is not available",
    exits.EX_SOFTWARE: "a bug, or a client that hung",
    exits.EX_CANTCREAT: "it cannot write, or another learner has its place",
    exits.EX_TEMPFAIL: "it could not continue for now",
    exits.EX_CONFIG: "wrong configuration",
}


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """The wait doubles from `first_delay_s` to `max_delay_s` with each failure within `window_s`.

    `most_failures`: after so many within the window the role stays down; None: it is tried again for ever.
    `settled_s`: how long a role that failed has to run before nothing is wrong with it.
    """

    first_delay_s: float = 0.5
    max_delay_s: float = 30.0
    window_s: float = 300.0
    most_failures: int | None = None
    settled_s: float = 10.0


WITH_AN_END = RestartPolicy(most_failures=5)
"""For a run that is to end by itself: nobody is answered, so it says soon what keeps it."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The role ended as it should."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Start it again after `delay_s`."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class StayDown:
    """Do not start it again until somebody asks; the others keep running. `code`: its exit code."""

    code: int


Action = Finished | Restart | StayDown


def decide(returncode: int, failures: Sequence[float], now: float, policy: RestartPolicy) -> Action:
    """What to do about a role that ended.

    Args:
        returncode: as of subprocess: the exit code, or minus the signal that killed it.
        failures: monotonic times of its earlier failures, ascending, this one not among them.
        now: monotonic time of this failure.
        policy: how long to wait.
    """
    if returncode == exits.EX_OK:
        return Finished()
    if returncode in REFUSED:
        return StayDown(returncode)
    recent = sum(1 for moment in failures if now - moment <= policy.window_s)
    if policy.most_failures is not None and recent >= policy.most_failures:
        return StayDown(returncode if returncode > 0 else exits.EX_SOFTWARE)
    return Restart(min(policy.first_delay_s * 2.0**recent, policy.max_delay_s))


def with_failure(failures: Sequence[float], now: float) -> list[float]:
    """The failures that are worth remembering, `now` the newest."""
    return [*failures[1 - _KEPT :], now]


State = Literal["starting", "running", "waiting", "down", "finished"]


@dataclass(frozen=True, slots=True)
class RoleReport:
    """How a role stands.

    state: starting (for the first time, or again and not for long), running, waiting (to be started again),
    down (it is not, until somebody asks), finished. exit: return code of its last failure, None without any,
    or once it runs again. reason: one line why it failed, "" as with `exit`. failures: how often it has
    failed since `up` began.
    """

    name: str
    state: State = "starting"
    exit: int | None = None
    reason: str = ""
    failures: int = 0

    def trouble(self) -> str | None:
        """What is wrong with it, in words; None when it runs or has finished."""
        if self.state in ("running", "finished"):
            return None
        if self.exit is None:
            return f"{self.name} is being started"
        stands = "is down" if self.state == "down" else "failed and is started again"
        return f"{self.name} {stands}: {self.reason} ({how_it_ended(self.exit)})"


def how_it_ended(returncode: int | None) -> str:
    """A return code in words: "exit 65", "SIGKILL"."""
    if returncode is None or returncode >= 0:
        return f"exit {returncode}"
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"


def reason_of(returncode: int, last_words: str) -> str:
    """One line why a role ended: its own last words, else what its return code means."""
    reason = "; ".join(line.strip() for line in last_words.splitlines() if line.strip())
    if not reason:
        reason = _MEANING.get(returncode, "it was killed" if returncode < 0 else "its log says why")
    return reason if len(reason) <= MOST_REASON else reason[: MOST_REASON - 1] + "…"


def not_ready(reports: Sequence[RoleReport], pid: int) -> str | None:
    """Why the supervisor with process id `pid` is not ready, and what to do; None when all roles run."""
    found = [text for report in reports if (text := report.trouble()) is not None]
    if not found:
        return None
    down = any(report.state == "down" for report in reports)
    return "; ".join(found) + (f"; {remedy(pid)}" if down else "")


def remedy(pid: int) -> str:
    """What to do about a role that stays down under the supervisor with process id `pid`."""
    return f"fix what it says, then start it again with `kill -HUP {pid}`"
