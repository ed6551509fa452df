"""`tripletd backfill`: opens, goes on from the newest version, runs the rounds, publishes, judges.

What is durable is in the versions alone. Whatever ends a run (a worker, Ray, this process), the same command
line goes on from the newest version and comes to the same bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits
from xxhash import xxh3_128

from checkpoints import Version, protected, prune
from checkpoints.encoding import state_hash
from checkpoints.store import CheckpointError, Superseded
from daemon.backfill.cluster import Limits, ShardsHere, ShardsOnRay, ray_running
from daemon.backfill.judging import HistoryVerdict, judge
from daemon.backfill.plan import HistoryProgress, Recipe, Unit, begins, differences, goes_on, shared_out
from daemon.backfill.rounds import Reached, Shards, ShardsLost, Told, run_rounds
from daemon.backfill.shard import OpenReader, ShardJob
from daemon.backfill.sources import units_of, units_to_learn
from daemon.config.schema import Config
from daemon.exits import EX_CONFIG, EX_DATAERR, EX_TEMPFAIL, EX_USAGE, UserError
from daemon.feeding import triplets_of
from daemon.learn.publishing import Fence, take_place, taken_over
from daemon.learn.reader import Inputs, open_inputs
from daemon.learn.resume.fitting import Fitted, fit_map
from daemon.learn.resume.origin import LearnOptions, RunOrigin, find_origin
from daemon.memory.fits import require_role
from daemon.runtime.watchdog import Pulse
from daemon.versions.algorithms import as_made
from daemon.versions.shards import summed
from daemon.versions.storage import open_store
from streams.feed.items import FeedError
from streams.feed.mapping.mapping import recipe_text

HISTORY = "history"
"""--from-position: where the newest event of the history stands in the topic, by its time."""
ATTEMPTS = 5
"""How often in a row, without a version between, a run begins again after it has lost its workers."""
NOT_OF_W = ("follow", "prequential")
"""Settings of [feed] that make no triplet another one by themselves: see `triplets_of`."""


@dataclass(frozen=True, slots=True)
class BackfillJob:
    """What is asked for. sources: as given. from_position: where the live learner goes on, in a new folder.
    here: in this process, without Ray. address: of a cluster. merge_events, version_events: see `Recipe`.
    now_ms: the time of lists that carry none, None: now."""

    sources: Sequence[str]
    format: str | None = None
    mapping: str | None = None
    shards: int = 1
    merge_events: int = 5_000
    version_events: int = 1_000_000
    from_position: str = "latest"
    here: bool = False
    address: str | None = None
    limits: Limits = field(default_factory=Limits)
    judged: bool = True
    now_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Backfilled:
    """What came of it: the version, its state's hash, records and lists of this run with their seconds, how
    often it began again, and the verdict."""

    version: int
    hash: str
    base: int
    records: int
    read: int
    dropped: dict[str, int]
    merges: int
    seconds: float
    restarts: int
    resumed: bool
    verdict: HistoryVerdict | None


@dataclass(slots=True)
class BackfillReport:
    """Hears what goes on. note: a line worth knowing. progress: numbers so far, and for how many seconds."""

    note: Callable[[str], None] = lambda _: None
    progress: Callable[[Told, float], None] = lambda _told, _seconds: None


def backfill(config: Config, job: BackfillJob, report: BackfillReport) -> Backfilled:
    """Learn history into the folder of `checkpoints.path`. Raises UserError and the islands' errors."""
    if not config.catalog.path:
        raise UserError(
            "catalog.path is empty: maps are fitted and negatives drawn from the objects of a catalog, so "
            "that every learner has the same",
            "name the objects with catalog.path, or feed the history with `tripletd feed`",
            EX_CONFIG,
        )
    units = units_to_learn(job.sources, config.stream.reached, report.note)
    with ExitStack() as stack:
        begun = begin_history(stack, config, job, units, report)
        run = BackfillRun(begun.config, job, report, begun.publisher)
        run(begun.progress, begun.origin)
        publisher, verdict = begun.publisher, None
        if job.judged and publisher.progress is not None:
            versions, catalog = begun.inputs.versions, begun.inputs.catalog
            verdict = judge(begun.config, versions, catalog, publisher.progress, publisher.number)
        told, dropped = run.told, dict(run.told.dropped.most_common())
        made = publisher.number, publisher.hash, begun.progress.base, told.records, told.read, dropped
        return Backfilled(*made, told.merges, run.seconds, run.restarts, begun.resumed, verdict)


@dataclass(frozen=True, slots=True)
class BegunHistory:
    """A backfill that is ready to learn. config: with the learner that its folder was made with; progress:
    where it stands; resumed: whether an earlier run got there."""

    config: Config
    inputs: Inputs
    origin: RunOrigin
    progress: HistoryProgress
    publisher: HistoryPublisher
    resumed: bool


