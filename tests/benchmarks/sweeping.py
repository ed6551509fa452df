"""`judge_two_workers`, `sweep_two_workers`, `sweep_together`: versions and settings side by side.

`judge_two_workers`: versions of a line judged per second by two processes over those by one, on the same
lists, the start of the processes included. `sweep_two_workers`: settings learned and judged per second by two
processes over those by one, from Parquet files to the table. `sweep_together`: settings per second of one
process that learns eight side by side, over those of sweeps of one each: what reading once is worth.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence

from daemon.backfill.cluster import Limits
from daemon.backfill.run import BackfillJob, BackfillReport, backfill
from daemon.config import Config, load_config
from daemon.judging.run import judge_versions
from daemon.sweep.grid import grid_of_options, settings_of
from daemon.sweep.run import SweepJob, SweepReport, sweep
from daemon.sweep.settings import trials_of
from daemon.versions.storage import open_store
from daemon.work_pool import Workers
from tests.benchmarks.backfill import FOLDER, write_history
from tests.benchmarks.harness import Figure, ratio_figure

REPEATS = 3
OBJECTS, LISTS, FILES = 10_000, 6_000, 8
VERSION_EVENTS = 1_500
"""Between two versions of the line: some 150 of them."""
VALUES = [f"{0.001 * 1.5**place:.5f}" for place in range(16)]
EIGHT, FEW = (",".join(VALUES[:8]),), VALUES[:3]
OUT = FOLDER / "sweep"


def figures() -> list[Figure]:
    """All three, on the same lists."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    try:
        write_history(OBJECTS, LISTS)
        line()
        what = f"{FILES * LISTS:,} lists of 10 objects of 256 dense columns in {FILES} Parquet files"
        one = f"one process; a line of versions on 2,000 held-out lists, {OBJECTS:,} objects, of {what}"
        settings = f"one process; {len(VALUES)} settings of C, {what}"
        alone = f"sweeps of one setting each, one after the other; {what}"
        return [
            ratio_figure("judge_two_workers", one, lambda: judged(2), lambda: judged(1), REPEATS),
            ratio_figure("sweep_two_workers", settings, lambda: swept(2), lambda: swept(1), REPEATS),
            ratio_figure("sweep_together", alone, lambda: swept(1, EIGHT), lambda: swept(1, FEW), REPEATS),
        ]
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)


def configured(**more: object) -> Config:
    """The configuration, with the line's folder."""
    place = {"checkpoints.path": str(FOLDER / "line"), "checkpoints.keep": 1000}
    return load_config(FOLDER / "tripletd.toml", {**place, **more})


def days() -> list[str]:
    """The files."""
    return sorted(str(one) for one in FOLDER.glob("day*.parquet"))


def mapping() -> str:
    """What their columns mean."""
    return str(FOLDER / "mapping.toml")


def line() -> None:
    """Learn the line of versions."""
    job = BackfillJob(
        days(),
        mapping=mapping(),
        merge_events=VERSION_EVENTS,
        version_events=VERSION_EVENTS,
        here=True,
        limits=Limits(),
        judged=False,
    )
    backfill(configured(), job, BackfillReport())


def judged(workers: int) -> float:
    """Versions per second."""
    config = configured()
    versions = open_store(config.checkpoints.path).versions
    numbers = versions.versions()
    lists = BackfillJob(days()[-2:], mapping=mapping())
    found = judge_versions(config, versions, numbers, lists, workers=Workers(workers))
    assert not found.failed
    return len(numbers) / found.seconds


def swept(workers: int, values: Sequence[str] = (",".join(VALUES),)) -> float:
    """Settings per second, of sweeps of these values one after the other."""
    count, began = 0, time.monotonic()
    for some in values:
        shutil.rmtree(OUT, ignore_errors=True)
        settings = settings_of([grid_of_options([f"learner.C={some}"])])
        trials = trials_of(FOLDER / "tripletd.toml", settings, OUT.absolute())
        job = SweepJob(days(), OUT.absolute(), mapping=mapping(), workers=Workers(workers))
        done = sweep(configured(), trials, job, SweepReport())
        assert not done.failed
        count += len(trials)
    return count / (time.monotonic() - began)
