"""The same kernels on clicks: lists of the owner's own ranking, users by position, the whole catalog, with
the learners and forms of the library."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from learners import DenseBlock, TripletBatch
from learners.hedge import HedgeConfig
from learners.multikernel import KernelConfig, Omks, OmksConfig, ViewKernels
from learners.oasis import Oasis, OasisConfig
from tests.quality.bench.retrieval import judge
from tests.quality.bench.sets import Floats, Ints, RawSet, load, unit
from tests.quality.bench.static import own_lists
from tests.quality.bench.users import Users, split

SEEDS = 1
SET, LISTS, QUERIES, COMPONENTS = "photos", 1_000, 200, 50
CS = (0.1, 1.0)


def measured(seed: int) -> dict[str, float]:
    """name -> mAP over the whole catalog, of queries that never came."""
    data, who = load(SET), split(load(SET), seed)
    X, edges = _space(data, who.asking)
    rows = Users(data, "position", seed, who).look(own_lists(SET), LISTS).rows
    judged, found = who.judged[:QUERIES], {}
    for name, learner in _learners(X, edges, rows.shape[1]):
        learner.learn_many(TripletBatch(*(DenseBlock(X[one]) for one in rows)))
        for form, made in (("as learned", learner.as_learned()), ("served", learner.form())):
            found[f"{name}, {form}"] = judge(_whole(made, X), data.labels, judged).pair[0]
    found["Euclidean"] = judge(lambda chosen: X[chosen] @ X.T, data.labels, judged).pair[0]
    return found


def _space(data: RawSet, sample: Ints) -> tuple[Floats, list[int]]:
    """50 principal directions of each view, of unit length, side by side, and where each ends."""
    parts = []
    for view in data.views.values():
        rows = view - view[sample].mean(axis=0)
        axes = np.linalg.svd(rows[sample], full_matrices=False)[2][:COMPONENTS]
        parts.append(unit(rows @ axes.T))
    edges = np.cumsum([0, *(part.shape[1] for part in parts)]).tolist()
    return np.ascontiguousarray(np.concatenate(parts, axis=1) / np.float32(np.sqrt(len(parts)))), edges


def _learners(X: Floats, edges: list[int], triplets_kept: int) -> Iterator[tuple[str, Any]]:
    for C in CS:
        yield f"OASIS, C {C:g}", Oasis(X.shape[1], OasisConfig(C=C))
        for told, centred in (("printed", False), ("centred", True)):
            kernels = (
                *(KernelConfig("rbf", sigma=sigma, centred=centred) for sigma in (0.5, 1.0, 2.0)),
                KernelConfig("cosine", centred=centred),
            )
            views = tuple(ViewKernels(start, stop, kernels) for start, stop in pairwise(edges))
            config = OmksConfig(views, C, triplets_kept, len(X), hedge=HedgeConfig("share"))
            yield f"OMKS {told}, C {C:g}", Omks(X.shape[1], config, sample=X)


def _whole(form: Any, X: Floats) -> Any:
    """Scores of some rows with all."""
    return lambda chosen: form.scores(X[chosen], X)


def lines(paths: Sequence[Path]) -> Iterator[str]:
    """A table of the cells that there are."""
    cells = [json.loads(path.read_text(encoding="utf-8"))["rows"] for path in paths if path.exists()]
    if not cells:
        return
    yield (
        f"Clicks of {LISTS:,} lists of the own ranking, the whole catalog, the library's learners "
        f"({len(cells)} seeds); Euclidean {np.mean([one['Euclidean'] for one in cells]):.3f}:"
    )
    yield ""
    yield "| | as learned | served |"
    yield "|---|---|---|"
    for name in dict.fromkeys(name.rsplit(", ", 1)[0] for name in cells[0] if name != "Euclidean"):
        values = [np.mean([one[f"{name}, {form}"] for one in cells]) for form in ("as learned", "served")]
        yield f"| {name} | {values[0]:.3f} | {values[1]:.3f} |"
