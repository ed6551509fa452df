"""Figures of the bare OASIS step: our kernel over a C loop, NumPy, river and Vowpal Wabbit; and of its
relatives over it."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from learners import Oasis, OasisConfig, TripletBatch
from learners.distance import Dissim, DissimConfig
from tests.benchmarks import step_rivals
from tests.benchmarks.harness import Figure, ratio_figure
from tests.benchmarks.triplets import random_triplets


def kernel(batch: TripletBatch) -> Callable[[], float]:
    """OASIS on the whole batch from W = I."""
    return _timed(Oasis(batch.query.dim, OasisConfig(C=step_rivals.C)), batch)


def relatives(batch: TripletBatch) -> list[Figure]:
    """OASIS kept symmetric, and Dissim-OASIS, over plain OASIS: at 70 non-zeros they change twice and four
    times as many entries of W."""
    dim, C = batch.query.dim, step_rivals.C
    plain = kernel(batch)
    others: dict[str, Oasis | Dissim] = {
        "oasis_symmetric_vs_oasis": Oasis(dim, OasisConfig(C, "online")),
        "dissim_step_vs_oasis": Dissim(dim, DissimConfig(C)),
    }
    what = "the plain OASIS step; d = 10,000, 70 non-zeros, C = 0.1"
    return [
        ratio_figure(name, what, _timed(learner, batch), plain, repeats=5) for name, learner in others.items()
    ]


def _timed(learner: Oasis | Dissim, batch: TripletBatch) -> Callable[[], float]:
    """Events per second of the whole batch, every page touched before the clock starts."""

    def run() -> float:
        learner.W.fill(0.0)
        np.fill_diagonal(learner.W, 1.0)
        begin = time.perf_counter()
        learner.learn_many(batch)
        return len(batch.query) / (time.perf_counter() - begin)

    return run


def figures(vw_python: str | None) -> list[Figure]:
    """All step figures; Vowpal Wabbit only where `vw_python` names an interpreter that has it."""
    batch = random_triplets()
    ours = kernel(batch)
    what = "d = 10,000, 70 non-zeros, ids in random order, 20,000 triplets, C = 0.1"
    measured = [
        ratio_figure(
            "oasis_step_vs_c",
            f"C loop with prefetch, -O3 -march=native -ffast-math; {what}",
            ours,
            step_rivals.c_loop(batch),
            repeats=11,
        ),
        ratio_figure(
            "oasis_step_vs_numpy",
            f"NumPy fancy indexing; {what}",
            ours,
            step_rivals.numpy_loop(batch),
            repeats=5,
        ),
        ratio_figure(
            "oasis_step_vs_river",
            f"river PAClassifier on the outer product; {what}",
            ours,
            step_rivals.river_loop(batch),
            repeats=5,
        ),
    ]
    if vw_python:
        rival = step_rivals.vowpal_wabbit(batch, vw_python)
        against = f"Vowpal Wabbit {step_rivals.VW_OPTIONS}; {what}"
        measured.append(ratio_figure("oasis_step_vs_vw", against, ours, rival, repeats=5))
    return measured + relatives(random_triplets(5_000))
