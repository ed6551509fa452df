"""Figures of approximate search behind its recall guard, before and after a strong change of W."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from daemon.replica.view import ModelId, View
from daemon.serve.items.display import DisplayFile
from daemon.serve.items.index import ItemIndex
from daemon.serve.items.snapshot import PartRows
from daemon.serve.retrieve import AnnSettings
from daemon.serve.retrieve.norms import Preparer
from daemon.serve.retrieve.part import ReadyPart, folded_queries, near_enough, nearest
from learners import DenseBlock, ServingForm
from learners.search import TopK
from streams.ids import Packed
from tests.benchmarks.harness import Figure

COUNT, DIM, TOLD, GROUPS, TOP, QUERIES, LEAST = 100_000, 128, 96, 1_000, 10, 300, 0.95
WHAT = (
    f"least share of the exact top {TOP} after the changes, over {QUERIES} queries not of the guard; "
    f"{COUNT:,} items in {GROUPS:,} groups, d = {DIM}; W turns from the {TOLD} dimensions that tell the "
    f"groups apart to the others, in two steps; serve.ann_recall = {LEAST}"
)

WEIGHTS = {"before": 1.0, "turned": 0.27, "away": 0.1}
"""Of the dimensions that tell the groups apart, against the others, in each W."""

Floats = NDArray[np.float32]


def items() -> Floats:
    """Groups of items around random centres, which differ in their first dimensions alone."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((GROUPS, DIM), np.float32)
    centres[:, TOLD:] = 0
    noise = rng.standard_normal((COUNT, DIM), np.float32)
    return np.asarray(centres[rng.integers(0, GROUPS, COUNT)] + 0.75 * noise, np.float32)


def figures() -> list[Figure]:
    """Recall behind the guard for each W, with what the width of before would have found, and the speed."""
    values = items()
    index = ItemIndex("map", DisplayFile())
    ids = Packed.of_texts(map(str, range(COUNT)))
    index.load([PartRows(ids, DenseBlock(values), [()] * COUNT, Packed.of([b""] * COUNT))])
    preparer = Preparer(AnnSettings(LEAST))
    asked = DenseBlock(values[np.random.default_rng(2).choice(COUNT, QUERIES, replace=False)])
    detail: dict[str, float] = {}
    recalls, before = [], None
    kept = []  # so that the cells are made once
    with threadpool_limits(limits=1):
        for word, weight in WEIGHTS.items():
            W = np.diag(np.where(np.arange(DIM) < TOLD, weight, 1)).astype(np.float32)
            view = View(ModelId(1), "map", ServingForm.from_matrix(W), 0)
            ready = preparer.norms(view, index.snapshot).parts[index.snapshot.parts[0].serial]
            kept.append(ready)
            folded = folded_queries(view, asked)
            exact, exact_s = _timed(nearest, ready, folded)
            found, found_s = _timed(nearest if ready.width is None else near_enough, ready, folded)
            recalls.append(_share(exact, found))
            before = before or ready.width
            narrow = near_enough(replace(ready, width=before), folded, None, TOP)[1]
            detail[f"{word}_recall"] = round(recalls[-1], 4)
            detail[f"{word}_cells"] = ready.width or 0
            detail[f"{word}_times_exact_speed"] = round(exact_s / found_s, 2)
            detail[f"{word}_recall_at_the_width_of_before"] = round(_share(exact, narrow), 4)
    return [Figure("ann_recall_after_change", round(min(recalls[1:]), 4), "share", WHAT, 1, detail)]


def _share(exact: NDArray[np.int64], found: NDArray[np.int64]) -> float:
    pairs = zip(exact, found, strict=True)
    return float(np.mean([len(set(truth.tolist()) & set(rows.tolist())) / TOP for truth, rows in pairs]))


def _timed(
    search: Callable[..., TopK], ready: ReadyPart, folded: Floats, repeats: int = 5
) -> tuple[NDArray[np.int64], float]:
    """The rows it found, and the median of its seconds."""
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        rows = search(ready, folded, None, TOP)[1]
        seconds.append(time.perf_counter() - begin)
    return rows, statistics.median(seconds)
