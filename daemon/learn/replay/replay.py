"""Recompute a version from an older one; where the two differ, find the first event that touched that row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from checkpoints import Manifest, VersionStore
from checkpoints.encoding import state_hash
from checkpoints.manifest import ScheduleEntry
from checkpoints.store import CheckpointError
from daemon.exits import EX_DATAERR, UserError
from daemon.learn.compatible import runtime
from daemon.learn.replay.difference import (
    TOLERANCE,
    ArrayPlace,
    EventPlace,
    as_rows,
    check_kept,
    first_difference,
    other_counts,
    other_position,
    other_record,
)
from daemon.learn.replay.rerun import Lines, OnRecords, OutOfLine, Rerun, Runs
from daemon.learn.state import LearnState
from daemon.learn.step import ReadyBatch, learn, names_of
from daemon.versions.storage import Link, line
from streams.catalog import Catalog
from streams.codec import decode_event
from streams.poison import Poison
from streams.source import Source


def first_touch(
    rerun: Rerun, schedule: Iterable[ScheduleEntry], array: str, row: int, on_records: OnRecords
) -> EventPlace | None:
    """The first event of the schedule that changes the row of the named array; None when none does.

    Moves `rerun` along, one event at a time.
    """
    for entry in schedule:
        if isinstance(entry, dict):
            rerun.follow(entry, on_records)
            continue
        for ready in rerun.batches(*entry):
            touched = _in_batch(rerun.state, ready, array, row)
            if touched is not None:
                return _place(ready, touched)
            rerun.pass_over(ready)
            on_records(ready.records)
    return None


def _in_batch(state: LearnState, ready: ReadyBatch, array: str, row: int) -> int | None:
    """Learn the batch's events one by one up to the first that changes the row: its place among them."""
    decoded, triplets = ready.decoded, ready.triplets
    before, names = _row(state, array, row), names_of(state, decoded)
    for at in range(len(decoded)):
        learn(state, decoded, triplets, names, slice(at, at + 1))
        if _row(state, array, row) != before:
            return at
    return None


def _row(state: LearnState, array: str, row: int) -> bytes | None:
    """The row's bytes as they are now; None where the array has no such row yet."""
    found = state.arrays().get(array)
    if found is None or row >= (len(found) if found.ndim else 1):
        return None
    return bytes(as_rows(found)[row].tobytes())


def _place(ready: ReadyBatch, at: int) -> EventPlace:
    offset = int(ready.decoded.offsets[at])
    value = ready.polled.values[ready.polled.offsets.index(offset)]
    try:
        identifier = None if value is None else decode_event(value).id
    except Poison:
        identifier = None
    return EventPlace(ready.decoded.partition, offset, identifier)


Progressed = Callable[[int, int], None]
"""Called with how many records are done, and of how many."""


@dataclass(frozen=True, slots=True)
class ReplayDifference:
    """Where a version is not what its schedule makes of the version `since`, which still agrees.

    `why` says it in one sentence. `place`: the first array and row that differ. `record`: a record of the log
    that is known to be another one than was learned; otherwise `event` is the first event between the two
    versions that touches this row, None when none does.
    """

    version: int
    since: int
    why: str
    place: ArrayPlace | None = None
    record: EventPlace | None = None
    event: EventPlace | None = None


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The recomputed state's hash (empty where it ended early), the recorded one, and the records it took.

    `other_runtime`: what else computed a version of the line, as `{name: (then, now)}`; numbers are then
    compared within `within`, see `difference.TOLERANCE`. None: bit for bit, or not at all without `verify`.
    `difference` is None when all that was compared agrees.
    """

    hash: str
    recorded: str
    records: int
    other_runtime: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    within: float | None = None
    difference: ReplayDifference | None = None

    @property
    def equal(self) -> bool:
        """Whether replaying gave the version's own bits."""
        return self.hash == self.recorded


def replay(
    versions: VersionStore,
    source: Source,
    catalog: Catalog | None,
    from_version: int,
    to_version: int,
    *,
    verify: bool = True,
    on_progress: Progressed = lambda done, total: None,
    lines: Lines | None = None,
) -> ReplayResult:
    """Apply to `from_version` every run recorded on the way to `to_version`: its hash, and with `verify`
    whether every version kept on the way has the state, position and counters that come out.

    Settings, maps and space are those the versions recorded. lines: where versions are that schedules name.
    Raises UserError when `to_version` does not descend from `from_version`, its records are no longer in the
    log, or the catalog is another one.
    """
    target = versions.manifest(to_version)
    if target.catalog_digest != (None if catalog is None else catalog.digest):
        raise UserError(
            f"version {target.number} was learned with another catalog",
            "give the catalog it names, or none if it names none",
            EX_DATAERR,
        )
    links = line(versions, from_version, to_version)
    _check_one_log(links, from_version)
    check_kept(links, source.bounds(), from_version)
    whole = _Replay(versions, Runs(source), catalog, target, links, on_progress, lines)
    return whole.run(from_version, verify)


