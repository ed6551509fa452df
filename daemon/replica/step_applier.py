"""Following one learner behind a version: its step log is read, and its steps applied to the idle buffer.

The log is joined at the version's cut and left when lost; one flip shows all that came.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import structlog
from numpy.typing import NDArray

from checkpoints.manifest import Manifest
from daemon.catalogs import as_block
from daemon.replica.buffer_writer import DoubleBufferWriter
from daemon.replica.decide import Apply, Lost, Relabel, SegmentMeaning, WriterLine
from daemon.replica.settings import OpenStepLog
from daemon.replica.shard_lines import ShardLines
from daemon.replica.view import ModelId
from daemon.versions.contents import records_of, watermark_of, written_ms
from daemon.versions.shards import MergeRecord
from learners.block import Block, TripletBatch
from learners.errors import LearnerError
from learners.steps import StepBatch, Steps, TripletSteps
from streams.errors import LogMismatch, OffsetAhead, OffsetExpired, PartitionsAdded, StreamError
from streams.source import RecordBatch, Source
from streams.steps.codec import Joiner
from streams.steps.segment import BadSegment, RankOneSteps, Taken

PARTITION = 0
POLL_RECORDS = 64
BACK_MS = 10_000
"""A cut is published before its version is durable; clocks of two machines may differ by seconds."""
LONGEST_QUIET_MS = 600_000
"""Of a shard that has written nothing for longer, steps are followed from its next version on."""
REOPEN_S = 1.0
CATCH_UP_S = 1.0
"""At most before a version answers whose steps were not all taken yet: nothing newer is shown meanwhile."""

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
        self._writer_line, self._shard_lines = WriterLine(), ShardLines()
        self.line: WriterLine | ShardLines = self._writer_line
        """Interprets the segments; it also gets the replica's digests and failures."""
        self._joiner = Joiner()
        self._manifest: Manifest | None = None
        self._begun: StartPlace = "earliest"
        self._place: StartPlace | None = "earliest"
        self._logged_kind = ""

    @property
    def promising(self) -> bool:
        """Whether the log can be read and may bring what is newer than the version, without another load."""
        return self._source is not None and self.line.relabels and not self.line.lost

    def begin(self, manifest: Manifest) -> None:
        """Continue from a version that was just loaded."""
        self._manifest = manifest
        records, merged = records_of(manifest), MergeRecord.in_version(manifest)
        if merged is None:
            self.line = self._writer_line
            found = self._writer_line.begin(manifest.number, records, manifest.writer)
        else:
            self.line = self._shard_lines
            found = self._shard_lines.begin(manifest.number, records, merged)
        self._go_to("time" if found is None else found)

    @property
    def place(self) -> int | None:
        """The offset behind what was read last; None where it is still looked for."""
        return self._place if isinstance(self._place, int) else None

    def poll(self, timeout_s: float, now: float) -> Iterator[SegmentMeaning]:
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
                yield from self._meanings(batch)

    def close(self) -> None:
        """Let go of the log."""
        if self._source is not None:
            with suppress(StreamError):
                self._source.close()
            self._source = None

    def _meanings(self, batch: RecordBatch) -> Iterator[SegmentMeaning]:
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
        if self._begun != "time" or self._manifest is None or self.line is not self._writer_line:
            return False
        version = self._manifest.number
        self._writer_line.begin(version, records_of(self._manifest), self._manifest.writer)
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
            created = begun_ms(self._manifest)
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
        """Log a fault once, until one of another kind occurs."""
        kind = type(error).__name__
        if kind != self._logged_kind:
            self._logged_kind = kind
            log.warning("the step log cannot be read on", alias=self._alias, why=str(error))


def begun_ms(manifest: Manifest) -> int | None:
    """When what a version holds was captured, ms since the epoch, as far back as steps behind it may lie: of
    a merged one that is when the shards wrote their versions. None where it does not say."""
    written, merged = written_ms(manifest), MergeRecord.in_version(manifest)
    if written is None or merged is None:
        return written
    parts = [part.written for part in merged.parts if written - part.written < LONGEST_QUIET_MS]
    return min([written, *parts])


OnFlip = Callable[[ModelId, str, NDArray[np.int64]], None]
"""Called after a flip with the model, what changed, and the event times that are new in it."""

NO_TIMES: NDArray[np.int64] = np.zeros(0, np.int64)


@dataclass(slots=True)
class _Pending:
    """Steps that the idle side has applied and readers have not seen. whole: it ends between records and may
    be shown."""

    times: list[NDArray[np.int64]]
    taken: bool = False
    whole: bool = True
    relabelled: bool = False