def begin_history(
    stack: ExitStack, config: Config, job: BackfillJob, units: Sequence[Unit], report: BackfillReport
) -> BegunHistory:
    """Open the folder, take its place, and find where the backfill of these units stands; `stack` closes it.
    Raises UserError where the folder holds all of it, or is in another backfill, and the errors of the
    islands."""
    stack.enter_context(threadpool_limits(limits=1))  # as `learn`: the bits do not depend on cores
    inputs = open_inputs(stack, config, lambda _: None)
    stack.callback(inputs.dead.close)
    take_place(stack, inputs.versions.store, inputs.place, False, _sleep)
    newest = inputs.versions.newest_manifest()
    config = as_made(config, newest)
    here = job.shards if job.address is None else 1  # what is on a cluster has memory of its own
    items = 0 if inputs.catalog is None else len(inputs.catalog)
    require_role(config, "backfill", established=False, processes=here, items=items)
    recipe = recipe_of(config, job)
    known = None if newest is None else HistoryProgress.in_version(newest)
    progress = None if known is None or known.done else goes_on(known, recipe, units)
    if known is not None and known.done and is_same(known, recipe, units):
        message = f"version {newest.number if newest else 0} holds all of this already"
        remedy = "start `tripletd learn`; to learn it again name an empty folder with checkpoints.path"
        raise UserError(message, remedy, EX_USAGE)
    origin = _origin(config, job, inputs, newest is None)
    resumed = progress is not None
    if progress is None:
        progress = begins(recipe, units, origin.parent)
    else:
        report.note(f"going on from version {origin.parent}: {progress.fed:,} records are in it")
    origin.state.warm_up()  # once here, not in every process
    inputs.decoder.warm_up()
    by_history = job.from_position == HISTORY and not origin.parent
    publisher = HistoryPublisher(config, inputs, origin, by_history)
    return BegunHistory(config, inputs, origin, progress, publisher, resumed)


@dataclass(frozen=True, slots=True)
class Verified:
    """Whether learning it all again gave the version's own bits."""

    version: int
    base: int
    hash: str
    recorded: str
    records: int

    @property
    def equal(self) -> bool:
        """Bit for bit."""
        return self.hash == self.recorded


def verify(config: Config, job: BackfillJob, report: BackfillReport) -> Verified:
    """Learn again what the newest finished backfill of the folder learned, and compare; writes nothing.
    Raises UserError where its files are not given, have changed, or the version it began from is gone."""
    versions = open_store(config.checkpoints.path).versions
    for number in reversed(versions.versions()):
        manifest = versions.manifest(number)
        known = HistoryProgress.in_version(manifest)
        if known is not None and known.done:
            break
    else:
        message = "no version of this folder was written by a backfill that came to its end"
        raise UserError(message, "name its folder with checkpoints.path", EX_USAGE)
    config = as_made(config, manifest)
    job = replace(
        job,
        shards=known.recipe.shards,
        merge_events=known.recipe.merge_events,
        version_events=known.recipe.version_events,
    )
    units = units_of(job.sources, config.stream.reached)
    goes_on(replace(known, done=False), recipe_of(config, job), units)
    try:
        base = versions.load(known.base)
    except CheckpointError as error:
        message = f"version {known.base}, which the backfill began from, cannot be read: {error}"
        raise UserError(message, "more versions are kept with checkpoints.keep", EX_DATAERR) from error
    run = BackfillRun(config, job, report, None)
    with threadpool_limits(limits=1):
        found = run.again(begins(known.recipe, known.units, known.base), base)
    return Verified(number, known.base, found, manifest.state_hash, run.told.records)