@dataclass
class _Replay:
    """One replay along the links of a line."""

    versions: VersionStore
    runs: Runs
    catalog: Catalog | None
    target: Manifest
    links: Sequence[Link]
    on_progress: Progressed
    lines: Lines | None

    def __post_init__(self) -> None:
        runs = (e for link in self.links for e in link.schedule if not isinstance(e, dict))
        self._total, self._records = sum(end - start for _, start, end in runs), 0
        self._others = _other_runtime(self.links)
        self._tolerance = TOLERANCE if self._others else None

    def run(self, from_version: int, verify: bool) -> ReplayResult:
        """Follow every link; stop at the first version that differs."""
        rerun, since = self._start(from_version), from_version
        segment: list[ScheduleEntry] = []  # from `since` on
        found = None
        for link in self.links:
            segment += link.schedule
            try:
                for entry in link.schedule:
                    rerun.follow(entry, self._count)
            except OutOfLine as error:
                found = ReplayDifference(link.number, since, str(error))
                break
            if verify and link.manifest is not None:
                found = self._compare(rerun, link.manifest, since, segment)
                if found is not None:
                    break
                since, segment = link.number, []
            if link.manifest is not None:
                rerun.stands_at(link.manifest)
        digest = "" if found is not None else state_hash(rerun.state.arrays())
        within = self._tolerance if verify else None
        return ReplayResult(digest, self.target.state_hash, self._records, self._others, within, found)

    def _start(self, number: int) -> Rerun:
        return Rerun(self.versions.load(number), self.target, self.catalog, self.runs, self.lines)

    def _count(self, records: int) -> None:
        self._records += records
        self.on_progress(self._records, self._total)

    def _compare(
        self, rerun: Rerun, manifest: Manifest, since: int, segment: Sequence[ScheduleEntry]
    ) -> ReplayDifference | None:
        """The first difference of what was recomputed from a version: position, then state, then counters."""
        number, progress = manifest.number, rerun.progress
        why = other_position(progress, manifest)
        if why is not None:
            return ReplayDifference(number, since, why)
        record = other_record(progress, manifest)
        if state_hash(rerun.state.arrays()) != manifest.state_hash:
            place = self._place(rerun, manifest)
            if place is not None:
                event = None
                if record is None and place.row is not None:
                    start, nothing = self._start(since), lambda records: None
                    event = first_touch(start, segment, place.array, place.row, nothing)
                return ReplayDifference(number, since, str(place), place, record, event)
        if record is not None:
            why = "the state is the same, a record of the log is not"
            return ReplayDifference(number, since, why, record=record)
        why = None if self._others else other_counts(progress, manifest)
        return None if why is None else ReplayDifference(number, since, why)

    def _place(self, rerun: Rerun, manifest: Manifest) -> ArrayPlace | None:
        try:
            recorded = self.versions.load(manifest.number).arrays
        except CheckpointError as error:
            if manifest.number == self.target.number:
                raise
            return ArrayPlace(f"version {manifest.number}", None, 0, f"damaged: {error}", "a state", 0)
        return first_difference(recorded, rerun.state.arrays(), self._tolerance)


def _other_runtime(links: Sequence[Link]) -> dict[str, tuple[Any, Any]]:
    """What computed a version of the line and is another thing here, by name: (then, now)."""
    now = _flat(runtime())
    others: dict[str, tuple[Any, Any]] = {}
    for link in links:
        then = _flat(link.runtime)
        others |= {n: (then.get(n), now.get(n)) for n in {*then, *now} if then.get(n) != now.get(n)}
    return others


def _flat(recorded: Mapping[str, Any]) -> dict[str, Any]:
    return {**recorded.get("packages", {}), **{n: v for n, v in recorded.items() if n != "packages"}}


def _check_one_log(links: Sequence[Link], from_version: int) -> None:
    read = False
    for link in links:
        for entry in link.schedule:
            if isinstance(entry, dict) and entry["control"] == "log" and read:
                raise UserError(
                    f"version {link.number} continued with another log; what was learned between version "
                    f"{from_version} and that change is not in it",
                    f"replay from version {link.parent} on, which came right before",
                    EX_DATAERR,
                )
            read = read or not isinstance(entry, dict)
