"""Publishing and loading a state in a bucket beside a folder, on a server of S3's protocol on loopback.

`python -m tests.benchmarks.bucket`: medians of several, in one run.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from checkpoints import LocalStore, VersionMeta, VersionStore
from tests.benchmarks.harness import Figure
from tests.harness.s3_server import s3_server

MB, TIMES = 150, 5


def figures() -> list[Figure]:
    """The one figure."""
    found = measure()
    ratio = found["load_cached_s"] / found["load_folder_s"]
    return [Figure("bucket_cached_load_vs_folder", round(ratio, 3), "ratio", "a folder", TIMES, found)]


def measure() -> dict[str, float]:
    """Seconds of each, medians."""
    arrays = {"W": np.random.default_rng(0).standard_normal((MB * 250_000,), np.float32)}
    with tempfile.TemporaryDirectory() as place, s3_server(Path(place) / "server") as server:
        folder = VersionStore(LocalStore(Path(place) / "folder"))
        bucket = VersionStore(server.store("bench", timeout_s=60.0))
        cached = VersionStore(server.store("bench", timeout_s=60.0, cache=Path(place) / "cache"))
        found: dict[str, float] = {}
        for name, versions in (("folder", folder), ("bucket", bucket)):
            epoch = versions.claim()
            found[f"publish_{name}_s"] = _median(
                lambda v=versions, e=epoch: v.publish(e, arrays, VersionMeta())
            )
        for name, versions in (("folder", folder), ("bucket", bucket)):
            found[f"load_{name}_s"] = _median(lambda v=versions: v.load(1))
        cached.load(1)
        found["load_cached_s"] = _median(lambda: cached.load(1))
        found["seen_after_s"] = _seen(bucket, VersionStore(server.store("bench")))
    return {"state_mb": MB, **found}


def main() -> int:
    """Print the figures as JSON."""
    json.dump({"times": TIMES, **measure()}, sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0


def _median(act: Callable[[], object]) -> float:
    took = []
    for _ in range(TIMES):
        began = time.perf_counter()
        act()
        took.append(time.perf_counter() - began)
    return round(statistics.median(took), 3)


def _seen(writer: VersionStore, reader: VersionStore, every_s: float = 0.05) -> float:
    """Seconds from a small version's being durable until one who asks every `every_s` lists it: median."""
    epoch, took = writer.claim(), []
    known = max(reader.listing.poll())
    for _ in range(TIMES * 4):
        durable: list[float] = []

        def publish(durable: list[float] = durable) -> None:
            writer.publish(epoch, {"W": np.zeros(4, np.float32)}, VersionMeta())
            durable.append(time.perf_counter())

        thread = threading.Thread(target=publish)
        thread.start()
        while max(reader.listing.poll()) <= known:
            time.sleep(every_s)
        seen = time.perf_counter()
        thread.join()
        known = max(reader.listing.poll())
        took.append(max(0.0, seen - durable[0]))
    return round(statistics.median(took), 3)


if __name__ == "__main__":
    sys.exit(main())
