"""OASIS and its kin: learners of one matrix, in the forms that the papers and the product score with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from learners import (
    Averaged,
    Dissim,
    DissimConfig,
    Lego,
    LegoConfig,
    Oasis,
    OasisConfig,
    OasisSoftmax,
    OasisSoftmaxConfig,
)
from tests.results.data import MOST_TRIPLETS, Space, Task
from tests.results.judge import Scorer
from tests.results.systems import Fits, Forms, System, best_by_row, bilinear, formed, trained

SERVED = "OASIS, served"
"""What other rows are compared with."""
CS = (0.03, 0.1, 0.3, 1.0)
MOST_OF_SOME = 80_000
"""Triplets of those that cost ten times as much."""
MOST_OF_SLOW = 40_000
"""Triplets of learners whose step changes all of W."""


def raw(learner: Any, space: Space) -> tuple[Scorer, Any]:
    """q^T W p as the paper has it."""
    W = np.array(learner.W)
    return bilinear(space.dense, W), W


def normalised(learner: Any, space: Space) -> tuple[Scorer, Any]:
    """q^T W p / sqrt(p^T W p), without any projection."""
    W = np.array(learner.W)
    return bilinear(space.dense, W, normalised=True), W


def projected(learner: Any, space: Space) -> tuple[Scorer, Any]:
    """The symmetric part of W."""
    W = (learner.W + learner.W.T) / np.float32(2)
    return bilinear(space.dense, W), W


def psd_after(learner: Any, space: Space) -> tuple[Scorer, Any]:
    """The positive semi-definite part of sym(W), once."""
    return formed(space, learner.form(normalised=False)), None


def served(learner: Any, space: Space) -> tuple[Scorer, Any]:
    """The form that answers: PSD, its eigenvalues to the power 1.5, normalised."""
    return formed(space, learner.form()), None


def served_plain(learner: Any, space: Space) -> tuple[Scorer, Any]:
    """The same at power 1: the learned cosine."""
    return formed(space, learner.form(power=1.0)), None


def as_learned(learner: Any, space: Space) -> tuple[Scorer, Any]:
    """The learner's own similarity."""
    frozen = learner.clone()
    scores: Scorer = lambda queries, gallery: frozen.similarity(space.rows(queries), space.rows(gallery))
    return scores, frozen.W


OF_OASIS: Forms = {
    "OASIS, as learned (q^T W p)": raw,
    "OASIS, normalised": normalised,
    "Proj-OASIS": projected,
    "OASIS, PSD once after": psd_after,
    "OASIS, PSD and normalised": served_plain,
    SERVED: served,
}


def oasis(task: Task) -> Fits:
    """Plain OASIS; each row chooses its own C and stop."""
    space = task.space

    def settings() -> Iterator[Fits]:
        for C in CS:
            learner = Oasis(space.dim, OasisConfig(C=C, start=space.start))
            yield trained(task, space, learner, OF_OASIS, MOST_TRIPLETS, f"C = {C:g}")

    return best_by_row(settings())


def online(task: Task) -> Fits:
    """OASIS that is kept symmetric at every step."""
    forms: Forms = {"Online-Proj-OASIS": raw, "Online-Proj-OASIS, served": served}
    return best_by_row(
        trained(
            task,
            task.space,
            Oasis(task.space.dim, OasisConfig(C=C, symmetric="online", start=task.space.start)),
            forms,
            MOST_TRIPLETS,
            f"C = {C:g}",
        )
        for C in CS
    )


def scheduled(task: Task) -> Fits:
    """OASIS whose W is made PSD after each so many events while it learns."""
    forms: Forms = {"OASIS, PSD while learning": raw, "OASIS, PSD while learning, served": served}
    return best_by_row(
        trained(
            task,
            task.space,
            Oasis(task.space.dim, OasisConfig(C=C, psd_every=every, start=task.space.start)),
            forms,
            MOST_OF_SOME,
            f"C = {C:g}, every {every:,}",
        )
        for C in CS[1:3]
        for every in (2_500, 10_000)
    )


def averaged(task: Task) -> Fits:
    """The running mean of W."""
    forms: Forms = {"OASIS averaged": raw, "OASIS averaged, served": served}
    return best_by_row(
        trained(
            task,
            task.space,
            Averaged(task.space.dim, OasisConfig(C=C, start=task.space.start)),
            forms,
            MOST_TRIPLETS,
            f"C = {C:g}",
        )
        for C in CS[1:]
    )


def dissim(task: Task) -> Fits:
    """Dissim-OASIS."""
    forms: Forms = {"Dissim-OASIS": as_learned, "Dissim-OASIS, served": served}
    return best_by_row(
        trained(
            task,
            task.space,
            Dissim(task.space.dim, DissimConfig(C=C, start=task.space.start)),
            forms,
            MOST_TRIPLETS,
            f"C = {C:g}",
        )
        for C in CS[:3]
    )


def softmax(task: Task) -> Fits:
    """The product's default for one view."""
    forms: Forms = {"oasis-softmax, served": served}
    return best_by_row(
        trained(
            task,
            task.space,
            OasisSoftmax(task.space.dim, OasisSoftmaxConfig(C=C, temperature=heat, start=task.space.start)),
            forms,
            MOST_OF_SOME,
            f"C = {C:g}, temperature {heat:g}",
        )
        for C in (0.1, 0.3)
        for heat in (0.3, 0.7)
    )


def lego(task: Task) -> Fits:
    """LEGO."""
    forms: Forms = {"LEGO": as_learned, "LEGO, served": served}
    return best_by_row(
        trained(
            task,
            task.space,
            Lego(task.space.dim, LegoConfig(eta=eta, start=task.space.start)),
            forms,
            MOST_OF_SLOW,
            f"eta = {eta:g}",
        )
        for eta in (0.02, 0.08, 0.32)
    )


SYSTEMS = (
    System("oasis", tuple(OF_OASIS), oasis),
    System("online", ("Online-Proj-OASIS", "Online-Proj-OASIS, served"), online),
    System("scheduled", ("OASIS, PSD while learning", "OASIS, PSD while learning, served"), scheduled),
    System("averaged", ("OASIS averaged", "OASIS averaged, served"), averaged),
    System("dissim", ("Dissim-OASIS", "Dissim-OASIS, served"), dissim),
    System("softmax", ("oasis-softmax, served",), softmax),
    System("lego", ("LEGO", "LEGO, served"), lego),
)
