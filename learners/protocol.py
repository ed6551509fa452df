"""What every learner offers; the laws in the tests run over all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from learners.batch import TripletBatch
from learners.outcome import StepInfo
from learners.steps import StepBatch


class Learner(Protocol):
    """A similarity learned one triplet at a time. Scoring never changes it; it keeps no reference to its
    input."""

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        ...

    def learn_one(self, query: Any, clicked: Any, skipped: Any) -> StepInfo:
        """Apply one triplet; the info holds one entry."""
        ...

    def learn_many(self, batch: TripletBatch, weights: NDArray[Any] | None = None) -> StepInfo:
        """Apply a batch in order; bit for bit the same as `learn_one` for each."""
        ...

    def replay(self, steps: StepBatch) -> None:
        """Take steps again that `learn_many` of another copy took (`taken_steps`): the bits it has. Raises
        BlockError for steps that do not fit."""
        ...

    def similarity(self, queries: Any, items: Any) -> NDArray[np.float32]:
        """Scores [queries, items], float32."""
        ...

    def state(self) -> dict[str, NDArray[Any]]:
        """What the next step needs, nothing else; read-only views that change with the next step."""
        ...

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], config: Any) -> Self:
        """A learner that goes on from saved arrays. Raises StateError naming the array that does not fit."""
        ...

    def clone(self) -> Self:
        """An independent copy."""
        ...

    @staticmethod
    def warm_up() -> None:
        """Do now what the first event would otherwise wait for."""
        ...
