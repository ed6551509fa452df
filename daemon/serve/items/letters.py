"""Dead letters of items: refused records, written beside the following and never in its way."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import structlog

from daemon.dead_letters import fitted
from streams.errors import StreamError
from streams.poison import DeadLetter, dead_letter_record
from streams.source import Sink

MOST_WAITING = 1000
"""Letters kept while their topic cannot be written; of more, only the count."""
AT_ONCE = 100
RETRY_SECONDS = 2.0

log = structlog.get_logger("tripletd.serve")


class ItemLetters:
    """Counts refused records by reason, and writes those that no earlier reader has written.

    Reading begins at the topic's start each time, so what lies before the position noted by an earlier
    reader has its letter already.
    """

    def __init__(self, opening: Callable[[], Sink]) -> None:
        self._opening = opening
        self._sink: Sink | None = None
        self._waiting: list[DeadLetter] = []
        self._next_try = 0.0
        self.counts: Counter[str] = Counter()
        """Refused records since the start, by reason."""
        self._left_out = 0

    @property
    def unwritten(self) -> int:
        """Letters that their topic has not taken: those that wait for it, and those that found no room; a
        later start writes the latter, since how far was read is not noted as long as there are any.
        """
        return len(self._waiting) + self._left_out

    def add(self, letters: Iterable[DeadLetter], noted: Mapping[int, int]) -> None:
        """Count them, and keep for writing what is not below the noted positions."""
        for letter in letters:
            self.counts[letter.reason] += 1
            if letter.offset < noted.get(letter.partition, 0):
                continue
            if len(self._waiting) < MOST_WAITING:
                self._waiting.append(letter)
            else:
                self._left_out += 1

    def flush(self) -> None:
        """Write what is waiting; where that fails it stays, and a later call tries again."""
        if not self._waiting or time.monotonic() < self._next_try:
            return
        try:
            if self._sink is None:
                self._sink = self._opening()
            while self._waiting:
                batch = self._waiting[:AT_ONCE]
                most = self._sink.max_record_bytes
                self._sink.send([dead_letter_record(fitted(letter, most)) for letter in batch])
                del self._waiting[: len(batch)]
        except StreamError as error:
            log.warning("dead letters of items cannot be written; trying again", problem=str(error))
            self._next_try = time.monotonic() + RETRY_SECONDS
            self.close()

    def close(self) -> None:
        """Release the sink."""
        if self._sink is not None:
            with suppress(StreamError):
                self._sink.close()
        self._sink = None
