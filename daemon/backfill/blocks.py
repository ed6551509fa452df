"""The records of a shard's units, in order and in blocks: lists become triplets by the code of `tripletd
feed`.

Where a block ends depends on the units and its wanted length alone. What `feed` remembers from list to list
(ids, how often a query was kept) is remembered within a block; between blocks the learner's own window of
event ids drops repetitions. So what comes after a place is the same, whether what comes before was just read
or learned by a process that is gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from checkpoints import fetch_files
from checkpoints.store import CheckpointError
from daemon.backfill.plan import Unit, UnitPlace
from daemon.config.objects import is_object_address
from daemon.exits import EX_DATAERR, EX_UNAVAILABLE, UserError
from daemon.learn.replay.rerun import Runs
from daemon.versions.storage import object_settings
from streams.feed.decide import Decider
from streams.feed.formats import read_sources
from streams.feed.items import FeedError, Placed
from streams.feed.options import ReaderOptions
from streams.open import open_source
from streams.source import Address, RecordBatch, parse_address

RANGE_RECORDS = 4_096
"""Records of a log that are read at once."""


@dataclass(slots=True)
class RecordBlock:
    """Records that follow each other. `held`: encoded lists of the holdout; `read`, `dropped`: lists, and
    what became of those that taught nothing; `after`: where the next block begins; None at the end."""

    batches: list[RecordBatch] = field(default_factory=list)
    held: list[bytes] = field(default_factory=list)
    read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    after: UnitPlace | None = None

    @property
    def records(self) -> int:
        """How many records."""
        return sum(map(len, self.batches))


Afresh = Callable[[int], Decider]
"""Who decides about the lists of a block, given how many events there were before it."""


class BlockReader:
    """Reads a shard's units from a place on; `at`: where the next block begins. reach: as of `units_of`."""

    def __init__(
        self,
        units: Sequence[Unit],
        at: UnitPlace,
        afresh: Afresh,
        options: ReaderOptions,
        format: str | None,
        *,
        reach: Callable[[str], Address] = parse_address,
    ) -> None:
        self._units, self._afresh, self._options, self._format = units, afresh, options, format
        self._reach = reach
        self.at, self._local = at, LocalFiles()
        self._items: Iterator[Placed] | None = None
        self._batches: Iterator[RecordBatch] | None = None

    def next(self, least: int, fed: int) -> RecordBlock:
        """The next block, of `least` records or a little more (less at the end); without records where all is
        read. fed: events before it. Raises UserError for what cannot be read."""
        block, decider, values = RecordBlock(), self._afresh(fed), list[bytes | None]()
        while self.at.unit < len(self._units) and len(values) + block.records < least:
            unit = self._units[self.at.unit]
            if (
                self._from_files(unit, decider, block, values, least)
                if unit.paths
                else self._from_log(unit, block, least)
            ):
                self.at = UnitPlace(self.at.unit + 1)
                self._items = self._batches = None
        if values:
            block.batches.append(_batch(values))
        block.after = self.at if self.at.unit < len(self._units) else None
        return block

    def close(self) -> None:
        """Leave what is open."""
        self._items = self._batches = None
        self._local.close()

    def _from_files(
        self, unit: Unit, decider: Decider, block: RecordBlock, values: list[bytes | None], least: int
    ) -> bool:
        """Take lists until there are enough records; whether the unit is at its end."""
        count = 0
        try:
            if self._items is None:
                items = read_sources(self._local.of(unit.paths), self._options, self._format)
                self._items = islice(items, self.at.items, None)
            for _, item in self._items:
                count += 1
                decision = decider.decide(item)
                values.extend(record.value for record in decision.training)
                if decision.fate == "holdout":
                    block.held.extend(record.value for record in decision.holdout if record.value is not None)
                elif decision.reason and not decision.training:
                    block.dropped[decision.reason] += 1
                block.read += decision.fate != "ignored"
                if len(values) + block.records >= least:
                    return False
            return True
        except FeedError as error:
            raise UserError(error.message, error.remedy, EX_DATAERR) from None
        finally:
            self.at = UnitPlace(self.at.unit, self.at.items + count)

    def _from_log(self, unit: Unit, block: RecordBlock, least: int) -> bool:
        """Take records until there are enough; whether the stretch is at its end."""
        if self._batches is None:
            address = self._reach(unit.name.rpartition("#")[0])
            self._batches = _stretch(unit, address, self.at.items)
        for batch in self._batches:
            block.batches.append(batch)
            block.read += len(batch)
            self.at = UnitPlace(self.at.unit, batch.offsets[-1] + 1 - unit.start)
            if block.records >= least:
                return False
        return True


def _stretch(unit: Unit, address: Address, passed: int) -> Iterator[RecordBatch]:
    with closing(open_source(address)) as source:
        if source.identity().topic_id != unit.digest:
            message = f"{unit.name}: the topic was made anew since the backfill began"
            remedy = "name an empty folder with checkpoints.path, and begin again"
            raise UserError(message, remedy, EX_DATAERR)
        at, runs = unit.start + passed, Runs(source)
        while at < unit.stop:
            # so many at a time, whatever the source gives: where blocks end depends on nothing else
            stop = min(unit.stop, (at // RANGE_RECORDS + 1) * RANGE_RECORDS)
            found = list(runs.read(unit.partition, at, stop))
            if found:
                yield _joined(found)
            at = stop


def _joined(batches: Sequence[RecordBatch]) -> RecordBatch:
    if len(batches) == 1:
        return batches[0]
    names = ("offsets", "timestamps", "values", "keys", "headers")
    columns: list[Any] = [[one for batch in batches for one in getattr(batch, name)] for name in names]
    return RecordBatch(batches[0].partition, *columns)


def _batch(values: list[bytes | None]) -> RecordBatch:
    """Records that were in no log: numbered, and without a time of arrival, so that their own times hold."""
    count = len(values)
    return RecordBatch(0, list(range(count)), [0] * count, values, [None] * count, [()] * count)


class LocalFiles:
    """The files of one unit at a time; those of object stores are fetched, and go with the next unit."""

    def __init__(self) -> None:
        self._folder: TemporaryDirectory[str] | None = None

    def of(self, paths: Sequence[str]) -> list[str]:
        """Where they are. Raises UserError."""
        self.close()
        if not any(map(is_object_address, paths)):
            return list(paths)
        self._folder = TemporaryDirectory(prefix="tripletd-backfill-")
        return [self._fetched(path) if is_object_address(path) else path for path in paths]

    def close(self) -> None:
        """Remove what was fetched."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _fetched(self, address: str) -> str:
        assert self._folder is not None
        try:
            return str(fetch_files(address, object_settings(address), Path(self._folder.name)))
        except CheckpointError as error:
            raise UserError(
                f"{error.place}: {error.problem}", error.remedy or "look at the store", EX_UNAVAILABLE
            ) from error
