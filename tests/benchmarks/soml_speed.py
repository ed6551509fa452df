"""Figures of the bare SOML steps, events a second of one core, and how they depend on the dimension.

Timed by the processor time of the thread, which waits for nothing: what else the machine does counts less.
A diagonal metric sees only the columns that the query shares with the clicked or the skipped object, so how
many those are is part of every figure. Ids are drawn uniformly; of the 70 non-zeros of the clicked object,
and apart from that of those of the skipped one, a stated number is in the query, at other places each time.
Bags of visual words of pictures of one thing share far fewer.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from learners import SparseBlock, TripletBatch
from learners.soml import SomlDa, SomlDaConfig, SomlTg
from tests.benchmarks.harness import Figure, paired_ratio

LARGE, SMALL = 1_000_000, 10_000
NON_ZEROS, SHARED = 70, 35
COUNT = 40_000
PAPER = SomlDaConfig(gamma=1e-4, rho=1.0, lam=1e-6)
REPEATS = 11


def overlapping_triplets(dim: int, shared: int, count: int = COUNT, seed: int = 0) -> TripletBatch:
    """Triplets of unit rows; clicked and skipped hold `shared` columns of the query each."""
    rng = np.random.default_rng(seed)
    ids = np.empty((3, count, NON_ZEROS), np.int32)
    for row in range(count):
        drawn = rng.choice(dim, 3 * NON_ZEROS, replace=False).reshape(3, NON_ZEROS)
        for other in (1, 2):
            drawn[other, :shared] = rng.choice(drawn[0], shared, replace=False)
        ids[:, row] = np.sort(drawn, axis=1)
    values = rng.exponential(size=ids.shape)
    values /= np.linalg.norm(values, axis=2, keepdims=True)
    indptr = np.arange(count + 1, dtype=np.int64) * NON_ZEROS
    rows = [SparseBlock(indptr, ids[k].ravel(), values[k].astype(np.float32).ravel(), dim) for k in range(3)]
    return TripletBatch(*rows)


def from_zero(make: Callable[[], SomlDa | SomlTg], batch: TripletBatch) -> Callable[[], float]:
    """A run over the batch by a new learner whose pages have been touched; events a second."""

    def run() -> float:
        learner = make().clone()  # whose copied arrays lie in memory already
        begin = time.thread_time()
        learner.learn_many(batch)
        return len(batch) / (time.thread_time() - begin)

    return run


def figures() -> list[Figure]:
    """SOML-DA at a million dimensions, what they cost over ten thousand, and SOML-TG."""
    large, small = (overlapping_triplets(dim, SHARED) for dim in (LARGE, SMALL))
    apart = overlapping_triplets(LARGE, 0)
    dual = from_zero(lambda: SomlDa(LARGE, PAPER), large)
    cost, rates_small, rates = paired_ratio(from_zero(lambda: SomlDa(SMALL, PAPER), small), dual, REPEATS)
    what = (
        f"a second of one core's time, m = {LARGE:,}, {NON_ZEROS} non-zeros, {SHARED} of the clicked and "
        f"{SHARED} of the skipped object of which are in the query; {COUNT:,} triplets from w = 0"
    )
    ours = round(statistics.median(rates), 1)
    updated = SomlDa(LARGE, PAPER).learn_many(large).outcome == 0
    detail = {
        "shared_columns": SHARED,
        "share_updated": round(float(updated.mean()), 3),
        "slowest": round(min(rates), 1),
        "fastest": round(max(rates), 1),
        "nothing_shared_per_second": _median(from_zero(lambda: SomlDa(LARGE, PAPER), apart)),
    }
    ratio = {"large_per_second": ours, "small_per_second": round(statistics.median(rates_small), 1)}
    truncated = _median(from_zero(lambda: SomlTg(LARGE), large))
    return [
        Figure("soml_da_1m_per_second", ours, "events/s", what, REPEATS, detail),
        Figure("soml_da_1m_vs_10k", round(cost, 3), "ratio", f"m = {SMALL:,}; {what}", REPEATS, ratio),
        Figure("soml_tg_1m_per_second", truncated, "events/s", what, REPEATS, {"shared_columns": SHARED}),
    ]


def _median(run: Callable[[], float]) -> float:
    run()
    return round(statistics.median(run() for _ in range(REPEATS)), 1)
