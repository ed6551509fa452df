"""What every learner offers; the laws in the tests run over all of them. `learners.base` has what they share.

A learner is named arrays (its state), settings, a step and what it is served as; who keeps, moves or serves
it knows no more than this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from learners.block import TripletBatch
from learners.forms.quadratic import ServedForm
from learners.outcome import StepInfo
from learners.steps import Steps


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

    def learn_many(self, batch: TripletBatch, /, weights: NDArray[Any] | None = None) -> StepInfo:
        """Apply a batch in order; bit for bit the same as `learn_one` for each, however it is cut.

        weights: [n] importance of each event, None for 1. A malformed row is an outcome, never a change.
        """
        ...

    def taken(
        self, batch: TripletBatch, info: StepInfo, weights: NDArray[Any] | None = None
    ) -> Sequence[Steps]:
        """What another copy must `replay` to reach the bits that `learn_many(batch, weights)`, which gave
        `info`, left. All of one kind: `StepBatch`, or `TripletSteps` where a step has no shorter form.

        Copies. Pure: the state is neither read nor changed, so it may run later, and in another thread than
        the steps. Raises BlockError when `info` is of another number of events.
        """
        ...

    def replay(self, steps: Steps) -> None:
        """Take steps again that another copy took (`taken`): the bits it has. Raises BlockError for steps
        that do not fit."""
        ...

    def similarity(self, queries: Any, items: Any) -> NDArray[np.float32]:
        """Scores [queries, items], float32, by the paper's formula."""
        ...

    def form(self, normalised: bool = True) -> ServedForm:
        """What it is served as, independent of what is learned later."""
        ...

    def state(self) -> dict[str, NDArray[Any]]:
        """What the next step needs, nothing else; read-only views that change with the next step.

        Names, shapes and dtypes follow from the settings and the dimension alone (a budget is a capacity),
        so that another copy can have its memory ready. No name holds a dot.
        """
        ...

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], config: Any, copy: bool = True) -> Self:
        """A learner that goes on from saved arrays. copy=False takes the large ones over without a copy:
        they must be writable then, and steps change them in place.

        Raises StateError naming the array that is missing or does not fit.
        """
        ...

    def clone(self) -> Self:
        """An independent copy."""
        ...

    def warm_up(self) -> None:
        """Do now what the first event would otherwise wait for."""
        ...
