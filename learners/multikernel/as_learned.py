"""OKS and OMKS over a support set served as they were learned: f(q, p) = sum_i theta_i S_i(q, p)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from learners.block import Float32s, as_block
from learners.errors import StateError
from learners.multikernel.config import OmksConfig
from learners.multikernel.plan import make_plan
from learners.multikernel.support import SupportSet, saved_array
from learners.pieces import Pieces, batches, whole
from learners.quadratic import inverse_roots
from learners.spread import dense_rows


@dataclass(frozen=True, slots=True, eq=False)
class AsLearned:
    """f by the kernels of `config`; neither symmetric nor PSD.

    gamma: float64 [views]. theta: float32 [m], of sum 1. normalised: whether `scores` divides by
    sqrt(f(q, q) f(p, p)); a query or item whose self score is 0 then scores 0.
    """

    config: OmksConfig
    gamma: NDArray[np.float64]
    support: SupportSet
    theta: Float32s
    normalised: bool

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return int(self.support.rows.shape[1])

    def scores(self, queries: Any, items: Any) -> Float32s:
        """Scores of all pairs, raw or normalised as the form says, float32 [queries, items].

        The bits of a score do not depend on what else is asked for with it. Raises BlockError on another
        dimension or an index out of range.
        """
        left, right = as_block(queries, self.dim), as_block(items, self.dim)
        plan = make_plan(self.config, self.gamma)
        scores = self.support.scores(plan, self.theta, dense_rows(left), dense_rows(right))
        if self.normalised:
            scores *= inverse_roots(self.self_scores(left))[:, None]
            scores *= inverse_roots(self.self_scores(right))
        return scores

    def self_scores(self, items: Any, pieces: Pieces = whole) -> Float32s:
        """f(p, p) for each item, clipped at 0, float32 [n]. `pieces` changes no bit."""
        block, plan = as_block(items, self.dim), make_plan(self.config, self.gamma)
        products = np.zeros(len(block), np.float32)
        for batch in batches(len(block), self.support.tau.size, pieces):
            rows = dense_rows(block.slice(batch.start, batch.stop))
            products[batch] = [self.support.scores(plan, self.theta, row, row)[0, 0] for row in rows[:, None]]
        return np.maximum(products, 0)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint stores of it; `from_arrays` reads it back."""
        kept: dict[str, NDArray[Any]] = {name: getattr(self.support, name) for name in SupportSet.names()}
        own: dict[str, NDArray[Any]] = {
            "gamma": self.gamma,
            "theta": self.theta,
            "normalised": np.array(self.normalised, np.uint8),
        }
        return {**kept, **own}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], config: OmksConfig) -> Self:
        """The form of these arrays; config: of the learner it was made from. Raises StateError naming the
        array that is missing or does not fit."""
        rows = arrays.get("rows")
        if rows is None or rows.ndim != 3 or "normalised" not in arrays:
            raise StateError("array rows or normalised is missing, or rows has not three axes")
        gamma = saved_array(arrays, "gamma", np.empty(len(config.views)))
        if not (gamma > 0).all():
            raise StateError("array gamma must be above 0")
        support = SupportSet.read(arrays, rows.shape[1], config, make_plan(config, gamma), copy=True)
        theta = saved_array(arrays, "theta", np.empty(config.kernels, np.float32))
        return cls(config, gamma, support, theta, bool(arrays["normalised"]))
