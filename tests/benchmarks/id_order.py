"""What columns in the order of their counts gain: steps on sparse vectors, ids at random against by count.

    python -m tests.benchmarks.id_order [--dims 2000,4000,10000,20000,30000] [--learner oasis] [--repeats 7]

The same triplets twice: with ids in random order, as a hashed or an alphabetical vocabulary has them, and
behind the map `by_count` fitted on them. Columns are drawn with Zipf's weights, 1 / (rank + 2.7), without
repetition, and weigh by a logarithm of their rank, as by idf. In turn, in one run, from the same W; the
learned W of both are compared, ids carried back: the steps are the same, sums are taken in another order.
What the map itself costs, for vectors that come with their events, is measured beside it. Prints one JSON
object per number of columns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import numpy as np

from learners import Oasis, OasisConfig, SparseBlock, TripletBatch
from learners.distance import Dissim, DissimConfig
from learners.maps import OrderMap

C = 0.1
ZIPF_SHIFT = 2.7
"""Mandelbrot's, as in running text."""
LEARNERS: dict[str, Any] = {
    "oasis": lambda dim: Oasis(dim, OasisConfig(C=C)),
    "oasis-symmetric": lambda dim: Oasis(dim, OasisConfig(C=C, symmetric="online")),
    "dissim-oasis": lambda dim: Dissim(dim, DissimConfig(C=C)),
}
COMPARED = 2_000
"""Rows of W that are compared."""


def zipf_rows(rng: np.random.Generator, count: int, ids: Any, non_zeros: int) -> SparseBlock:
    """`count` rows of `non_zeros` distinct columns of unit length; the column of rank r is called ids[r]."""
    dim = len(ids)
    ends = np.cumsum(1 / (np.arange(dim) + ZIPF_SHIFT))
    ranks = np.empty((count, non_zeros), np.int64)
    for row in range(count):
        kept: Any = np.empty(0, np.int64)
        while len(kept) < non_zeros:
            drawn = np.searchsorted(ends, ends[-1] * rng.random(8 * non_zeros))
            _, first = np.unique(np.concatenate([kept, drawn]), return_index=True)
            kept = np.concatenate([kept, drawn])[np.sort(first)]
        ranks[row] = kept[:non_zeros]
    values = rng.exponential(size=ranks.shape) * (1 + np.log1p(ranks))
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    named = np.asarray(ids, np.int32)[ranks]
    order = np.argsort(named, axis=1)
    return SparseBlock(
        indptr=np.arange(0, count * non_zeros + 1, non_zeros, dtype=np.int64),
        indices=np.take_along_axis(named, order, axis=1).ravel(),
        values=np.take_along_axis(values, order, axis=1).astype(np.float32).ravel(),
        dim=dim,
    )


def measure(name: str, dim: int, count: int, non_zeros: int, repeats: int) -> dict[str, Any]:
    """Steps per second in both orders, medians of `repeats` runs in turn, and their ratio."""
    rng = np.random.default_rng(dim)
    ids = rng.permutation(dim)
    blocks = [zipf_rows(rng, count, ids, non_zeros) for _ in range(3)]
    fitted = OrderMap.fit(blocks[1], {})
    began = time.perf_counter()
    ordered = [fitted.transform(block) for block in blocks]
    mapping = 1e6 * (time.perf_counter() - began) / count
    batches = {"random": TripletBatch(*blocks), "by_count": TripletBatch(*ordered)}
    learner = LEARNERS[name](dim)
    rates: dict[str, list[float]] = {order: [] for order in batches}
    learned = {}
    probe = rng.choice(dim, min(dim, COMPARED), replace=False)
    for turn in range(repeats + 1):
        for order, batch in batches.items():
            learner.W.fill(0.0)
            np.fill_diagonal(learner.W, 1.0)
            begin = time.perf_counter()
            learner.learn_many(batch)
            if turn:
                rates[order].append(count / (time.perf_counter() - begin))
            else:
                rows = fitted.place[probe] if order == "by_count" else probe
                learned[order] = learner.W[np.ix_(rows, rows)].copy()
    ratios = [a / b for a, b in zip(rates["by_count"], rates["random"], strict=True)]
    return {
        "learner": name,
        "dim": dim,
        "non_zeros": non_zeros,
        "steps_per_second": {order: round(statistics.median(one)) for order, one in rates.items()},
        "by_count_vs_random": round(statistics.median(ratios), 3),
        "least": round(min(ratios), 3),
        "most": round(max(ratios), 3),
        "map_us_per_event": round(mapping, 1),
        "largest_difference_of_w": float(np.abs(learned["random"] - learned["by_count"]).max()),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dims", default="2000,4000,10000,20000,30000")
    parser.add_argument("--learner", default="oasis", choices=sorted(LEARNERS))
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--non-zeros", type=int, default=80)
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    for one in given.dims.split(","):
        found = measure(given.learner, int(one), given.count, given.non_zeros, given.repeats)
        print(json.dumps(found), flush=True)
