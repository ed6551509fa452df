"""The `merge` role: makes one version of those of the shards, on a cadence, in the folder that everybody else
works with.

It begins as a learner of all partitions would, and writes version 0; from then on it learns nothing. Whoever
judges, serves, follows or replays finds its versions like any other. See `daemon.versions.shards` for what
versions say of each other, and `daemon.learn.merges` for what is computed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from checkpoints import Manifest, Version, VersionStore
from checkpoints.commit import WriterLock, new_line
from checkpoints.manifest import ScheduleEntry
from checkpoints.store import CheckpointError, Superseded
from daemon.config.schema import Config
from daemon.exits import EX_OK, UserError
from daemon.learn.adopting import read_brought
from daemon.learn.compatible import differences
from daemon.learn.housekeeping import Housekeeper, VersionCleanup
from daemon.learn.merges import SHORT, Brought, Merged, merge
from daemon.learn.publishing import Fence, PlaceWatch, taken_over
from daemon.learn.reader import Inputs
from daemon.learn.resume.origin import LearnOptions, RunOrigin
from daemon.learn.start import begin
from daemon.learn.state import Snapshot
from daemon.learn.state import line as line_entry
from daemon.memory.watch import watch_memory
from daemon.runtime.leaving import learner_is_running
from daemon.runtime.runtime import ReadinessReporter, RoleRuntime, open_runtime
from daemon.runtime.watchdog import end_all
from daemon.telemetry.metrics import MergeMetrics, add_place
from daemon.topics.retention import retain_steps
from daemon.versions.contents import RECORDS, counted, written_ms
from daemon.versions.race import recorded_race
from daemon.versions.shards import (
    MergedPart,
    MergeRecord,
    address_of,
    brings,
    news_of,
    record_of,
)
from daemon.versions.storage import open_store
from streams.errors import StreamError
from streams.open import open_source
from streams.shards import Shard
from streams.source import Address

LOOK_SECONDS = 0.5
"""Between two looks at the shards."""
STOP_SECONDS = 10.0
STEPS_BEFORE_MS = 10_000
"""Steps are kept from so long before the version was written from which servers begin: see `retain_steps`."""

log = structlog.get_logger("tripletd.merge")


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """One run: leave when the shards have ended and all of theirs is merged; where version 0 begins; whether
    to start although another one has the folder; whether the shards were started along with it (stdin is open
    as long as they are at work)."""

    exit_when_caught_up: bool = False
    start: str = "checkpoint"
    take_over: bool = False
    beside_learn: bool = False


def run(config: Config, options: MergeOptions, load: Callable[[], Config] | None = None) -> int:
    """Merge until a stop; the exit code. Raises UserError and the errors of the islands."""
    if not config.shards.count:
        raise UserError(
            "[shards] count is 0: one learner writes the versions, and there is nothing to merge",
            "set shards.count to the number of learners, or start `tripletd learn` alone",
        )
    metrics = MergeMetrics()
    add_place(metrics.registry, config.checkpoints.path)
    with ExitStack() as stack:
        runtime = open_runtime(stack, config, metrics.registry, config.http.merge_port, load)
        watch_memory(stack, metrics.registry, config, "merge")
        asked = LearnOptions(options.exit_when_caught_up, options.start, take_over=options.take_over)
        with ExitStack() as opened:
            begun = begin(stack, opened, config, asked, runtime, role="merge")
            if begun is None:
                return EX_OK
            config, inputs, origin, lock = begun
            merger = _merger(config, options, runtime, metrics, inputs=inputs, origin=origin, lock=lock)
            opened.pop_all()
        stack.callback(merger.leave)
        merger.housekeeper.start()
        runtime.started()
        runtime.signals.finish_first()
        return merger.run()


def _merger(
    config: Config,
    options: MergeOptions,
    runtime: RoleRuntime,
    metrics: MergeMetrics,
    *,
    inputs: Inputs,
    origin: RunOrigin,
    lock: WriterLock | None,
) -> Merger:
    path, count = config.checkpoints.path, config.shards.count
    fence = Fence(inputs.versions, origin.epoch)
    place = PlaceWatch(fence, lock, origin.base)
    pulse = runtime.watchdog.watch("the housekeeping thread")
    lines = ShardVersions(path, count)
    own = open_store(path)
    cleanup = VersionCleanup(
        own.versions,
        own.ledger,
        fence,
        inputs.address,
        config.checkpoints.keep,
        config.stream,
        partial(_retain_steps, config, inputs.address, own.versions),
        pulse,
        also_kept=lines.bases,
    )
    housekeeper = Housekeeper(inputs.control, cleanup, pulse, time.monotonic, watch=place, first=cleanup.fold)
    return Merger(
        config, options, runtime, metrics, inputs, origin, place, housekeeper, ShardVersions(path, count)
    )


class ShardVersions:
    """The lines of versions of all shards, as they are looked at now and then. Of one thread."""

    def __init__(self, root: str, count: int) -> None:
        self.shards = [Shard(number, count) for number in range(count)]
        self.stores = {shard.number: open_store(address_of(root, shard)).versions for shard in self.shards}
        self._read: dict[int, Manifest] = {}
        self._listed: dict[int, Sequence[int]] = {}

    def newest(self, afresh: bool = False) -> dict[int, Manifest]:
        """The newest version of each shard that has one, by its number. A version that cannot be read is as
        good as none: the one before it counts. afresh: read each again, also where nothing new is listed; a
        folder that was lost and started over may have the same numbers, so what is merged is compared as it
        is loaded (`read_brought`)."""
        for number, versions in self.stores.items():
            listed = versions.listing.poll()
            if listed and (afresh or listed is not self._listed.get(number)):
                found = versions.newest_manifest()
                if found is not None:
                    self._read[number], self._listed[number] = found, listed
        return dict(self._read)

    def bases(self) -> set[int]:
        """The merged versions that the shards go on from."""
        return {record_of(manifest).base for manifest in self.newest().values()}


@dataclass(slots=True)
class Merger:
    """Looks at the shards, and merges what they have brought. One thread."""

    config: Config
    options: MergeOptions
    runtime: RoleRuntime
    metrics: MergeMetrics
    inputs: Inputs
    origin: RunOrigin
    place: PlaceWatch
    housekeeper: Housekeeper
    lines: ShardVersions
    _base: Version = field(init=False)
    _entries: tuple[ScheduleEntry, ...] = field(init=False)
    _merged_at: float = field(init=False)
    _trouble: str | None = field(default=None, init=False)
    _doubted: bool = field(default=False, init=False)
    _refused: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        base, state = self.origin.base, self.origin.state
        positions = self.origin.progress.positions  # those of the version, but for what the start changed
        config = base.learner["config"] | recorded_race(self.origin.describe.run.learner_config)
        learner = {**base.learner, "config": config}  # a merge begins with these arms
        self._base = Version(replace(base, positions=positions, learner=learner), state.arrays())
        self._entries = self.origin.progress.snapshot().entries
        self._merged_at = time.monotonic()

    def run(self) -> int:
        """Merge until a stop, or until all is merged where that is asked for."""
        signals = self.runtime.signals
        readiness = ReadinessReporter(self.runtime.health, self.runtime.notifier, log, "merging")
        while not signals.stopping:
            self.runtime.reloading.when(signals.take_reload_request())
            self.runtime.pulse.beat("looking at the shards")
            if self.housekeeper.error is not None:
                raise self.housekeeper.error
            ended = self.options.exit_when_caught_up and self._have_ended()
            newest = self._look(afresh=ended)
            readiness.now(self._not_ready(newest))
            if newest is not None:
                self._merge_if_due(newest, at_once=ended)
                if ended and not self._bringing(newest):
                    log.info("everything is merged", version=self._base.manifest.number)
                    return EX_OK
            signals.wait(LOOK_SECONDS)
        self.runtime.notifier.stopping()
        newest = self._look(afresh=True)
        if newest is not None:
            self._merge_if_due(newest, at_once=True)
        return EX_OK

    def leave(self) -> None:
        """End the housekeeper."""
        end_all([self.housekeeper], lambda _: STOP_SECONDS)

    def _look(self, afresh: bool) -> dict[int, Manifest] | None:
        """The shards' newest versions; None where they cannot be listed. afresh: see `ShardVersions`."""
        self.metrics.folder.record(self.place.how, self.place.losses)
        try:
            newest = self.lines.newest(afresh or self._doubted)
            self._doubted = False
        except CheckpointError as error:
            self._trouble = f"the shards' versions cannot be listed: {error}"
            return None
        self._trouble = self.place.trouble()
        now_ms = time.time() * 1000
        for number, manifest in newest.items():
            written = written_ms(manifest)
            unmerged = counted(manifest.counters, RECORDS) - counted(self._since(manifest), RECORDS)
            age = 0.0 if written is None else max(0.0, now_ms - written) / 1000
            self.metrics.record_shard(number, unmerged, age)
        return {number: one for number, one in newest.items() if self._fits(one)}

    def _fits(self, manifest: Manifest) -> bool:
        """Whether the version's numbers mean what those of the merged one mean; says once where not."""
        base = self._base.manifest
        run = self.origin.describe.run.as_learned(base)
        unlike = differences(manifest, run)
        if manifest.map.get("id") != base.map.get("id"):
            unlike.append("it has another map")
        if unlike and manifest.name not in self._refused:
            self._refused.add(manifest.name)
            shard = record_of(manifest).shard.name
            log.error("a shard's version is not merged", shard=shard, version=manifest.name, why=unlike)
        return not unlike

    def _since(self, manifest: Manifest) -> Mapping[str, int | float]:
        mine = record_of(manifest)
        part = news_of(self._base.manifest, mine, manifest.line)
        return mine.since if part is None else part.counters

    def _bringing(self, newest: Mapping[int, Manifest]) -> list[int]:
        return [number for number, one in newest.items() if brings(self._base.manifest, one)]

    def _not_ready(self, newest: Mapping[int, Manifest] | None) -> str | None:
        if self._trouble is not None or newest is None:
            return self._trouble
        missing = [shard.name for shard in self.lines.shards if shard.number not in newest]
        return f"no version yet of shard {', '.join(missing)}" if missing else None

    def _have_ended(self) -> bool:
        if self.options.beside_learn:
            return not learner_is_running()
        seen, positions = self.housekeeper.seen, self._base.manifest.positions
        if seen is None:
            return False
        at = {partition: position.next_offset for partition, position in positions.items()}
        return all(at.get(partition, -1) >= end for partition, (_, end) in seen.bounds.items())

    def _merge_if_due(self, newest: Mapping[int, Manifest], at_once: bool) -> None:
        bringing, named = self._bringing(newest), self._not_named(newest)
        waited = time.monotonic() - self._merged_at >= self.config.shards.merge_every
        if not named and not (bringing and (waited or at_once)):
            return
        began = time.monotonic()
        try:
            with self.runtime.pulse.patient("merging"):
                brought = self._read(newest, bringing)
                firsts = self._firsts(newest, named)
                if brought or firsts:
                    self._publish(self._merged(brought, firsts))
        except Superseded as error:
            raise taken_over(error) from error
        except CheckpointError as error:
            self.metrics.failures.inc()
            log.error("not merged; it is tried again", why=str(error))
            self._merged_at, self._doubted = time.monotonic(), True
            return
        self._merged_at = time.monotonic()
        if not (brought or firsts):
            return  # nothing of it can be read now
        self.metrics.merges.inc()
        self.metrics.seconds.set(self._merged_at - began)
        manifest = self._base.manifest
        self.metrics.version.set(manifest.number)
        if manifest.watermark is not None:
            self.metrics.watermark.set(manifest.watermark / 1000)
        log.info(
            "merged",
            version=manifest.number,
            of=[f"{number}@{one.version.manifest.number}" for number, one in brought.items()],
            records=counted(manifest.counters, RECORDS),
            seconds=round(self._merged_at - began, 3),
        )

    def _not_named(self, newest: Mapping[int, Manifest]) -> list[int]:
        """Shards with a line of versions that the merged version does not name: servers follow a shard's
        steps from what is named there."""
        before = MergeRecord.in_version(self._base.manifest)
        parts = [] if before is None else [before.part(shard) for shard in self.lines.shards]
        lines = {part.shard: part.line for part in parts if part is not None}
        return [number for number, one in newest.items() if lines.get(number) != one.line]

    def _read(self, newest: Mapping[int, Manifest], bringing: Sequence[int]) -> dict[int, Brought]:
        """What these shards bring, as far as it can be read: one whose folder is damaged, or was started over
        just now, stops no other."""
        brought = {}
        for number in bringing:
            versions, manifest = self.lines.stores[number], newest[number]
            with self._or_later(manifest):
                brought[number] = read_brought(self._base.manifest, manifest, versions, self.inputs.versions)
        return brought

    def _firsts(self, newest: Mapping[int, Manifest], named: Sequence[int]) -> dict[int, MergedPart]:
        """Of shards that are not named yet: the versions that they began with."""
        firsts = {}
        for number in named:
            with self._or_later(newest[number]):
                first = self.lines.stores[number].manifest(record_of(newest[number]).counted)
                firsts[number] = MergedPart.of(first, number, 0)
        return firsts

    @contextmanager
    def _or_later(self, manifest: Manifest) -> Iterator[None]:
        """Around the reading of a shard's versions: what cannot be read is left to a later merge, and its
        folder looked at afresh."""
        try:
            yield
        except CheckpointError as error:
            self._doubted = True
            self.metrics.failures.inc()
            shard = record_of(manifest).shard.name
            about = {"shard": shard, "version": manifest.name, "why": str(error)}
            log.warning("not merged now; it is tried again", **about)

    def _merged(self, brought: Mapping[int, Brought], firsts: Mapping[int, MergedPart]) -> Merged:
        before, parts = MergeRecord.in_version(self._base.manifest), []
        for shard in self.lines.shards:
            known = None if before is None else before.part(shard)
            held = None if known is None else replace(known, updates=0)
            if (one := brought.get(shard.number)) is not None:
                held = MergedPart.of(one.version.manifest, shard.number, one.updates)
            part = firsts.get(shard.number, held) if one is None else held
            if part is not None:
                parts.append(part)
        by, longest = self.config.shards.merge_by, max((one.events for one in brought.values()), default=0)
        summed = by == "sum" or (by == "auto" and longest <= SHORT)
        return merge(self._base, brought, MergeRecord(self.config.shards.count, tuple(parts), summed))

    def _publish(self, merged: Merged) -> None:
        """Write the version, durably. Raises the errors of checkpoints."""
        epoch, describe = self.origin.epoch, self.origin.describe
        lost, entries = self.place.lost, self._entries
        if lost is not None:
            epoch.line = new_line()
            entries = (*entries, line_entry(lost.name, epoch.line, "replaced"))
            self.place.begun()
        seen = [int(one.stream.get("partitions", 0)) for one in self.lines.newest().values()]
        describe.partitions = max(describe.partitions, *seen)
        snapshot = Snapshot(
            merged.positions, (*entries, merged.record.entry()), merged.counters, merged.watermark
        )
        manifest = self.inputs.versions.publish(
            epoch, merged.arrays, describe(snapshot, self._base.manifest.number)
        )
        self._base, self._entries = Version(manifest, merged.arrays), ()
        self.place.published(manifest)
        self.housekeeper.published(manifest)


def _retain_steps(config: Config, address: Address, versions: VersionStore) -> None:
    """Let steps go that no server needs: those of before the shards' versions that are in the last merged
    versions but one."""
    kept = versions.versions()[-2:]
    written = [written_ms(versions.manifest(number)) for number in kept]
    if len(written) < 2 or written[0] is None:
        return
    # What a merged version holds was written before it, at most so long as a shard had nothing to bring.
    before = written[0] - STEPS_BEFORE_MS - round(1000 * config.checkpoints.every)
    try:
        with closing(open_source(address.steps)) as source:
            floor = source.offsets_at(before)[0]
    except StreamError:
        return  # no steps yet, or none that can be read: the next version makes up for it
    retain_steps(address, config.steps, floor, log.warning)
