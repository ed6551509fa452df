"""A weight per column: SOML, and OASIS on a diagonal; on the vectors as they are given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from learners import (
    OasisDiagonal,
    OasisDiagonalConfig,
    SomlDa,
    SomlDaConfig,
    SomlTg,
    SomlTgConfig,
)
from learners.base import Learner
from tests.results.data import Space, Task
from tests.results.judge import Scorer
from tests.results.systems import Fits, Forms, System, best_by_row, formed, trained

MOST = 160_000
"""Triplets: d numbers are learned sooner than d^2."""

Make = Callable[[int], Learner]


def by_weights(learner: Any, space: Space) -> tuple[Scorer, Any]:
    """sum_j w_j q_j p_j, as the paper has it."""
    return formed(space, learner.as_learned()), learner.weights()


def served(learner: Any, space: Space) -> tuple[Scorer, Any]:
    """1 plus what is positive in w, normalised."""
    return formed(space, learner.form()), None


def diagonal(row: str, settings: Mapping[str, Make], task: Task) -> Fits:
    """A learner with each of its settings."""
    forms: Forms = {row: by_weights, f"{row}, served": served}

    def found() -> Iterator[Fits]:
        for told, make in settings.items():
            yield trained(task, task.given, make(task.given.dim), forms, MOST, told)

    return best_by_row(found())


def _tg(eta: float, lam: float) -> Make:
    return lambda dim: SomlTg(dim, SomlTgConfig(eta=eta, lam=lam))


def _da(gamma: float, rho: float) -> Make:
    return lambda dim: SomlDa(dim, SomlDaConfig(gamma=gamma, rho=rho))


def _oasis(C: float) -> Make:
    return lambda dim: OasisDiagonal(dim, OasisDiagonalConfig(C=C))


TG = {f"eta = {eta:g}, lambda = {lam:g}": _tg(eta, lam) for eta in (1.0, 10.0, 100.0) for lam in (1e-5, 1e-3)}
DA = {
    f"gamma = {gamma:g}, rho = {rho:g}": _da(gamma, rho)
    for gamma in (1e-5, 1e-4, 1e-3)
    for rho in (1.0, 10.0)
}
OASIS = {f"C = {C:g}": _oasis(C) for C in (0.1, 1.0, 10.0, 100.0)}
ROWS = {"OASIS-diagonal": OASIS, "SOML-TG": TG, "SOML-DA": DA}
SYSTEMS = tuple(
    System(row.lower(), (row, f"{row}, served"), partial(diagonal, row, settings), edition=2)
    for row, settings in ROWS.items()
)
