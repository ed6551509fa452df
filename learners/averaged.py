"""The running average of W: what a learner of one matrix has been on average, over all events it accepted.

mean_T = (W_1 + ... + W_T)/T, W_t the matrix after event t. With W_t = W_0 + sum over i <= t of tau_i V_i,

    mean_T = W_T - U_T/T,  U_T = sum over i <= T of (i - 1) tau_i V_i,

so beside W one more array takes each step once more, with another step size: it touches as many entries as
the step, and is exact for any cut (the trick of the averaged perceptron, Freund and Schapire 1999). Rounding:
U takes the same sums as W, so the mean is as precise as W is. It forgets nothing: on a stream whose users
change, W itself is ahead of it.

Averaged rankers: one state of several learners that were trained in parallel on different triplets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from learners.block import Float32s, TripletBatch, row_blocks
from learners.dissim import Dissim, DissimConfig
from learners.errors import BlockError, ConfigError, StateError
from learners.matrix import as_state, checked_matrix, one_triplet, replay_rank_one, state_events, state_matrix
from learners.oasis import Oasis, OasisConfig
from learners.outcome import REJECTED, UPDATED, StepInfo
from learners.steps import StepBatch, Steps, TripletSteps, taken_triplets

AveragedConfig: TypeAlias = OasisConfig | DissimConfig
"""Settings of the learner whose W is averaged; `psd_every` must be 0: the mean is made PSD where it is
served."""

MAX_C = 1e6
"""Largest C: times a weight and the number of an event, a step size must stay within float32."""


PLAIN = OasisConfig()


class Averaged:
    """OASIS or Dissim-OASIS, scoring by the running average of its W. It learns exactly as that does.

    learner: what learns. sums: U, float32 [dim, dim]. Not safe for two threads at once.
    """

    learner: Oasis | Dissim
    sums: Float32s

    def __init__(self, dim: int, config: AveragedConfig = PLAIN) -> None:
        """Start from W = I. Raises ConfigError."""
        _check(config)
        self.learner = Oasis(dim, config) if isinstance(config, OasisConfig) else Dissim(dim, config)
        self.sums = np.zeros((dim, dim), np.float32)

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return self.learner.dim

    @property
    def config(self) -> AveragedConfig:
        """Settings of the learner."""
        return self.learner.config

    @property
    def events(self) -> int:
        """How many events were accepted so far: those averaged over."""
        return self.learner.events

    @property
    def W(self) -> Float32s:
        """The mean as a new matrix, float32 [dim, dim]: what is scored with and served; W = I before any
        event."""
        last, mean = self.learner.W, np.empty_like(self.sums)
        for rows in row_blocks(self.dim, self.dim):
            mean[rows] = last[rows] - self.sums[rows].astype(np.float64) / max(1, self.events)
        return mean

    def learn_one(self, query: Any, clicked: Any, skipped: Any) -> StepInfo:
        """Apply one triplet, as the learner does."""
        return self.learn_many(one_triplet(query, clicked, skipped))

    def learn_many(self, batch: TripletBatch, weights: NDArray[Any] | None = None) -> StepInfo:
        """Apply a batch in order, as the learner does; bit for bit as `learn_one` of each would."""
        before = self.events
        info = self.learner.learn_many(batch, weights)
        earlier = before + np.cumsum(info.outcome != REJECTED) - 1
        times = earlier[info.outcome == UPDATED]
        for steps in self.learner.taken(batch, info, weights):
            later = StepBatch(steps.tau * times.astype(np.float64), steps.query, steps.error)
            replay_rank_one(self.sums, self._symmetric, later)
        return info

    def taken(
        self, batch: TripletBatch, info: StepInfo, weights: NDArray[Any] | None = None
    ) -> list[TripletSteps]:
        """The triplets that were accepted: passive ones count in the mean as well."""
        return taken_triplets(batch, info, weights)

    def replay(self, steps: Steps) -> None:
        """Learn the triplets again: all arrays get the bits. Raises BlockError on steps of another kind or
        dimension."""
        if not isinstance(steps, TripletSteps):
            raise BlockError("an averaged learner takes triplets again, not steps of rank one: take its own")
        self.learn_many(steps.batch, steps.weights)

    def similarity(self, queries: Any, items: Any) -> Float32s:
        """As the learner scores, with the mean for W."""
        arrays: dict[str, NDArray[Any]] = {"W": self.W, "events": np.array(self.events, np.int64)}
        return _learner(arrays, self.config, copy=False).similarity(queries, items)

    def state(self) -> dict[str, NDArray[Any]]:
        """{"W": the learner's, "sums": U, float32 [dim, dim] each, "events": int64 []}: read-only views."""
        return as_state(self.events, W=self.learner.W, sums=self.sums)

    @classmethod
    def from_state(
        cls, arrays: Mapping[str, NDArray[Any]], config: AveragedConfig = PLAIN, copy: bool = True
    ) -> Self:
        """Go on from the arrays of `state`; copy=False takes them over. Raises StateError."""
        _check(config)
        averaged = cls.__new__(cls)
        averaged.learner = _learner(arrays, config, copy)
        averaged.sums = state_matrix(arrays, "sums", copy)
        if averaged.sums.shape != averaged.learner.W.shape:
            raise StateError(f"array sums has shape {averaged.sums.shape}, W {averaged.learner.W.shape}")
        return averaged

    def clone(self) -> Self:
        """An independent copy."""
        return self.from_state(self.state(), self.config)

    @staticmethod
    def warm_up() -> None:
        """Load and check the kernels. Raises RuntimeError."""
        Oasis.warm_up()
        Dissim.warm_up()

    @property
    def _symmetric(self) -> bool:
        return isinstance(self.config, DissimConfig) or self.config.symmetric == "online"


def _learner(arrays: Mapping[str, NDArray[Any]], config: AveragedConfig, copy: bool) -> Oasis | Dissim:
    if isinstance(config, OasisConfig):
        return Oasis.from_state(arrays, config, copy)
    return Dissim.from_state(arrays, config, copy)


def _check(config: AveragedConfig) -> None:
    if config.psd_every:
        raise ConfigError("psd_every must be 0 with a running average, which is made PSD where it is served")
    if config.C > MAX_C:
        raise ConfigError(f"C must be at most {MAX_C:g} with a running average, not {config.C:g}")


def average_states(
    states: Sequence[Mapping[str, NDArray[Any]]], weights: Sequence[float] | None = None
) -> dict[str, NDArray[Any]]:
    """One state of several learners of a matrix that learned alike from different triplets: W their weighted
    mean, in float64 and rounded once, `events` their sum.

    The hinge loss is convex in W, so on any triplets the mean's loss is at most the mean of the losses
    (Chechik et al., JMLR 11 (2010), section 5.4). weights: >= 0, of which one is not 0; equal by default.
    Raises StateError where there is no state, or one is of another shape or has other arrays, and
    ConfigError for other weights.
    """
    if not states:
        raise StateError("there is no state to average: give at least one")
    shares = np.ones(len(states)) if weights is None else np.asarray(weights, np.float64)
    if (
        shares.shape != (len(states),)
        or not np.isfinite(shares).all()
        or shares.min() < 0
        or not shares.any()
    ):
        raise ConfigError(f"weights must be {len(states)} finite numbers >= 0, one of them above 0")
    for number, state in enumerate(states):
        if set(state) != {"W", "events"}:
            raise StateError(f"state {number} has the arrays {sorted(state)}: only W and events are averaged")
    matrices = [checked_matrix(state) for state in states]
    if len({matrix.shape for matrix in matrices}) > 1:
        raise StateError("the matrices have different shapes: " + ", ".join(str(m.shape) for m in matrices))
    mean = np.empty_like(matrices[0])
    for rows in row_blocks(len(mean), len(mean)):
        parts = (
            matrix[rows].astype(np.float64) * share
            for matrix, share in zip(matrices, shares / shares.sum(), strict=True)
        )
        mean[rows] = sum(parts, np.zeros(mean[rows].shape))
    return as_state(sum(map(state_events, states)), W=mean)
