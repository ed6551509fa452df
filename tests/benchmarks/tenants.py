"""Tenants in one gigabyte: `learn`'s state with 10,000 models by key of `loreta`, started from a shared W.

    python -m tests.benchmarks.tenants [--rank 8] [--keys 10000]

In a process of its own: memory (RSS, imports included) after every key has learned, steps/s over all keys in
random order, the seconds that it takes to continue from a version, a version's size, and for how long
learning stands still while one is captured. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from checkpoints.local import LocalStore
from checkpoints.manifest import VersionMeta
from checkpoints.publisher import AsyncPublisher, Published
from checkpoints.versions import VersionStore
from learners.keyed import Keyed, KeyedConfig
from learners.loreta import Loreta, LoretaConfig
from tests.benchmarks.harness import Figure

DIM = 384
BATCH = 500


def figures() -> list[Figure]:
    """The one figure; in a process of its own, whose memory is measured."""
    words = [sys.executable, "-m", "tests.benchmarks.tenants"]
    found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    against = f"{found['keys']:,} models by key at {DIM} dimensions, all of which have learned"
    return [Figure("tenants_rss_mb", found["rss_mb_all_keys_used"], "MB", against, 1, found)]


def rss_mb() -> float:
    """Resident anonymous memory of this process: what cannot be dropped, in 10^6 bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) * 1024 / 1e6


def measure(keys: int, rank: int, per_key: int) -> dict[str, Any]:
    """All of it, with `per_key` events for each key."""
    rng = np.random.default_rng(0)
    start = (np.eye(DIM) + rng.normal(0, 0.02, (DIM, DIM))).astype(np.float32)
    before = rss_mb()
    config = KeyedConfig.of(Loreta, LoretaConfig(rank=rank, start=start), slots=keys)
    Loreta.warm_up()
    keyed = Keyed(DIM, config)
    untouched = rss_mb()
    names = np.array([f"tenant-{n}".encode() for n in range(keys)])
    order = np.concatenate([rng.permutation(keys) for _ in range(per_key)])
    seconds, steps = 0.0, 0
    for at in range(0, len(order), BATCH):
        part = order[at : at + BATCH]
        rows = rng.normal(size=(3, len(part), DIM)).astype(np.float32)
        rows /= np.linalg.norm(rows, axis=2, keepdims=True)
        began = time.perf_counter()
        keyed.learn_many(*rows, keys=names[part])
        seconds += time.perf_counter() - began
        steps += len(part)
    full = rss_mb()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        versions = VersionStore(LocalStore(Path(folder)))
        publisher = AsyncPublisher(versions, versions.claim())
        publisher.prepare(keyed.state())
        results = []
        for _ in range(3):
            time.sleep(2)
            assert publisher.begin(keyed.state(), VersionMeta())
            done = publisher.drain()
            assert isinstance(done, Published)
            results.append(done)
        writing = rss_mb()
        publisher.close()
        began = time.perf_counter()
        loaded = versions.load(results[-1].manifest.number)
        read = time.perf_counter() - began
        began = time.perf_counter()
        del keyed
        again = Keyed.from_state(loaded.arrays, config, copy=False)
        restored = time.perf_counter() - began
        assert len(again.directory) == keys
    return {
        "keys": keys,
        "dim": DIM,
        "rank": rank,
        "events_per_key": per_key,
        "rss_mb_imports": round(before),
        "rss_mb_no_key_used": round(untouched),
        "rss_mb_all_keys_used": round(full),
        "rss_mb_while_publishing": round(writing),
        "steps_per_second": round(steps / seconds),
        "version_mb": round(results[-1].bytes / 1e6),
        "stall_seconds": round(float(np.median([one.stall_seconds for one in results])), 3),
        "publish_seconds": round(float(np.median([one.seconds for one in results])), 2),
        "read_seconds": round(read, 2),
        "restore_seconds": round(restored, 2),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--per-key", type=int, default=10)
    given = parser.parse_args()
    print(json.dumps(measure(given.keys, given.rank, given.per_key), indent=1))
