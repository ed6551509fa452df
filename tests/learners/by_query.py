"""One model per key under the laws, whose triplets name none: the key follows from the query, so that learner
and oracle choose the same model. Three keys, as many as there are slots.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners import Block, DenseBlock, Learner, StepInfo, TripletBatch, TripletSteps, as_block
from learners.block import Float32s
from learners.keyed import Keyed

from .oracle_step import Doubles, Oracle, Step

KEYS = np.array([b"none", b"above", b"below"], "S64")


def keys_of(queries: Block) -> NDArray[np.bytes_]:
    """By the sign of each query's first column; rows may be malformed."""
    if isinstance(queries, DenseBlock):
        first = queries.values[:, 0]
    else:
        first = np.zeros(len(queries), np.float32)
        for row in range(len(queries)):
            entries = slice(int(queries.indptr[row]), int(queries.indptr[row + 1]))
            first[row] = queries.values[entries][queries.indices[entries] == 0].sum()
    return KEYS[np.where(first > 0, 1, np.where(first < 0, 2, 0))]


class ByQuery(Keyed):
    """Scores by the model of each query's key."""

    def learn_many(self, batch: TripletBatch, weights: NDArray[Any] | None = None) -> StepInfo:
        return super().learn_many(replace(batch, keys=keys_of(batch.query)), weights)

    def taken(
        self, batch: TripletBatch, info: StepInfo, weights: NDArray[Any] | None = None
    ) -> list[TripletSteps]:
        return super().taken(replace(batch, keys=keys_of(batch.query)), info, weights)

    def similarity(self, queries: Any, items: Any) -> Float32s:
        left, right = as_block(queries, self.dim, "queries"), as_block(items, self.dim, "items")
        scores = np.zeros((len(left), len(right)), np.float32)
        for key in KEYS.tolist():
            rows = np.flatnonzero(keys_of(left) == key)
            model: Learner = self.learner_of(key.decode()) or self.untrained
            scores[rows] = model.similarity(left.take(rows), right)
        return scores


class ByQueryOracle(Oracle):
    """An oracle for each key."""

    def __init__(self, make: Callable[[], Oracle]) -> None:
        self._models = {key: make() for key in (-1, 0, 1)}

    def step(self, q: Doubles, c: Doubles, s: Doubles, weight: float = 1.0) -> Step:
        return self._models[int(np.sign(q[0]))].step(q, c, s, weight)

    def score(self, q: Doubles, p: Doubles) -> float:
        return self._models[int(np.sign(q[0]))].score(q, p)
