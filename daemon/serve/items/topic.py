"""The topic of items as it is followed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import structlog

from daemon.retries import BACKGROUND_RETRY_SECONDS
from streams.errors import OffsetExpired, PartitionsAdded, StreamError, TopicMissing
from streams.partitions import end_of_transaction
from streams.source import HeldBack, RecordBatch, Source, TopicIdentity

LOOK_SECONDS = 5.0
"""Between two looks at the end of the topic."""
COMPACT_SECONDS = 60.0
"""Between two questions whether compacting is due."""

log = structlog.get_logger("tripletd.serve")


class ItemTopic:
    """Hands out every record of the topic in order, again from the beginning when the topic was re-created.

    One thread. Nothing is raised for a stream that is missing, silent or broken: `trouble` says so, and the
    next poll tries again.
    """

    def __init__(self, opening: Callable[[], Source], compacting: Callable[[], object]) -> None:
        """opening: the source. compacting: removes superseded records where the log does not by itself."""
        self._opening, self._compacting = opening, compacting
        self._source: Source | None = None
        self._identity: TopicIdentity | None = None
        self._targets: Mapping[int, int] | None = None
        self._next_try = self._next_look = self._next_compaction = 0.0
        self._logged_positions: dict[int, int] = {}
        self._open_transactions: set[tuple[int, int]] = set()
        self._logged_transactions: set[tuple[int, int]] = set()
        self._compaction = self._new_compaction()
        self.positions: dict[int, int] = {}
        """Next offset per partition."""
        self.noted: Mapping[int, int] = {}
        """Per partition, the position that an earlier reader of the topic noted."""
        self.trouble: str | None = None
        """Why nothing can be read at the moment."""
        self.behind: int | None = None
        """Records not yet read, when last looked, those behind an open transaction too; None before."""
        self.caught_up = False
        """Everything that was there when the topic was opened has been handed out, or there is no topic."""
        self.restarted = False
        """Another topic than before, read from its beginning; the caller that acts on it sets False."""

    @property
    def is_open(self) -> bool:
        """Whether there is something that a poll can wait for."""
        return self._source is not None

    def poll(self, max_records: int, timeout_s: float) -> RecordBatch | None:
        """The next records, or None after about `timeout_s`; sooner where nothing can be read."""
        try:
            source = self._opened()
            if source is None:
                return None
            batch = source.poll(max_records, timeout_s)
        except PartitionsAdded as error:
            log.info("partitions were added to the topic of items: it is opened again", said=str(error))
            self.close()
            return None
        except StreamError as error:
            self._failed(error)
            return None
        self.positions = source.reached()
        self.trouble = None
        self._look(source)
        return batch

    def again(self, batch: RecordBatch) -> None:
        """Hand out this batch, the last one, once more."""
        self.positions[batch.partition] = batch.offsets[0]
        self.close()

    def tidy(self) -> None:
        """Note how far the topic was read, for dashboards and the next start; compact it at times."""
        if self._source is None or not self.caught_up:
            return
        try:
            if self.positions != self._logged_positions:
                self._source.commit(self.positions)
                self._logged_positions = dict(self.positions)
        except StreamError as error:
            log.warning("how far items were read could not be noted; trying again", problem=str(error))
        if time.monotonic() >= self._next_compaction and not self._compaction.is_alive():
            self._next_compaction = time.monotonic() + COMPACT_SECONDS
            self._compaction = self._new_compaction()
            self._compaction.start()

    def _new_compaction(self) -> threading.Thread:
        """A thread of its own: a large topic takes seconds, and records keep coming."""
        return threading.Thread(target=self._compact, name="tripletd-compact", daemon=True)

    def _compact(self) -> None:
        try:
            self._compacting()
        except StreamError as error:
            log.warning("the topic of items could not be compacted; trying again", problem=str(error))

    def close(self) -> None:
        """Release the source."""
        if self._source is not None:
            with suppress(StreamError):
                self._source.close()
        self._source = None

    def _opened(self) -> Source | None:
        if self._source is not None or time.monotonic() < self._next_try:
            return self._source
        source = self._opening()
        try:
            identity = source.identity()
            before = self._identity
            if before not in (None, identity) and not identity.grew_from(before):
                self._from_its_beginning("the topic of items was re-created")
            self._begin(source)
        except BaseException:
            source.close()
            raise
        self._identity, self._source = identity, source
        return source

    def _begin(self, source: Source) -> None:
        """Continue where reading stopped; records that were removed from the topic before they were read are
        lost."""
        bounds = source.bounds()
        if any(position > bounds.get(p, (0, 0))[1] for p, position in self.positions.items()):
            self._from_its_beginning("the topic of items lost records that were read before")
        starts = {p: max(start, self.positions.get(p, start)) for p, (start, _) in bounds.items()}
        source.assign(starts)
        self.positions = starts
        self._targets = {p: end for p, (_, end) in bounds.items()}
        with suppress(StreamError):
            self.noted = source.committed()

    def _from_its_beginning(self, why: str) -> None:
        log.warning("all records of items are read again", why=why)
        self.restarted, self.positions, self.caught_up = True, {}, False

    def _look(self, source: Source) -> None:
        targets = self._targets
        if targets is not None and all(self.positions.get(p, 0) >= end for p, end in targets.items()):
            self.caught_up, self._targets = True, None
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_SECONDS
            with suppress(StreamError):  # what was polled is handed out all the same
                ends = {partition: end for partition, (_, end) in source.bounds().items()}
                held = source.held_back()
                ends |= {partition: one.end for partition, one in held.items()}
                self.behind = sum(max(0, end - self.positions.get(p, 0)) for p, end in ends.items())
                self._log_transactions(held)

    def _log_transactions(self, held: Mapping[int, HeldBack]) -> None:
        """Once of each transaction that holds items back and was open at the last look already."""
        now = {(partition, one.first) for partition, one in held.items()}
        for partition, first in sorted(now & self._open_transactions - self._logged_transactions):
            log.warning(
                "items wait behind an open transaction",
                partition=partition,
                offset=first,
                records=held[partition].end - first,
                remedy=end_of_transaction(self._identity.topic if self._identity else "", partition, first),
            )
        self._logged_transactions = now & (self._logged_transactions | self._open_transactions)
        self._open_transactions = now

    def _failed(self, error: StreamError) -> None:
        nothing_put = isinstance(error, TopicMissing) and self._identity is None
        self.caught_up = self.caught_up or nothing_put
        if str(error) != self.trouble:
            if nothing_put:
                log.info("no items were put yet: their topic does not exist", detail=str(error))
            else:
                log.warning("the topic of items cannot be read; trying again", problem=str(error))
        if isinstance(error, OffsetExpired):
            log.warning("records of items were removed before they were read", gap=error.gap)
        self.trouble = str(error)
        self._next_try = time.monotonic() + BACKGROUND_RETRY_SECONDS
        self.close()
