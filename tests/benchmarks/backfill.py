"""`backfill_vs_live` and `backfill_two_workers`: history against the live learner, two actors against one.

`backfill_vs_live`: events per processor second of `tripletd backfill --here` over an embedded log, against
those of `tripletd learn` over the same log, whole processes with their start. `backfill_two_workers`: events
per second of two actors of Ray over those of one, the whole path from Parquet (reading, triplets, steps,
merges, versions), from the first block on.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet

from daemon.backfill.run import BackfillJob, BackfillReport, backfill
from daemon.config import load_config
from tests.benchmarks.harness import Figure, ratio_figure

FOLDER = Path("bench-run") / "backfill"
DIM, OBJECTS, SHOWN, FILES, LISTS = 256, 2_000, 10, 8, 3_000
REPEATS = 3
MAPPING = """rows = "impressions"
id = "id"
time = "ts"
query = "q"
shown = "shown"
clicked_positions = "clicked"
"""


def figures() -> list[Figure]:
    """Both figures, on the same lists."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    try:
        write_history()
        _run("feed", *_days(), "--mapping", str(FOLDER / "mapping.toml"))
        what = f"{FILES * LISTS:,} lists of {SHOWN} objects of {DIM} dense columns"
        live = f"`learn` over the same embedded log, by processor time, start included; {what}"
        one = f"one actor on one core; {what} in {FILES} Parquet files, read, made triplets, learned, merged"
        return [
            ratio_figure("backfill_vs_live", live, from_log, learned, REPEATS),
            ratio_figure("backfill_two_workers", one, lambda: actors(2), lambda: actors(1), REPEATS),
        ]
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)


def write_history(objects: int = OBJECTS, lists: int = LISTS) -> None:
    """Objects, days of so many lists, a mapping and a configuration."""
    rng = np.random.default_rng(3)
    vectors = rng.standard_normal((objects, DIM)).astype(np.float32)
    lines = (json.dumps({"id": f"o{k}", "x": one.tolist()}) for k, one in enumerate(vectors))
    (FOLDER / "objects.jsonl").write_text("\n".join(lines) + "\n")
    for day in range(FILES):
        rows = [
            {
                "id": f"list-{number}",
                "ts": 1_700_000_000_000 + number,
                "q": f"o{rng.integers(objects)}",
                "shown": [f"o{one}" for one in rng.choice(objects, SHOWN, replace=False)],
                "clicked": [int(rng.integers(4, SHOWN))],
            }
            for number in range(day * lists, (day + 1) * lists)
        ]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), FOLDER / f"day{day}.parquet")
    (FOLDER / "mapping.toml").write_text(MAPPING)
    (FOLDER / "tripletd.toml").write_text(
        f'[stream]\naddress = "log:clicks.log"\n[space]\nsimilarity = "cosine"\n'
        f'[space.views.x]\nkind = "dense"\ndim = {DIM}\n[catalog]\npath = "objects.jsonl"\n'
        f'[learner]\nalgorithm = "oasis"\n[feed]\nprequential = false\n[http]\nlearn_port = 0\n'
    )


def _days() -> list[str]:
    return sorted(str(one) for one in FOLDER.glob("day*.parquet"))


def _run(*words: str) -> float:
    """Run a command; the processor seconds it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "daemon", *words, "--config", str(FOLDER / "tripletd.toml")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _events(folder: str) -> int:
    from daemon.versions.storage import open_store

    newest = open_store(FOLDER / folder).versions.newest_manifest()
    assert newest is not None
    return int(newest.counters["records"])


def from_log() -> float:
    """Events per processor second of a backfill over the log."""
    shutil.rmtree(FOLDER / "history", ignore_errors=True)
    place = f"checkpoints.path={FOLDER / 'history'}"
    seconds = _run("backfill", f"log:{FOLDER / 'clicks.log'}", "--here", "--no-judge", "--set", place)
    return _events("history") / seconds


def learned() -> float:
    """Events per processor second of the live learner over the log."""
    shutil.rmtree(FOLDER / "live", ignore_errors=True)
    place = f"checkpoints.path={FOLDER / 'live'}"
    seconds = _run("learn", "--start", "earliest", "--exit-when-caught-up", "--set", place)
    return _events("live") / seconds


def actors(count: int) -> float:
    """Events per second of so many actors over the Parquet files, from the end of the first block on."""
    shutil.rmtree(FOLDER / "actors", ignore_errors=True)
    seen: list[tuple[int, float]] = []
    report = BackfillReport(progress=lambda told, seconds: seen.append((told.records, seconds)))
    place = {"checkpoints.path": str(FOLDER / "actors")}
    config = load_config(FOLDER / "tripletd.toml", place)
    job = BackfillJob(_days(), mapping=str(FOLDER / "mapping.toml"), shards=count, judged=False)
    backfill(config, job, report)
    (first, began), (last, ended) = seen[0], seen[-1]
    return (last - first) / (ended - began)
