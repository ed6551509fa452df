"""A learner and its oracle, as the laws see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners import Learner
from learners.keyed import CLOCK

from .oracle_omks import OmksOracle
from .oracle_step import Oracle
from .oracle_tether import TetheredOracle

DIM = 12


@dataclass(frozen=True)
class UnderTest:
    """A learner by its class and settings, and the oracle that says what it must compute.

    learner: made by (dim, settings), and gone on with by `from_state(arrays, settings)`. settings, oracle:
    for a dimension. inputs: kinds of rows it takes. least_dim: of its vectors, where it cuts them into views.
    passive_counts: an event that moves nothing still counts in what is scored with. full_step: the largest
    tau of an event of weight 1; None where none is stated.
    """

    name: str
    learner: Any
    settings: Callable[[int], Any]
    oracle: Callable[[int], Oracle]
    inputs: tuple[str, ...] = ("dense", "sparse")
    least_dim: int = 1
    passive_counts: bool = False
    full_step: float | None = 0.1

    def make(self, dim: int = DIM) -> Learner:
        """Before any event."""
        made: Learner = self.learner(dim, self.settings(dim))
        return made

    def restored(self, arrays: Mapping[str, NDArray[Any]], dim: int = DIM, copy: bool = True) -> Learner:
        """Going on from saved arrays."""
        made: Learner = self.learner.from_state(arrays, self.settings(dim), copy=copy)
        return made

    def __str__(self) -> str:
        return self.name


def decided(oracle: Oracle, events: int) -> int:
    """How many of the events learned came before one in which rounding alone decides who was right."""
    tied = oracle.tied if isinstance(oracle, OmksOracle | TetheredOracle) else []
    return tied.index(True) if True in tied else events


def bits(learner: Learner) -> dict[str, bytes]:
    """The state, to the bit."""
    return {name: np.ascontiguousarray(array).tobytes() for name, array in learner.state().items()}


def saved(learner: Learner) -> dict[str, NDArray[Any]]:
    """The state, copied."""
    return {name: array.copy() for name, array in learner.state().items()}


def without_counters(state: dict[str, bytes]) -> dict[str, bytes]:
    """A state without `events` and the clock of keys, which count what came, also where nothing was learned
    from it."""
    return {name: array for name, array in state.items() if name not in ("events", CLOCK)}
