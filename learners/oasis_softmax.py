"""OASIS and a softmax over clicked objects, learned from the same events and scored as one matrix.

Every event takes a passive-aggressive step on W_o (`learners.oasis`); every new pair of a query and an object
clicked for it is learned by a softmax against those clicked for other queries (`learners.softmax`), which
gives W_s. Both are of the same space and begin at the same diagonal. The first learns most from what a list
puts side by side, the second from what no list shows together. Scored is

    W = (W_o + (tr W_o / tr W_s) W_s) / 2.

How much a query has in common with what was learned is read off W_o alone: the softmax compares directions,
so its scores grow for no query.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learners.base import Doubles, KnownAnswer, ScoredByMatrix
from learners.block import Float32s, TripletBatch
from learners.errors import ConfigError, StateError
from learners.faults import spread_rows
from learners.oasis import Oasis, OasisConfig
from learners.outcome import REJECTED, UPDATED, StepInfo
from learners.pending import PendingSteps
from learners.psd import MAX_FULL_DIM
from learners.softmax import Softmax, SoftmaxConfig

AT_ONCE = 256
"""Triplets that are made dense together."""


@dataclass(frozen=True, slots=True)
class OasisSoftmaxConfig:
    """Settings of both: C as in `OasisConfig`; temperature, rate, anneal, batch, every and memory as in
    `SoftmaxConfig`; start: the diagonal that both begin at. Raises ConfigError.
    """

    C: float = 0.1
    temperature: float = 0.7
    rate: float = 0.4
    anneal: int = 200
    batch: int = 128
    every: int = 8
    memory: int = 4096
    start: Float32s | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        _ = self.oasis, self.softmax

    @property
    def oasis(self) -> OasisConfig:
        """Settings of the steps on triplets."""
        return OasisConfig(self.C, start=self.start)

    @property
    def softmax(self) -> SoftmaxConfig:
        """Settings of the steps on pairs."""
        return SoftmaxConfig(
            self.temperature, self.rate, self.anneal, self.batch, self.every, self.memory, self.start
        )


class OasisSoftmax(ScoredByMatrix[OasisSoftmaxConfig]):
    """A learned similarity q^T W p of `dim`-dimensional vectors.

    An event's loss and tau are those of OASIS. It has updated where either matrix changed or a pair was kept.
    """

    DEFAULT: ClassVar[OasisSoftmaxConfig] = OasisSoftmaxConfig()
    SPREADS: ClassVar[bool] = True
    # a pair alone has a softmax of 1, so W_s stays I; W_o is ((0.75, 0.25), (0, 1)), its trace 1.75
    KNOWN: ClassVar[KnownAnswer] = KnownAnswer(
        OasisSoftmaxConfig(C=0.25, batch=1, every=1, memory=1),
        ((1, 0), (0, 1), (1, 0)),
        2.0,
        ((0.8125, 0.125), (0, 0.9375)),
    )
    SHARE: ClassVar[float] = 0.5
    """Of a small change of W_o in that of W."""

    oasis: Oasis
    softmax: Softmax

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return self.oasis.dim

    @property
    def events(self) -> int:
        """How many events were accepted."""
        return self.oasis.events

    @property
    def pending(self) -> PendingSteps:
        """Steps that wait to be added to W_o."""
        return self.oasis.pending

    @property
    def W(self) -> Float32s:
        """What is scored with, float32 [dim, dim], as a new array."""
        W_o, W_s = self.oasis.W, self.softmax.W
        traces = [max(0.0, float(np.trace(one, dtype=np.float64))) for one in (W_o, W_s)]
        ratio = traces[0] / traces[1] if traces[1] else 0.0
        return np.asarray((W_o + np.float32(ratio) * W_s) / np.float32(2), np.float32)

    def _start(self, dim: int) -> None:
        if dim > MAX_FULL_DIM:
            raise ConfigError(f"oasis-softmax takes at most {MAX_FULL_DIM} dimensions, not {dim}: take oasis")
        self.oasis, self.softmax = Oasis(dim, self.config.oasis), Softmax(dim, self.config.softmax)

    def _live(self) -> dict[str, NDArray[Any]]:
        return {**self.softmax._live(), **self.oasis._live()}

    def _restore(self, arrays: Mapping[str, NDArray[Any]], copy: bool) -> None:
        self.oasis = Oasis.from_state(arrays, self.config.oasis, copy)
        self.softmax = Softmax.from_state(arrays, self.config.softmax, copy)
        # no entry of the other part is above the trace of W_o
        W_o = self.oasis.W
        largest = max(float(W_o.max()), -float(W_o.min())) + max(0.0, float(np.trace(W_o, dtype=np.float64)))
        if not largest <= float(np.finfo(np.float32).max):
            raise StateError("array W holds numbers too large to be mixed with others: it was altered")

    def _learn(self, batch: TripletBatch, weights: Doubles) -> StepInfo:
        info = self.oasis.learn_many(batch, weights if len(weights) else None)
        each = weights.astype(np.float32) if len(weights) else np.ones(len(batch), np.float32)
        for start in range(0, len(batch), AT_ONCE):
            rows = batch.slice(start, min(start + AT_ONCE, len(batch)))
            known = np.zeros(len(rows), np.uint8)  # faults are in `info` already
            queries, clicked = (
                self.softmax.in_columns(spread_rows(block, known)) for block in (rows.query, rows.clicked)
            )
            for t in range(len(rows)):
                if info.outcome[start + t] == REJECTED:
                    continue
                self.softmax.events += 1
                taken = self.softmax.take(queries[t], clicked[t], each[start + t])
                if taken == UPDATED:
                    info.outcome[start + t] = UPDATED
        return info
