"""How steps are taken: where W begins, and how large they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from learners.maps.base import Start
from tests.quality.bench.geometry import Space
from tests.quality.bench.sets import Floats, Ints
from tests.quality.bench.stepping import step_dense, step_sparse

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Learning:
    """start: what W_0 is. C: aggressiveness. negative: weight of a drawn object."""

    start: Start = "identity"
    C: float = 0.1
    negative: float = 1.0

    def bounds(self, drawn: npt.NDArray[np.bool_]) -> Doubles:
        """C of each step."""
        return np.where(drawn, self.C * self.negative, self.C)


def step(W: Floats, space: Space, rows: Ints, C: Doubles) -> Floats:
    """W after the triplets, which is overwritten."""
    if isinstance(space.Z, np.ndarray):
        step_dense(W, space.Z, rows, C)
        return W
    return step_sparse(W, space.Z, rows, C)