class StepApplier:
    """Keeps the served model up with the step log. Used by the one thread that owns the writer."""

    def __init__(
        self,
        writer: DoubleBufferWriter,
        listener: StepLogReader,
        on_flip: OnFlip,
        on_steps: Callable[[Block], None],
        manifest_of: Callable[[int], Manifest | None] = lambda number: None,
    ) -> None:
        """manifest_of: of a version that the log names, None where it cannot be read."""
        self._line, self._manifest_of = "", manifest_of
        self._writer, self.listener, self._on_flip, self._on_steps = writer, listener, on_flip, on_steps
        self._version = self._base_records = self._total = 0
        self._watermark: int | None = None
        self._shown_ms = 0  # newest event time of any state that was shown
        self._pending = _Pending([])

    @property
    def model(self) -> ModelId:
        """The state on the idle side once all is taken."""
        behind = self._total - self._base_records
        return ModelId(self._version, behind, self._watermark, self._total, self._line)

    def begin(self, manifest: Manifest) -> None:
        """Continue from a version that has just begun to answer."""
        self._stand(manifest)
        self._mark_shown()

    def catch_up(self, manifest: Manifest) -> bool:
        """Continue from a version that lies on the idle side and does not answer yet: take what was shown
        before and is not in it, so that no answer loses that. What it is then is `model`, and once it answers
        `shown` wants to be called.

        False where steps cannot be taken on from there: the idle side is spoilt then. After CATCH_UP_S the
        version answers with what was taken by then.
        """
        before, until = self.listener.place, time.monotonic() + CATCH_UP_S
        self._stand(manifest)
        while before is not None and (self.listener.place is None or self.listener.place < before):
            left = until - time.monotonic()
            if left <= 0:
                break
            if self._take_what_comes(left, time.monotonic()) is not None:
                self._discard()
                return False
        if not self._pending.whole:
            self._discard()
            return False
        return True

    def shown(self) -> NDArray[np.int64]:
        """What was taken by `catch_up` answers: the event times that are new in it."""
        times = np.concatenate([NO_TIMES, *self._pending.times])
        self._pending = _Pending([])
        self._mark_shown()
        return times

    def _stand(self, manifest: Manifest) -> None:
        self._version, self._total, self._line = manifest.number, records_of(manifest), manifest.line
        self._base_records, self._watermark = self._total, watermark_of(manifest)
        self._pending = _Pending([])
        self.listener.begin(manifest)

    def turn(self, timeout_s: float, now: float) -> Lost | None:
        """Take what comes within `timeout_s` and show it by one flip. The writer must be settled.

        Lost when the log cannot be followed on from here: what was taken whole before is shown.
        """
        lost = self._take_what_comes(timeout_s, now)
        if lost is not None and not self._pending.whole:
            self._discard()
        self._show()
        return lost

    def _take_what_comes(self, timeout_s: float, now: float) -> Lost | None:
        lost: Lost | None = None
        for meaning in self.listener.poll(timeout_s, now):
            if isinstance(meaning, Apply):
                lost = self._take(meaning)
            elif isinstance(meaning, Relabel):
                self._version, self._base_records = meaning.number, meaning.records
                if (manifest := self._manifest_of(meaning.number)) is not None:
                    self._line = manifest.line
                self._pending.relabelled = True
            elif isinstance(meaning, Lost):
                lost = meaning
            if lost is not None:
                break
        return lost

    def abandon(self) -> Lost:
        """Something failed midway: nothing taken is shown, and the log is left until a version is loaded."""
        self._discard()
        return self.listener.line.lose("error")

    def _take(self, given: Apply) -> Lost | None:
        steps = given.steps
        try:
            if len(steps) or steps.project:
                self._writer.take(learner_steps(steps))
        except (LearnerError, ValueError, np.linalg.LinAlgError):
            self._discard()
            return self.listener.line.lose("steps")
        self._on_steps(as_block(steps.query))
        pending = self._pending
        pending.taken = True
        pending.times.append(self._new_times(given))
        pending.whole = given.whole
        self._total = given.records
        of_one = isinstance(self.listener.line, WriterLine)
        marks = steps.watermark, None if of_one else self._watermark
        self._watermark = max((mark for mark in marks if mark is not None), default=None)
        if given.compares:
            self.listener.line.at_cut(self._writer.digest())
        return None

    def _show(self) -> None:
        pending = self._pending
        if not pending.whole:
            return
        self._pending = _Pending([])
        if pending.taken:
            self._writer.flip_steps(self.model)
            self._mark_shown()
            self._on_flip(self.model, "steps", np.concatenate([NO_TIMES, *pending.times]))
        if pending.relabelled:
            self._writer.relabel(self.model)
            self._on_flip(self.model, "relabel", NO_TIMES)

    def _new_times(self, given: Apply) -> NDArray[np.int64]:
        """Its event times but for those of events that were shown before: after a fall back the log is read
        again from a version on, and a learner that started over learns the same events again, or others
        that are newer.
        """
        times, records = given.steps.timestamps, given.steps.last - given.steps.first
        if not given.again:
            return times
        shown = times <= self._shown_ms
        if len(times) == records:  # an event each: those behind what was shown are new, however old
            shown[given.again :] = False
        return times[~shown]

    def _mark_shown(self) -> None:
        self._shown_ms = max(self._shown_ms, self._watermark or 0)
        self.listener.line.mark_shown()

    def _discard(self) -> None:
        """What was taken last is part of a record, or does not fit: nobody sees it."""
        self._writer.spoil()
        self._pending = _Pending([])


def learner_steps(body: Taken) -> Steps:
    """What a segment tells, as a learner takes it. Raises BlockError for rows that do not fit each other."""
    if isinstance(body, RankOneSteps):
        return StepBatch(body.tau, as_block(body.query), as_block(body.error), body.project)
    roles = (as_block(one) for one in (body.query, body.clicked, body.skipped))
    return TripletSteps(TripletBatch(*roles, keys=body.keys), body.weights, body.numbers)
