"""When a run that is to leave once caught up leaves: all is done, or it waits in vain for others."""

from __future__ import annotations

import select
import sys
from collections.abc import Callable, Mapping

import structlog

from daemon.exits import EX_TEMPFAIL, UserError

TELL_SECONDS = 2.0
WAIT_LIMIT_SECONDS = 30.0
START_LEARN = "is learn running? run `tripletd learn` first, or both with `tripletd up`"

log = structlog.get_logger("tripletd.validate")


def short_of_end(
    number: int, positions: Mapping[int, int], bounds: Mapping[int, tuple[int, int]]
) -> str | None:
    """Where the version stops before the end of the training topic; None when it stands at the end. Pure."""
    for partition, (_, end) in sorted(bounds.items()):
        at = positions.get(partition, 0)
        if at < end:
            where = f" in partition {partition}" if len(bounds) > 1 else ""
            return f"version {number} stops at offset {at} of {end}{where}"
    return None


def learner_is_running() -> bool:
    """Whether the learner started beside this validator has not finished: its starter holds stdin open."""
    try:
        return not select.select([sys.stdin], [], [], 0.0)[0]
    except (OSError, ValueError, TypeError):  # no stdin at all
        return False


class WaitLimit:
    """Counts the time in which nothing moved, while no learner is known to be at work.

    clock: monotonic, in seconds. learning: whether a learner is known to be at work.
    """

    def __init__(self, clock: Callable[[], float], learning: Callable[[], bool]) -> None:
        self._clock = clock
        self._learning = learning
        self._state: object = None
        self._since = clock()
        self._told = False

    def wait_for(self, missing: str, state: object, remedy: str = START_LEARN) -> None:
        """Nothing is left to do but `missing`, at this `state` of versions and holdout.

        Logs it after TELL_SECONDS. Raises UserError (75) when the state has not changed for PATIENCE_SECONDS.
        """
        if state != self._state:
            self._state, self._since, self._told = state, self._clock(), False
        waited = self._clock() - self._since
        if waited >= TELL_SECONDS and not self._told:
            self._told = True
            log.info("waiting", reason=missing)
        if self._learning():
            self._since = max(self._since, self._clock() - TELL_SECONDS)
        elif waited >= WAIT_LIMIT_SECONDS:
            raise UserError(
                f"{missing}; nothing new came within {WAIT_LIMIT_SECONDS:.0f} s", remedy, EX_TEMPFAIL
            )
