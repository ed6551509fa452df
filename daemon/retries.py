"""Waiting through a stream's short absences: what failed while it was unavailable is tried again.

Written by hand, since every wait here can end early (decision 030).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from streams.errors import NothingWritten, StreamUnavailable
from streams.source import OutRecord, Sink, TopicIdentity

Result = TypeVar("Result")

RETRY_SECONDS = 0.5
"""Pause between two attempts at what a role cannot work without: its log, the holdout, dead letters."""
BACKGROUND_RETRY_SECONDS = 1.0
"""The same at what answers do not wait for: the topic of items, its dead letters, clicks."""
GIVE_UP_SECONDS = 120.0
"""Longer than a broker takes to restart; then the command ends and says how to continue."""
REMIND_SECONDS = 15.0
"""How often somebody who waits for a command is told what it waits for."""


def until_available(call: Callable[[], Result], give_up: Callable[[StreamUnavailable], bool]) -> Result:
    """What `call` returns, tried again as long as it raises StreamUnavailable.

    `give_up(error)` waits between two attempts; when it returns True, the error is raised.
    """
    while True:
        try:
            return call()
        except StreamUnavailable as error:
            if give_up(error):
                raise


class RetryingSink:
    """A sink that sends again while the stream is unavailable, for at most GIVE_UP_SECONDS.

    `sent_again`: records of sends that failed in doubt and were repeated. A broker may have written some of
    them, so as many may be in the topic twice, with the same event or impression id.

    Args:
        sink: where to write; closed by its owner.
        wait: waits for some seconds; raises to give up at once.
        clock: monotonic, in seconds.
        report: called with a line that says what is waited for, again and again while it lasts.
    """

    def __init__(
        self,
        sink: Sink,
        wait: Callable[[float], None],
        clock: Callable[[], float],
        report: Callable[[str], None],
    ) -> None:
        self.sent_again = 0
        self._sink, self._wait, self._clock, self._report = sink, wait, clock, report

    @property
    def max_record_bytes(self) -> int:
        """The most bytes of one record."""
        return self._sink.max_record_bytes

    def identity(self) -> TopicIdentity:
        """Which log and topic this is."""
        return self._sink.identity()

    def send(self, records: Sequence[OutRecord]) -> list[tuple[int, int]]:
        """Write all records; StreamUnavailable when that did not succeed for GIVE_UP_SECONDS."""
        began: float | None = None
        told = float("-inf")

        def give_up(error: StreamUnavailable) -> bool:
            nonlocal began, told
            now = self._clock()
            began = now if began is None else began
            if now - began >= GIVE_UP_SECONDS:
                return True
            if now - told >= REMIND_SECONDS:
                told = now
                self._report(f"{error}; trying again for {GIVE_UP_SECONDS - (now - began):.0f} s")
            self._wait(RETRY_SECONDS)
            if not isinstance(error, NothingWritten):
                self.sent_again += len(records)
            return False

        sent = until_available(lambda: self._sink.send(records), give_up)
        if began is not None:
            self._report("the stream takes records again")
        return sent

    def close(self) -> None:
        """Close the sink."""
        self._sink.close()
