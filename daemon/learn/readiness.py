"""Why the learner is not ready, as far as the stream is concerned: it does not answer, or nothing moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from daemon.learn.threads.errands import Errands
from daemon.learn.threads.reader import Reader

STALL_SECONDS = 10.0
"""How long records may be seen to wait while the loop has nothing to do, or a question go unanswered."""


class Readiness:
    """Told of every turn of the loop. `stands`: next offset per partition, see `parts.stands`."""

    def __init__(
        self,
        reader: Reader,
        errands: Errands,
        stands: Callable[[], Mapping[int, int]],
        clock: Callable[[], float],
    ) -> None:
        self._reader = reader
        self._errands = errands
        self._stands = stands
        self._clock = clock
        self._began = clock()
        self.idle_since: float | None = None  # since when the loop has had nothing to learn
        self._waiting_since: float | None = None  # since when, meanwhile, records have been seen to wait

    def turned(self, busy: bool) -> None:
        """The loop went round, with or without something to learn."""
        if busy:
            self.idle_since = self._waiting_since = None
        elif self.idle_since is None:
            self.idle_since = self._clock()

    def trouble(self) -> str | None:
        """Why not ready, None when ready; what stands before the colon stays while the trouble lasts.

        To be asked again and again: how long records wait is counted from the first time they are seen.
        """
        away = self._away()
        waiting = 0 if away or self.idle_since is None else self._waiting()
        if not waiting:
            self._waiting_since = None
            return away
        now = self._clock()
        if self._waiting_since is None:
            self._waiting_since = now
        if now - self._waiting_since <= STALL_SECONDS:
            return None
        return f"stalled: {waiting:,} records wait and none came within {STALL_SECONDS:.0f} s"

    def _away(self) -> str | None:
        if self._reader.trouble is not None:
            return f"the stream is unavailable: {self._reader.trouble}"
        if self._errands.trouble is not None:
            return f"the stream does not answer: {self._errands.trouble}"
        seen = self._errands.seen
        asked = self._began if seen is None else seen.at
        if self._clock() - asked > STALL_SECONDS:
            return f"the stream does not answer: not a word for more than {STALL_SECONDS:.0f} s"
        return None

    def _waiting(self) -> int:
        """Records of the last answer that are not learned."""
        seen, stands = self._errands.seen, self._stands()
        if seen is None:
            return 0
        return sum(max(0, end - stands[p]) for p, (_, end) in seen.bounds.items() if p in stands)
