"""Every learner, in the settings that change how it learns: the laws run over each of these lines.

To add a learner: its oracle (`oracle_*.py`, worked on paper in `test_oracle_*.py`), and one line here for
each way it can be set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from learners import Learner, Oasis, OasisConfig

from .oracle_oasis import OasisOracle
from .oracle_step import Oracle

DIM = 12


@dataclass(frozen=True)
class UnderTest:
    """A learner by its class and settings, and the oracle that says what it must compute.

    learner: made by (dim, settings), and gone on with by `from_state(arrays, settings)`. settings, oracle:
    for a dimension. inputs: kinds of rows it takes. least_dim: of its vectors, where it cuts them into views.
    """

    name: str
    learner: Any
    settings: Callable[[int], Any]
    oracle: Callable[[int], Oracle]
    inputs: tuple[str, ...] = ("dense", "sparse")
    least_dim: int = 1

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


def _oasis(name: str, **settings: Any) -> UnderTest:
    oracle = {**settings, "symmetric": settings.get("symmetric") == "online"}
    return UnderTest(name, Oasis, lambda dim: OasisConfig(**settings), lambda dim: OasisOracle(dim, **oracle))


LEARNERS = (
    _oasis("oasis"),
    _oasis("oasis-small-C", C=0.01),
    _oasis("oasis-symmetric", symmetric="online"),
    _oasis("oasis-psd", psd_every=7),
    _oasis("oasis-symmetric-psd", symmetric="online", psd_every=7),
)

EVERY = pytest.mark.parametrize("subject", LEARNERS, ids=str)
"""Each learner."""


def _with_inputs() -> Iterator[Any]:
    for one in LEARNERS:
        for kind in one.inputs:
            yield pytest.param(one, kind, id=f"{one}-{kind}")


EVERY_INPUT = pytest.mark.parametrize(("subject", "kind"), list(_with_inputs()))
"""Each learner with each kind of rows it takes."""


def bits(learner: Learner) -> dict[str, bytes]:
    """The state, to the bit."""
    return {name: np.ascontiguousarray(array).tobytes() for name, array in learner.state().items()}


def saved(learner: Learner) -> dict[str, NDArray[Any]]:
    """The state, copied."""
    return {name: array.copy() for name, array in learner.state().items()}
