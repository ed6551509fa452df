"""Recompute a version from an older one: the recorded runs, in order, through the same kernel."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from checkpoints.encoding import state_hash
from checkpoints.manifest import ScheduleEntry
from checkpoints.retention import history
from checkpoints.versions import VersionStore
from daemon.exits import EX_DATAERR, UserError
from daemon.learn.algorithms import restored
from daemon.learn.assemble import Assembler
from daemon.learn.describe import decoder_of, learner_config_of
from daemon.versions.arrays import learner_arrays, map_arrays, pack
from learners.maps import FittedSpaceMap
from streams.catalog import Catalog
from streams.source import RecordBatch, Source

POLL_RECORDS = 4096
POLL_SECONDS = 10.0

Run = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The recomputed state's hash, the recorded one, and how many records it took."""

    hash: str
    recorded: str
    records: int

    @property
    def equal(self) -> bool:
        """Whether replaying gave the version's own bits."""
        return self.hash == self.recorded


def replay(
    versions: VersionStore, source: Source, catalog: Catalog | None, from_version: int, to_version: int
) -> ReplayResult:
    """Apply to `from_version` every run recorded on the way to `to_version`, and compare the state's hash.

    Settings, maps and space are those the versions recorded. Raises UserError when `to_version` does not
    descend from `from_version`, its records are no longer in the log, or the catalog is another one.
    """
    target = versions.manifest(to_version)
    digest = None if catalog is None else catalog.digest
    if target.catalog_digest != digest:
        raise UserError(
            f"version {to_version} was learned with another catalog",
            "give the catalog it names, or none if it names none",
            EX_DATAERR,
        )
    schedule = schedule_between(versions, from_version, to_version)
    start = versions.load(from_version)
    fitted = FittedSpaceMap.load(start.manifest.map["spec"], map_arrays(start.arrays))
    learner = restored(learner_config_of(target), learner_arrays(start.arrays))
    decoder, assembler = decoder_of(target, catalog), Assembler(fitted, catalog)
    records = 0
    for run in runs_of(schedule):
        for batch in read_run(source, run):
            decoded = decoder.decode(batch)
            triplets = assembler.triplets(decoded)
            if triplets is not None:
                learner.learn_many(triplets, decoded.weights)
            records += len(batch)
    return ReplayResult(state_hash(pack(learner.state(), fitted.arrays())), target.state_hash, records)


def schedule_between(versions: VersionStore, from_version: int, to_version: int) -> list[ScheduleEntry]:
    """The schedules of all versions after `from_version` up to `to_version`, along their parents.

    Versions that were pruned meanwhile are found in the history their pruning left.
    """
    pruned = {record["number"]: record for record in history(versions.store)}
    kept = set(versions.versions())
    parts: list[Sequence[ScheduleEntry]] = []
    number: int | None = to_version
    while number is not None and number > from_version:
        if number in kept:
            manifest = versions.manifest(number)
            schedule, parent = manifest.schedule, manifest.parent
        else:
            schedule, parent = _recorded(pruned, number)
        parts.append(schedule)
        number = parent
    if number != from_version:
        raise UserError(
            f"version {to_version} does not descend from version {from_version}",
            f"its line leads to {'none' if number is None else number}; replay from a version on it",
            EX_DATAERR,
        )
    return [entry for part in reversed(parts) for entry in part]


def _recorded(
    pruned: Mapping[object, Mapping[str, Any]], number: int
) -> tuple[tuple[ScheduleEntry, ...], int | None]:
    record = pruned.get(number, {})
    if "schedule" not in record:
        raise UserError(
            f"the schedule of version {number} is lost: neither it nor its line of history can be read",
            "replay from a later version",
            EX_DATAERR,
        )
    entries = (entry if isinstance(entry, dict) else tuple(entry) for entry in record["schedule"])
    return tuple(entries), record["parent"]


def runs_of(schedule: Iterable[ScheduleEntry]) -> Iterator[Run]:
    """The runs alone. Control entries (gap, seek, branch) change positions, never W."""
    for entry in schedule:
        if not isinstance(entry, dict):
            yield entry


def read_run(source: Source, run: Run) -> Iterator[RecordBatch]:
    """The records of one run in order, none beyond it. Raises UserError when the log ends before it."""
    partition, offset, stop = run
    source.assign({partition: offset})
    while offset < stop:
        batch = source.poll(min(POLL_RECORDS, stop - offset), POLL_SECONDS)
        if batch is None:
            raise UserError(
                f"partition {partition} ends before offset {stop}",
                "this is not the log the version was learned from, or it lost its end",
                EX_DATAERR,
            )
        offset = batch.offsets[-1] + 1
        yield batch if offset <= stop else before(batch, stop)


def before(batch: RecordBatch, stop: int) -> RecordBatch:
    """The records of a batch below an offset (a log may have gaps in its offsets)."""
    count = bisect_left(batch.offsets, stop)
    fields = ("offsets", "timestamps", "values", "keys", "headers")
    return replace(batch, **{name: getattr(batch, name)[:count] for name in fields})
