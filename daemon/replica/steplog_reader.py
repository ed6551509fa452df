"""Reading the step log of one learner behind a version: joined at the version's cut, left when lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Literal, TypeAlias

import structlog

from checkpoints.manifest import Manifest
from daemon.replica.decide import Lost, Meaning, WriterLine
from daemon.replica.settings import OpenStepLog
from daemon.versions.contents import records_of, written_ms
from streams.errors import LogMismatch, OffsetAhead, OffsetExpired, PartitionsAdded, StreamError
from streams.source import RecordBatch, Source
from streams.steps.codec import Joiner
from streams.steps.segment import BadSegment

PARTITION = 0
POLL_RECORDS = 64
BACK_MS = 10_000
"""A cut is published before its version is durable; clocks of two machines may differ by seconds."""
REOPEN_S = 1.0

StartPlace: TypeAlias = int | Literal["time", "earliest"]
"""Where to read from: an offset, a little before the version's time, or all there is."""

log = structlog.get_logger("tripletd.replica")


class StepLogReader:
    """One reader of the step log, used by one thread.

    Call `begin` for every version that is loaded, and `poll` in between. `now` arguments are seconds of a
    clock that only goes forward.
    """

    def __init__(self, alias: str, opened: OpenStepLog) -> None:
        self._alias, self._opened = alias, opened
        self._source: Source | None = None
        self._reopen_at = 0.0
        self.line = WriterLine()
        """What the segments heard mean; it hears of the replica's digests and failures, too."""
        self._joiner = Joiner()
        self._manifest: Manifest | None = None
        self._begun: StartPlace = "earliest"
        self._place: StartPlace | None = "earliest"
        self._told = ""

    @property
    def promising(self) -> bool:
        """Whether the log can be read and may bring what is newer than the version, without another load."""
        return self._source is not None and not self.line.lost

    def begin(self, manifest: Manifest) -> None:
        """Go on from a version that was just loaded."""
        self._manifest = manifest
        found = self.line.begin(manifest.number, records_of(manifest), manifest.writer)
        self._go_to("time" if found is None else found)

    def poll(self, timeout_s: float, now: float) -> Iterator[Meaning]:
        """What came within `timeout_s`. The consumer acts on each meaning before it takes the next."""
        try:
            batch = self._read(timeout_s, now)
        except PartitionsAdded as error:  # steps stay in the one that is read
            self._reopen(now, error)
        except (OffsetExpired, OffsetAhead, LogMismatch) as error:
            self._reopen(now, error)
            self._go_to("earliest")
            yield self.line.lose("log")
        except StreamError as error:
            self._reopen(now, error)
        else:
            if batch is not None:
                yield from self._heard(batch)

    def close(self) -> None:
        """Let go of the log."""
        if self._source is not None:
            with suppress(StreamError):
                self._source.close()
            self._source = None

    def _heard(self, batch: RecordBatch) -> Iterator[Meaning]:
        for offset, value in zip(batch.offsets, batch.values, strict=True):
            try:
                segment = self._joiner.feed(value)
            except BadSegment as error:
                self._say(error)  # if it was a segment of the learner's, the next one's chain tells
                continue
            finally:
                self._place = offset + 1
            if segment is None:
                continue
            looking = not self.line.joined
            meaning = self.line.hear(segment, offset + 1)
            if looking and isinstance(meaning, Lost) and self._look_again():
                return
            if meaning is not None:
                yield meaning
            if self._place != offset + 1:
                return  # the consumer has started over elsewhere

    def _look_again(self) -> bool:
        """Where the cut was looked for from the version's time on, look through all there is, once."""
        if self._begun != "time" or self._manifest is None:
            return False
        self.line.begin(self._manifest.number, records_of(self._manifest), self._manifest.writer)
        self._go_to("earliest")
        return True

    def _read(self, timeout_s: float, now: float) -> RecordBatch | None:
        if self._source is None:
            if now < self._reopen_at:
                return None
            self._source, self._assigned = self._opened(), False
        if not self._assigned:
            self._source.assign({PARTITION: self._offset(self._source)})
            self._assigned = True
        return self._source.poll(POLL_RECORDS, timeout_s)

    def _offset(self, source: Source) -> int:
        if isinstance(self._place, int):
            return self._place
        if self._place == "time" and self._manifest is not None:
            created = written_ms(self._manifest)
            if created is not None:
                return source.offsets_at(created - BACK_MS)[PARTITION]
        return source.bounds()[PARTITION][0]

    def _go_to(self, place: StartPlace) -> None:
        self._begun = self._place = place
        self._assigned = False
        self._joiner = Joiner()

    def _reopen(self, now: float, error: StreamError) -> None:
        self.close()
        self._reopen_at = now + REOPEN_S
        self._say(error)

    def _say(self, error: StreamError) -> None:
        """Tell of trouble once, until another kind comes."""
        kind = type(error).__name__
        if kind != self._told:
            self._told = kind
            log.warning("the step log cannot be read on", alias=self._alias, why=str(error))