class BackfillRun:
    """The rounds, begun again from the newest version where workers are lost.

    open_reader: of a single learner in this process, see `ShardLearner`. most: versions to write, None: all.
    """

    def __init__(
        self,
        config: Config,
        job: BackfillJob,
        report: BackfillReport,
        publisher: HistoryPublisher | None,
        *,
        open_reader: OpenReader | None = None,
        most: int | None = None,
    ) -> None:
        self._config, self._job, self._report, self._publisher = config, job, report, publisher
        self._open_reader, self._most = open_reader, most
        self.told, self.seconds, self.restarts = Told(), 0.0, 0
        self._began = time.monotonic()

    def __call__(self, progress: HistoryProgress, origin: RunOrigin) -> None:
        publisher = self._publisher
        assert publisher is not None
        version = Version(origin.base, origin.state.arrays())
        failures, base = 0, origin.parent
        while True:
            try:
                with self._shards(progress) as shards:
                    run_rounds(shards, version, progress, publisher, self._tell, most=self._most)
                break
            except ShardsLost as error:
                if publisher.number != base:
                    base, failures = publisher.number, 0
                failures += 1
                if failures >= ATTEMPTS:
                    message = f"workers were lost {ATTEMPTS} times in a row: {error}"
                    remedy = "look at memory and at the cluster, then give the same command again"
                    raise UserError(message, remedy, EX_TEMPFAIL) from error
                self.restarts += 1
                self._report.note(f"workers are lost ({error}); going on from version {base}")
                if publisher.progress is not None and publisher.version is not None:
                    version, progress = publisher.version, publisher.progress
            except Superseded as error:
                raise taken_over(error) from error
        self.seconds = time.monotonic() - self._began

    def again(self, first: HistoryProgress, base: Version) -> str:
        """Learn from the beginning, without writing; the hash of the state at the end."""
        last = base.arrays

        def publish(reached: Reached) -> Version:
            nonlocal last
            last = reached.arrays
            return Version(base.manifest, last)

        with self._shards(first) as shards:
            run_rounds(shards, base, first, publish, self._tell)
        return state_hash(last)

    @contextmanager
    def _shards(self, progress: HistoryProgress) -> Iterator[Shards]:
        shares = shared_out(progress.units, progress.recipe.shards)
        jobs = [ShardJob(self._config, progress.recipe, units) for units in shares]
        if self._job.here:
            yield ShardsHere(jobs, self._job.limits, self._open_reader)
            return
        with ray_running(self._job.address, progress.recipe.shards):
            shards = ShardsOnRay(jobs, self._job.limits)
            try:
                yield shards
            finally:
                shards.end()

    def _tell(self, told: Told) -> None:
        self.told = told
        self._report.progress(told, time.monotonic() - self._began)


class HistoryPublisher:
    """Makes versions of what is reached. from_history: set the positions by the newest time, at the end."""

    def __init__(self, config: Config, inputs: Inputs, origin: RunOrigin, from_history: bool) -> None:
        self._inputs, self._origin, self._from_history = inputs, origin, from_history
        self._keep = config.checkpoints.keep
        self._fence = Fence(inputs.versions, origin.epoch)
        self.number, self.hash = origin.parent, origin.base.state_hash
        self.progress: HistoryProgress | None = None
        self.version: Version | None = None

    def __call__(self, reached: Reached) -> Version:
        progress = self._origin.progress
        progress.counters = summed([progress.counters, reached.counters])
        if reached.watermark is not None:
            progress.watermark = max(reached.watermark, progress.watermark or reached.watermark)
        entry = reached.progress.entry()
        if self._from_history and reached.progress.done and progress.watermark is not None:
            offsets = self._inputs.control.offsets_at(progress.watermark)
            entry["positions"] = {str(partition): offset for partition, offset in offsets.items()}
        progress.control(entry)
        snapshot = progress.snapshot()
        meta = self._origin.describe(snapshot, self.number)
        manifest = self._inputs.versions.publish(self._origin.epoch, reached.arrays, meta)
        progress.published(snapshot)
        self.number, self.hash, self.progress = manifest.number, manifest.state_hash, reached.progress
        self.version = Version(manifest, reached.arrays)
        base = {reached.progress.base}  # stays, too: it is verified by what it began from
        ledger = self._inputs.ledger
        prune(self._inputs.versions, lambda: protected(ledger.whole()) | base, self._keep, self._fence.check)
        return self.version


def _origin(config: Config, job: BackfillJob, inputs: Inputs, is_new: bool) -> RunOrigin:
    start = "latest" if job.from_position == HISTORY else job.from_position

    def fit(offsets: Any) -> Fitted | None:
        return fit_map(config, inputs, offsets, True, lambda _waiting, _vain: True, pulse=Pulse("backfill"))

    origin = find_origin(config, LearnOptions(start=start if is_new else "checkpoint"), inputs, fit)
    assert origin is not None, "nobody asked it to stop"
    return origin


def recipe_of(config: Config, job: BackfillJob) -> Recipe:
    """What W depends on of a configuration and what is asked for. Raises UserError for an unknown mapping."""
    given = config.feed.model_dump(mode="json", exclude=set(NOT_OF_W)) | triplets_of(config)
    asked = job.shards, job.merge_events, job.version_events, config.shards.merge_by
    now_ms = int(time.time() * 1000) if job.now_ms is None else job.now_ms
    return Recipe(*asked, given, job.format, job.mapping, _mapping_digest(job.mapping), now_ms)


def _mapping_digest(name: str | None) -> str:
    if name is None:
        return ""
    with suppress(FeedError):
        return xxh3_128(recipe_text(name).encode()).hexdigest()
    try:
        return xxh3_128(Path(name).read_bytes()).hexdigest()
    except OSError as error:
        raise UserError(f"--mapping {name}: {error.strerror}", "name a mapping or a file", EX_USAGE) from None


def is_same(known: HistoryProgress, recipe: Recipe, units: Sequence[Unit]) -> bool:
    """Whether a backfill is of these units and settings."""
    return differences(known.recipe, known.units, recipe, units) is None


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False
