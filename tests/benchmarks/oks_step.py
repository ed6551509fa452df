"""Figures of the OMKS step over a full support set, at 1,000 and at 15,000 distinct objects.

Events come in batches of EVENTS; the learner works out the kernel values of a few of them together, the rival
takes one after another. Both are one thread, and processor time is what counts: by the clock, a run that
another process interrupts would seem slow. Nothing is remembered between batches: every kernel value is
worked out anew, also of objects that are kept already.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from learners import DenseBlock, TripletBatch
from learners.hedge import HedgeConfig
from learners.multikernel import Omks, OmksConfig, ViewKernels
from tests.benchmarks.harness import Figure, ratio_figure
from tests.benchmarks.oks_rival import NumpyOmks

VIEWS, WIDTH, TRIPLETS = 9, 50, 5_000
GAMMA = 2**0.5 / VIEWS**0.5
C = 1e-3
EVENTS = 40


def figures() -> list[Figure]:
    """Both figures."""
    return [_figure("oks_step_vs_numpy", 1_000), _figure("oks_step_15k_vs_numpy", 15_000)]


def _figure(name: str, count: int) -> Figure:
    rng = np.random.default_rng(0)
    objects = rng.standard_normal((count, VIEWS, WIDTH)).astype(np.float32)
    objects /= np.linalg.norm(objects, axis=2, keepdims=True) * np.float32(VIEWS**0.5)
    kept, events = _triplets(rng, count, TRIPLETS), _triplets(rng, count, EVENTS)
    settings = OmksConfig(
        tuple(ViewKernels(v * WIDTH, (v + 1) * WIDTH, gamma=GAMMA) for v in range(VIEWS)),
        C, TRIPLETS, count, hedge=HedgeConfig("hedge"),
    )  # fmt: skip
    learner = Omks(VIEWS * WIDTH, settings)
    learner.learn_many(_batch(objects, kept))
    rival = NumpyOmks(objects, kept, np.full((TRIPLETS, 4 * VIEWS), C, np.float32), GAMMA, C)
    what = (
        f"deduplicated NumPy; {learner.support.objects:,} distinct objects, {VIEWS} views of {WIDTH} x 4 "
        f"kernels, {learner.support.kept:,} triplets kept"
    )
    return ratio_figure(
        name, what, _ours(learner, _batch(objects, events)), _theirs(rival, objects, events), 7
    )


def _triplets(rng: np.random.Generator, count: int, many: int) -> NDArray[np.int64]:
    """Triplets over all objects, each used about as often as any other."""
    turns = -(-3 * many // count)
    return np.concatenate([rng.permutation(count) for _ in range(turns)])[: 3 * many].reshape(many, 3)


def _batch(objects: NDArray[np.float32], rows: NDArray[np.int64]) -> TripletBatch:
    flat = objects.reshape(len(objects), -1)
    return TripletBatch(*(DenseBlock(flat[rows[:, role]]) for role in range(3)))


def _ours(learner: Omks, batch: TripletBatch) -> Callable[[], float]:
    def run() -> float:
        begin = time.process_time()
        learner.learn_many(batch)
        return len(batch) / (time.process_time() - begin)

    return run


def _theirs(rival: NumpyOmks, objects: NDArray[np.float32], events: NDArray[np.int64]) -> Callable[[], float]:
    def run() -> float:
        begin = time.process_time()
        for q, c, s in events:
            rival.step(objects[q], objects[c], objects[s])
        return len(events) / (time.process_time() - begin)

    return run
