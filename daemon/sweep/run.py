"""`tripletd sweep`: opens, finds the held-out lists, has every setting learned and judged, and keeps results.

What is durable: the held-out lists and what is read (once, before anything runs), each setting's versions,
and a line for each setting that is judged. The same command goes on from there, whatever ended it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from xxhash import xxh3_128

from daemon.backfill.cluster import Limits
from daemon.backfill.plan import Unit, begins
from daemon.backfill.run import BackfillJob, recipe_of
from daemon.backfill.sources import units_to_learn
from daemon.catalogs import FOLDER, learner_catalog
from daemon.config.schema import Config
from daemon.exits import EX_DATAERR, EX_UNAVAILABLE, UserError
from daemon.judging.lists import digest_of, encode_lists, lists_of_history
from daemon.sweep.grid import SPLIT
from daemon.sweep.learning import GroupTask, do_group, share_catalogs
from daemon.sweep.results import LISTS, ResultsFile, SettingResult, SweepBasis, refuse_other
from daemon.sweep.settings import Trial, grouped, in_folder
from daemon.work_pool import Workers, done_by
from streams.durable import replacing

TOGETHER = 8
"""Settings that a worker learns side by side: of reading, which they share, an eighth is left to each."""
BLOCK_EVENTS = 5_000
"""Events of one block, as of a backfill; one learner merges nothing."""


@dataclass(frozen=True, slots=True)
class SweepJob:
    """What is asked for besides the settings. sources, format, mapping: as of a backfill; out: the folder of
    results. version_events: between two versions of a setting, which is what a kill costs it, and what is
    read ahead for a group, some 100 MB. events_per_second: of all workers together, 0: no limit."""

    sources: Sequence[str]
    out: Path
    format: str | None = None
    mapping: str | None = None
    workers: Workers = field(default_factory=Workers)
    version_events: int = 250_000
    events_per_second: float = 0.0


@dataclass(frozen=True, slots=True)
class Swept:
    """What came of it. results: by setting in the order asked for, None of those in `failed`, which has why.
    fresh: settings that this run judged; records: that its learners were given."""

    basis: SweepBasis
    results: Sequence[SettingResult | None]
    failed: Mapping[int, UserError]
    fresh: int
    records: int
    seconds: float


@dataclass(slots=True)
class SweepReport:
    """Hears what goes on. note: a line worth knowing; progress: settings judged, of how many."""

    note: Callable[[str], None] = lambda _: None
    progress: Callable[[int, int], None] = lambda _done, _all: None


def sweep(config: Config, trials: Sequence[Trial], job: SweepJob, report: SweepReport) -> Swept:
    """Learn and judge every setting. Raises UserError, also where workers are lost again and again."""
    began = time.monotonic()
    units = units_to_learn(job.sources, config.stream.reached, report.note)
    with ExitStack() as stack:
        results = ResultsFile(stack, job.out)
        basis = _basis(config, job, units, results, report)
        run = SweepRun(job, basis, results, report)
        run(trials)
        found = [results.known.get(one.scored) for one in trials]
        failed = {at: run.failed[one.scored] for at, one in enumerate(trials) if one.scored in run.failed}
        return Swept(basis, found, failed, run.fresh, run.records, time.monotonic() - began)


def _basis(
    config: Config, job: SweepJob, units: Sequence[Unit], results: ResultsFile, report: SweepReport
) -> SweepBasis:
    """What is learned from and judged on: as the folder has it, or found now."""
    before = in_folder(config, job.out / "before")  # stays empty: as it is before any setting learned
    share_catalogs(Path(before.checkpoints.path), job.out / FOLDER)
    recipe, split = recipe_of(config, _job(job, None)), {name.partition(".")[2] for name in SPLIT}
    # the same for every setting: of [feed] what says which lists are held out
    recipe = replace(recipe, feed={name: one for name, one in recipe.feed.items() if name in split})
    judged = _judged(before)
    lists_file = job.out / LISTS
    if (known := results.basis) is not None:
        refuse_other(known, recipe, units, judged)
        if digest_of(_kept(lists_file)) != known.digest:
            raise UserError(f"{lists_file}: was changed", "name another folder with --out", EX_DATAERR)
        if results.known:
            report.note(f"going on: {len(results.known):,} settings are done in {job.out}")
        return known
    report.note("reading the newest held-out lists")
    progress = begins(recipe_of(before, _job(job, recipe.now_ms)), units, 0)
    lists = lists_of_history(before, learner_catalog(before, lambda _: None), progress)
    least = before.validate.least_impressions
    if len(lists) < least:
        message = f"{len(lists)} held-out lists, {least} are needed to judge settings by"
        remedy = "give more history, raise feed.holdout_share, or lower validate.min_impressions"
        raise UserError(message, remedy, EX_UNAVAILABLE)
    data = encode_lists(lists)
    with replacing(lists_file) as file:
        file.write(data)
    basis = SweepBasis(recipe, tuple(units), judged, len(lists), digest_of(data))
    results.begin(basis)
    return basis


def _kept(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        message = f"{path}: the held-out lists cannot be read: {error.strerror}"
        raise UserError(message, "put it back, or name another folder with --out", EX_DATAERR) from None


def _job(job: SweepJob, now_ms: int | None) -> BackfillJob:
    """What each setting is learned by: one learner in its worker, which has its share of the rate."""
    return BackfillJob(
        job.sources,
        job.format,
        job.mapping,
        merge_events=min(BLOCK_EVENTS, job.version_events),
        version_events=job.version_events,
        here=True,
        limits=Limits(job.events_per_second / job.workers.count),
        judged=False,
        now_ms=now_ms,
    )


def _judged(config: Config) -> dict[str, Any]:
    catalog = learner_catalog(config, lambda _: None)
    return {
        "catalog": None if catalog is None else catalog.digest,
        "space": config.space_spec().id,
        "validate.window": config.validate.window,
        "validate.max_queries": config.validate.max_queries,
        "validate.judgments": _judgments_digest(config),
    }


def _judgments_digest(config: Config) -> str:
    kind, _, path = config.validate.judgments.partition(":")
    if not kind:
        return ""
    try:
        return f"{kind}:{xxh3_128(Path(path).read_bytes()).hexdigest()}"
    except OSError as error:
        raise UserError(
            f"validate.judgments: {path}: {error.strerror}", "correct the name", EX_UNAVAILABLE
        ) from None


class SweepRun:
    """The settings that are left, learned and judged in groups. failed: by `scored`, why; fresh: settings
    that were judged; records: that their learners were given."""

    def __init__(self, job: SweepJob, basis: SweepBasis, results: ResultsFile, report: SweepReport) -> None:
        self._job, self._basis, self._results, self._report = job, basis, results, report
        self.failed: dict[str, UserError] = {}
        self.fresh = self.records = 0

    def __call__(self, trials: Sequence[Trial]) -> None:
        """Have them done; those that are in the results already are."""
        distinct = {one.scored: one for one in trials}
        left = [one for scored, one in distinct.items() if scored not in self._results.known]
        done = len(distinct) - len(left)
        self._report.progress(done, len(distinct))
        job = _job(self._job, self._basis.recipe.now_ms)
        about = (job, self._basis.units, str(self._job.out / FOLDER), _kept(self._job.out / LISTS))
        groups = grouped(left, self._job.workers.count, TOGETHER)
        tasks = [GroupTask(group, *about) for group in groups]
        for task, outcome in done_by(self._job.workers, do_group, tasks, self._report.note):
            if isinstance(outcome, UserError):
                self.failed |= {one.scored: outcome for one in task.trials}
                continue
            records = dict[str, int]()
            for scored, found in outcome:
                if isinstance(found, UserError):
                    self.failed[scored] = found
                else:
                    self._results.add(found)
                    self.fresh += 1
                    records[found.hash] = found.records
            self.records += sum(records.values())
            done += len(outcome)
            self._report.progress(done, len(distinct))
