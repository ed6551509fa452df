"""A softmax over the objects of a minibatch, q^T W p with W = I + D: an adapter of vectors that are given.

Of unit rows (q, c, s), each event is set against all clicked and all skipped objects p_j of its minibatch,
one of n = `batch` that follow each other: its loss is -log softmax_j(q^T W p_j / temperature) at p_j = c. W
moves by Adam (Kingma, Ba, ICLR 2015) on the sum of weight x loss / n. No event is learned again.

Events that wait for their minibatch to be full are part of the state, so that what is learned is a function
of the events, however they are cut into batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learners import errors
from learners.base import Doubles, ScoredByMatrix, identity, saved_matrix
from learners.block import Float32s, TripletBatch, dense_rows
from learners.errors import ConfigError, StateError, saved, saved_count, to_write
from learners.faults import faults_of
from learners.merge import MergeRule
from learners.outcome import DEGENERATE, PASSIVE, REJECTED, UPDATED, StepInfo
from learners.softmax import LONGEST, adam_step, saved_moments, unit_rows

MOST_WAITING = 4096
LARGEST_WEIGHT = 1e6
"""A larger weight counts as this, so that no square of a gradient leaves the range of float32."""


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """Settings. temperature: from .01 to 100, what scores are divided by. rate: > 0, of Adam: about how far a
    minibatch moves an entry of W at most. batch: events of a minibatch, 1 to `MOST_WAITING`. Raises
    ConfigError."""

    temperature: float = 0.2
    rate: float = 0.001
    batch: int = 64

    def __post_init__(self) -> None:
        errors.require_number("temperature", self.temperature)
        errors.require_positive("rate", self.rate)
        errors.require_whole("batch", self.batch)
        for name, least, most in (("temperature", 0.01, 100), ("rate", 0, 1), ("batch", 1, MOST_WAITING)):
            if not least <= getattr(self, name) <= most:
                raise ConfigError(f"{name} must be from {least} to {most}, not {getattr(self, name)}")


class SoftmaxAdapter(ScoredByMatrix[AdapterConfig]):
    """A learned similarity q^T W p of `dim`-dimensional vectors, from W = I on.

    first, second: Adam's running means, float32 [dim, dim], and steps: the minibatches behind them. rows:
    float32 [3, batch, dim], queries, clicked and skipped objects of the `waiting` events, and weights:
    float32 [batch]; 0 from there on. events: how many were accepted.

    An event reports no loss; its tau is its weight where it will be learned. One whose query is zero, or that
    clicks what it skips, is degenerate. Products are BLAS's: bits repeat on one machine and library.
    """

    DEFAULT: ClassVar[AdapterConfig] = AdapterConfig()

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return len(self._matrix)

    @property
    def W(self) -> Float32s:
        """What is scored with, float32 [dim, dim]: that of the state itself."""
        return self._matrix

    def _start(self, dim: int) -> None:
        self._matrix, batch = identity(dim), self.config.batch
        self.first, self.second = np.zeros_like(self._matrix), np.zeros_like(self._matrix)
        self.rows, self.weights = np.zeros((3, batch, dim), np.float32), np.zeros(batch, np.float32)
        self.waiting = self.steps = self.events = 0

    def _live(self) -> dict[str, NDArray[Any]]:
        arrays = {name: getattr(self, name) for name in ("W", "first", "second", "rows", "weights")}
        return arrays | {name: np.array(getattr(self, name), np.int64) for name in COUNTERS}

    def _restore(self, arrays: Mapping[str, NDArray[Any]], copy: bool) -> None:
        self._matrix, batch = saved_matrix(arrays, "W", copy), self.config.batch
        self.first, self.second = saved_moments(arrays, self._matrix.shape, copy)
        self.rows = to_write(saved(arrays, "rows", np.float32, (3, batch, self.dim)), "rows", copy)
        self.weights = to_write(saved(arrays, "weights", np.float32, (batch,)), "weights", copy)
        self.waiting, self.steps, self.events = (saved_count(arrays, name) for name in COUNTERS)
        used = np.arange(batch) < self.waiting
        within = ((self.weights > 0) == used) & (self.weights <= LARGEST_WEIGHT)
        within &= np.abs(self.rows).max(axis=(0, 2)) <= LONGEST * used
        if used[-1] or not within.all():
            raise StateError("arrays rows and weights are not those of events that wait: one was altered")
        if not np.abs(self._matrix).max() < np.finfo(np.float32).max / (400 * self.dim):
            raise StateError("array W holds numbers too large to score with: it was altered")

    def _learn(self, batch: TripletBatch, weights: Doubles) -> StepInfo:
        info, each = StepInfo.empty(len(batch)), weights if len(weights) else np.ones(len(batch))
        info.reason[:] = faults_of(batch, each)
        rows = np.stack([dense_rows(block) for block in (batch.query, batch.clicked, batch.skipped)])
        rows[:, info.reason != 0] = 0
        rows = unit_rows(rows.astype(np.float64))
        info.outcome[~rows[0].any(axis=1) | (rows[1] == rows[2]).all(axis=1)] = DEGENERATE
        info.outcome[each.astype(np.float32) == 0] = PASSIVE
        info.outcome[info.reason != 0] = REJECTED
        taken = np.flatnonzero(info.outcome == UPDATED)
        info.tau[taken] = np.minimum(each[taken], LARGEST_WEIGHT)
        self.events += int(np.count_nonzero(info.outcome != REJECTED))
        while len(taken):
            part, taken = np.split(taken, [self.config.batch - self.waiting])
            here = slice(self.waiting, self.waiting + len(part))
            self.rows[:, here], self.weights[here] = rows[:, part], info.tau[part]
            self.waiting = here.stop
            if self.waiting == self.config.batch:
                self._step()
        return info

    def _step(self) -> None:
        """Learn the minibatch, which is full."""
        self.steps += 1
        G = adapter_gradient(self._matrix, self.rows, self.weights, self.config.temperature)
        adam_step(self._matrix, (self.first, self.second), G, self.config.rate, self.steps)
        self.rows[...], self.weights[...], self.waiting = 0, 0, 0


COUNTERS = ("waiting", "steps", "events")
OF_AN_ADAPTER = {
    "W": MergeRule.MEAN,
    **dict.fromkeys(("first", "second"), MergeRule.MOMENT),
    **dict.fromkeys(("rows", "weights", "waiting", "steps"), MergeRule.OWN),
    "events": MergeRule.SUM,
}
"""Who goes on keeps what waits for it and its running means, with the steps that are behind these."""


def adapter_bytes(batch: int, dim: int) -> int:
    """What a state takes: three matrices [dim, dim], and a minibatch of events."""
    return 12 * dim * dim + batch * (12 * dim + 4)


def adapter_gradient(W: Float32s, rows: Float32s, weights: Float32s, temperature: float) -> Float32s:
    """The gradient by W of a minibatch's loss, float32 [dim, dim]; rows, weights: as in `SoftmaxAdapter`."""
    queries, objects = rows[0], np.concatenate(rows[1:])
    logits = (queries @ W) @ objects.T / np.float32(temperature)
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    shares[np.diag_indices(len(queries))] -= 1
    shares *= (weights / np.float32(len(queries) * temperature))[:, None]
    return np.asarray(queries.T @ (shares @ objects), np.float32)
