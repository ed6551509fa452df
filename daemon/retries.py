"""Writing through a stream's short absences: what could not be written is sent again until it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streams.errors import StreamUnavailable
from streams.source import OutRecord, Sink, TopicIdentity

RETRY_SECONDS = 0.5
GIVE_UP_SECONDS = 120.0
"""Longer than a broker takes to restart; then the command ends and tells how to go on."""


class RetryingSink:
    """A sink that sends again while the stream is unavailable, for at most GIVE_UP_SECONDS.

    `sent_again`: records of sends that failed and were repeated. A broker may have written some of them, so
    as many may be in the topic twice, with the same event or impression id.

    Args:
        sink: where to write; closed by whoever opened it.
        wait: waits for some seconds; raises to give up at once.
        clock: monotonic, in seconds.
        tell: is told once per absence what is waited for.
    """

    def __init__(
        self,
        sink: Sink,
        wait: Callable[[float], None],
        clock: Callable[[], float],
        tell: Callable[[str], None],
    ) -> None:
        self.sent_again = 0
        self._sink = sink
        self._wait = wait
        self._clock = clock
        self._tell = tell

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
        while True:
            try:
                return self._sink.send(records)
            except StreamUnavailable as error:
                if began is None:
                    began = self._clock()
                    self._tell(f"{error}; trying again for {GIVE_UP_SECONDS:.0f} s")
                elif self._clock() - began >= GIVE_UP_SECONDS:
                    raise
                self._wait(RETRY_SECONDS)
                self.sent_again += len(records)

    def close(self) -> None:
        """Close the sink."""
        self._sink.close()
