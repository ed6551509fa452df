"""Figures of approximate search behind its recall guard, before and after a strong change of W."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from daemon.replica.model import ModelId
from daemon.replica.view import View
from daemon.serve.items.display import DisplayFile
from daemon.serve.items.index import ItemIndex
from daemon.serve.items.parts import Rows
from daemon.serve.retrieve import AnnSettings, Guarded
from daemon.serve.retrieve.norms import Preparer
from daemon.serve.retrieve.part import folded_queries, near_enough, nearest
from learners import DenseBlock, ServingForm
from streams.packed import Packed
from tests.benchmarks.harness import Figure

COUNT, DIM, TOLD, GROUPS, TOP, QUERIES, LEAST = 100_000, 128, 96, 1_000, 10, 300, 0.95
WHAT = (
    f"share of the exact top {TOP} over {QUERIES} queries that the guard did not ask; {COUNT:,} items in "
    f"{GROUPS:,} groups, d = {DIM}, a W that turns from the {TOLD} dimensions that tell the groups apart to "
    f"the others; serve.ann_recall = {LEAST}"
)

Floats = NDArray[np.float32]


def items() -> Floats:
    """Groups of items around random centres, which differ in their first dimensions alone."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((GROUPS, DIM), np.float32)
    centres[:, TOLD:] = 0
    noise = rng.standard_normal((COUNT, DIM), np.float32)
    return np.asarray(centres[rng.integers(0, GROUPS, COUNT)] + 0.5 * noise, np.float32)


def changed() -> Floats:
    """A W that looks at what the groups, and so the cells, do not tell."""
    return np.diag(np.where(np.arange(DIM) < TOLD, 0.1, 1)).astype(np.float32)


def figures() -> list[Figure]:
    """Recall after the change, with what the width of before would have found, and the speed of both."""
    values = items()
    index = ItemIndex("map", DisplayFile())
    ids = Packed.of_texts(map(str, range(COUNT)))
    index.load([Rows(ids, DenseBlock(values), [()] * COUNT, Packed.of([b""] * COUNT))])
    heard: list[Guarded] = []
    preparer = Preparer(AnnSettings(LEAST), heard.append)
    asked = DenseBlock(values[np.random.default_rng(2).choice(COUNT, QUERIES, replace=False)])
    detail: dict[str, float] = {}
    value, before = 0.0, 0
    with threadpool_limits(limits=1):
        for word, W in (("before", np.eye(DIM, dtype=np.float32)), ("after", changed())):
            view = View(ModelId(1), "map", ServingForm.from_matrix(W), 0)
            ready = preparer.norms(view, index.snapshot).parts[index.snapshot.parts[0].serial]
            folded = folded_queries(view, asked)
            exact, exact_s = _timed(lambda: nearest(ready, folded, None, TOP)[1])
            search = nearest if ready.width is None else near_enough
            found, found_s = _timed(lambda: search(ready, folded, None, TOP)[1])
            value = _share(exact, found)
            detail |= {f"recall_{word}": round(value, 4), f"cells_searched_{word}": ready.width or 0}
            detail[f"times_exact_speed_{word}"] = round(exact_s / found_s, 2)
            if word == "before":
                before = ready.width or 1
        narrow = near_enough(replace(ready, width=before), folded, None, TOP)[1]
    detail["recall_after_at_the_width_of_before"] = round(_share(exact, narrow), 4)
    return [Figure("ann_recall_after_change", round(value, 4), "share", WHAT, 1, detail)]


def _share(exact: NDArray[np.int64], found: NDArray[np.int64]) -> float:
    pairs = zip(exact, found, strict=True)
    return float(np.mean([len(set(truth.tolist()) & set(rows.tolist())) / TOP for truth, rows in pairs]))


def _timed(search: object, repeats: int = 5) -> tuple[NDArray[np.int64], float]:
    """What it found, and the median of its seconds."""
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        rows = search()  # type: ignore[operator]
        seconds.append(time.perf_counter() - begin)
    return rows, statistics.median(seconds)
