"""How steps are taken: by which algorithm, where W begins, and how large they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from learners import OasisSoftmax, OasisSoftmaxConfig
from learners.block import DenseBlock, TripletBatch
from learners.maps.base import Start
from streams.feed.options import FeedSettings
from tests.quality.bench.geometry import Space
from tests.quality.bench.sets import Floats, Ints
from tests.quality.bench.stepping import step_dense, step_sparse

Doubles = npt.NDArray[np.float64]
Algorithm = Literal["oasis", "oasis-softmax"]
AT_ONCE = 1_000
"""Triplets whose rows are copied together."""


@dataclass(frozen=True)
class Learning:
    """start: what W_0 is. C: aggressiveness of OASIS. negative: weight of a drawn object there, which falls
    from falls_from events on (0: never)."""

    start: Start = "identity"
    C: float = 0.1
    negative: float = 1.0
    algorithm: Algorithm = "oasis"
    falls_from: int = 0

    def bounds(self, drawn: npt.NDArray[np.bool_], before: int = 0) -> Doubles:
        """C of each step; before: how many were taken already."""
        fed = FeedSettings(negative_weight=self.negative, negative_falls_from=self.falls_from)
        C = np.full(len(drawn), self.C)
        at = np.flatnonzero(drawn)
        C[at] *= [fed.weight_of_drawn(before + int(one)) for one in at]
        return C


def step(W: Floats, space: Space, rows: Ints, C: Doubles) -> Floats:
    """W after the triplets, which is overwritten."""
    if isinstance(space.Z, np.ndarray):
        step_dense(W, space.Z, rows, C)
        return W
    return step_sparse(W, space.Z, rows, C)


class Learner:
    """What triplets teach in a space, by the algorithm's default settings but for what `how` says."""

    def __init__(self, space: Space, how: Learning) -> None:
        self._space, self._how, self._W, self._taken = space, how, space.first(how.start), 0
        config = OasisSoftmaxConfig(C=how.C, start=np.diag(self._W).copy())
        self._both = OasisSoftmax(space.dim, config) if how.algorithm == "oasis-softmax" else None

    @property
    def W(self) -> Floats:
        """The learned matrix as a new one, float32 [d, d]."""
        return self._W.copy() if self._both is None else self._both.W

    @property
    def familiarity(self) -> Floats | None:
        """What shows how much a query has in common with what was learned, as a new matrix; None: W does."""
        return None if self._both is None else self._both.oasis.W.copy()

    def take(self, rows: Ints, drawn: npt.NDArray[np.bool_]) -> None:
        """Learn triplets in order, int64 [3, n]; drawn: which of them were drawn from the catalog."""
        if self._both is None:
            self._W = step(self._W, self._space, rows, self._how.bounds(drawn, self._taken))
            self._taken += len(drawn)
            return
        for start in range(0, rows.shape[1], AT_ONCE):
            part = rows[:, start : start + AT_ONCE]
            self._both.learn_many(TripletBatch(*(DenseBlock(self._space.Z[one]) for one in part)))
