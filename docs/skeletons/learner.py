"""A learner to copy: a weight per column, moved by a fixed rate on every violated triplet.

S(q, p) = sum_j w_j q_j p_j from w = 1; l = max(0, 1 - S(q, c) + S(q, s)); w <- w + rate weight q (.) (c -
s) where l > 0.

What a learner adds to `BaseLearner`: settings, arrays, a step, scores, a form, and a step worked out on
paper. Its other half are tests: an oracle written from the formula and one line in
tests/learners/learners_under_test.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learners import (
    PASSIVE,
    REJECTED,
    UPDATED,
    BaseLearner,
    DiagonalForm,
    KnownAnswer,
    StepInfo,
    TripletBatch,
    as_block,
)
from learners.block import dense_rows
from learners.errors import require_positive, saved, to_write
from learners.faults import spread_triplets


@dataclass(frozen=True, slots=True)
class PerceptronConfig:
    """Settings. rate: > 0, how far one triplet moves the weights. Raises ConfigError."""

    rate: float = 0.1

    def __post_init__(self) -> None:
        require_positive("rate", self.rate)


class Perceptron(BaseLearner[PerceptronConfig]):
    """A learned diagonal similarity. w: float64 [dim]."""

    DEFAULT: ClassVar[PerceptronConfig] = PerceptronConfig()
    # g = (0.5, 0), loss 1 - 0.5, w = (1 + 0.5, 1)
    KNOWN: ClassVar[KnownAnswer] = KnownAnswer(
        PerceptronConfig(1.0), ((1, 0), (0.5, 0), (0, 1)), 0.5, ((1.5, 0), (0, 1))
    )

    w: NDArray[np.float64]

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return len(self.w)

    def _start(self, dim: int) -> None:
        self.w = np.ones(dim)

    def _live(self) -> dict[str, NDArray[Any]]:
        return {"w": self.w}

    def _restore(self, arrays: Mapping[str, NDArray[Any]], copy: bool) -> None:
        self.w = to_write(saved(arrays, "w", np.float64, (None,)), "w", copy)

    def _learn(self, batch: TripletBatch, weights: NDArray[np.float64]) -> StepInfo:
        info, scale = StepInfo.empty(len(batch)), weights if len(weights) else np.ones(len(batch))
        (queries, clicked, skipped), (outcome, loss, tau, reason) = spread_triplets(
            batch, scale, info, slice(0, len(batch))
        )
        for t in range(len(batch)):  # a real learner does this in a kernel, see learners/kernels/soml.py
            if reason[t]:
                outcome[t] = REJECTED
                continue
            g = queries[t].astype(np.float64) * (clicked[t].astype(np.float64) - skipped[t])
            loss[t] = max(0.0, 1.0 - self.w @ g)
            outcome[t] = UPDATED if loss[t] > 0 and scale[t] > 0 else PASSIVE
            if outcome[t] == UPDATED:
                tau[t] = self.config.rate * scale[t]
                self.w += np.float64(tau[t]) * g
        return info

    def similarity(self, queries: Any, items: Any) -> NDArray[np.float32]:
        """sum_j w_j q_j p_j, float32 [queries, items]."""
        left, right = (dense_rows(as_block(x, self.dim)) for x in (queries, items))
        return ((left * self.w) @ right.T).astype(np.float32)

    def form(self, normalised: bool = True) -> DiagonalForm:
        """What it is served as: no weight below 0."""
        return DiagonalForm(np.maximum(self.w, 0).astype(np.float32), normalised)
