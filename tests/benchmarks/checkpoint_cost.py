"""What checkpoints cost the learning rate: windows of one cadence, a version begun in each or none.

W is 10,000 x 10,000 float32 (400 MB), every page touched. Each pass swaps clicked and skipped of the last, so
every round keeps violating and every step is paid for.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import numpy as np

from checkpoints import AsyncPublisher, LocalStore, VersionMeta, VersionStore
from checkpoints.publisher import Published
from learners import Oasis, OasisConfig, TripletBatch
from tests.benchmarks.harness import Figure, ratio_figure
from tests.benchmarks.triplets import DIM, random_triplets

FOLDER = Path("bench-run") / "checkpoint-cost"
BATCH = 1_000
PAIRS = 10


class Learning:
    """A learner on an endless stream of violating triplets, with a publisher beside it."""

    def __init__(self, folder: Path) -> None:
        self._learner = Oasis(DIM, OasisConfig(C=0.1))
        np.add(self._learner.W, np.float32(0.0), out=self._learner.W)  # touch every page
        self._batches = _endless(random_triplets(10_000))
        self._store = VersionStore(LocalStore(folder))
        self._epoch = self._store.claim()
        self._store.publish(self._epoch, {"W": np.eye(2, dtype=np.float32)}, VersionMeta())
        self._publisher = AsyncPublisher(self._store, self._epoch)
        self.stalls: list[float] = []

    def window(self, seconds: float, checkpoint: bool) -> float:
        """Events per second over one window; with `checkpoint`, a version is captured when it opens."""
        begin = time.perf_counter()
        if checkpoint and not self._publisher.begin(self._learner.state(), VersionMeta()):
            raise SystemExit("the last version is still being written: the disk is slower than the cadence")
        events = 0
        while (now := time.perf_counter()) - begin < seconds:
            self._learner.learn_many(next(self._batches))
            events += BATCH
        result = self._publisher.result()
        if checkpoint:
            # A version still in flight would slow the window without one; the wait itself is in no window.
            result = result or self._publisher.drain()
            assert isinstance(result, Published), result
            self.stalls.append(result.stall_seconds)
            self._forget(result.manifest.number)
        return events / (now - begin)

    def _forget(self, number: int) -> None:
        for key in self._store.store.list(f"versions/{number:010d}/"):
            self._store.store.delete(key)


def figures(cadences: tuple[float, ...] = (5.0, 30.0)) -> list[Figure]:
    """`checkpoint_stall_ratio_5s` and `_30s`."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    measured = []
    try:
        learning = Learning(FOLDER)
        for cadence in cadences:
            learning.stalls.clear()
            figure = ratio_figure(
                f"checkpoint_stall_ratio_{cadence:g}s",
                f"the same learner without checkpoints; W 10,000 x 10,000, a version each {cadence:g} s",
                lambda seconds=cadence: learning.window(seconds, True),
                lambda seconds=cadence: learning.window(seconds, False),
                repeats=PAIRS,
            )
            figure.detail["stall_seconds_median"] = round(float(np.median(learning.stalls)), 4)
            measured.append(figure)
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
    return measured


def _endless(batch: TripletBatch) -> Iterator[TripletBatch]:
    swapped = TripletBatch(batch.query, batch.skipped, batch.clicked)
    starts = range(0, len(batch.query), BATCH)
    return cycle([one.slice(start, start + BATCH) for one in (batch, swapped) for start in starts])
