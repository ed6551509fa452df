"""The running average of W: what a learner of one matrix has been on average, over all events it accepted.

mean_T = (W_1 + ... + W_T)/T, W_t the matrix after event t. With W_t = W_0 + sum over i <= t of tau_i V_i,

    mean_T = W_T - U_T/T,  U_T = sum over i <= T of (i - 1) tau_i V_i,

so a second array besides W takes each step once more, with another step size: it touches as many entries as
the step, and is exact for any cut (the trick of the averaged perceptron, Freund and Schapire 1999). Rounding:
U takes the same sums as W, so the mean is as precise as W is. It forgets nothing: on a stream whose users
change, W itself is ahead of it.

Averaged rankers: one state of several learners that were trained in parallel on different triplets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from learners.base import BaseLearner, Doubles, form_of_matrix, replay_rank_one, saved_matrix, saved_square
from learners.block import Float32s, TripletBatch, row_blocks
from learners.distance import Dissim, DissimConfig
from learners.errors import ConfigError, StateError, read_only, saved_count
from learners.forms.bilinear import BilinearForm
from learners.forms.serving import DEFAULT_POWER, ServingForm
from learners.merge import MergeRule, merged_array
from learners.oasis import Oasis, OasisConfig
from learners.outcome import REJECTED, UPDATED, StepInfo
from learners.pending import KIND, PAIRS, TAU, matrix_in
from learners.steps import StepBatch

AveragedConfig: TypeAlias = OasisConfig | DissimConfig
"""Settings of the learner whose W is averaged; `psd_every` must be 0: the mean is made PSD where it is
served."""

MAX_C = 1e6
"""Largest C: times a weight and the number of an event, a step size must stay within float32."""


class Averaged(BaseLearner[AveragedConfig]):
    """OASIS or Dissim-OASIS, scoring by the running average of its W. It learns exactly as that does; passive
    events count in the mean as well, so what is replayed are triplets.

    learner: what learns. sums: U, float32 [dim, dim].
    """

    DEFAULT: ClassVar[AveragedConfig] = OasisConfig()

    learner: Oasis | Dissim
    sums: Float32s

    def _start(self, dim: int) -> None:
        self._check()
        self.learner = self._class(dim, self.config)
        self.sums = np.zeros((dim, dim), np.float32)

    @property
    def _class(self) -> Any:
        return self._class_of(self.config)

    @classmethod
    def _class_of(cls, config: AveragedConfig) -> Any:
        return Oasis if isinstance(config, OasisConfig) else Dissim

    @classmethod
    def added_later(cls, config: AveragedConfig, dim: int) -> dict[str, NDArray[Any]]:
        """Those of what learns."""
        added: dict[str, NDArray[Any]] = cls._class_of(config).added_later(config, dim)
        return added

    def _check(self) -> None:
        if self.config.psd_every:
            raise ConfigError(
                "psd_every must be 0 with a running average, which is made PSD where it is served"
            )
        if self.config.C > MAX_C:
            raise ConfigError(f"C must be at most {MAX_C:g} with a running average, not {self.config.C:g}")

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return self.learner.dim

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

    def _learn(self, batch: TripletBatch, weights: Doubles) -> StepInfo:
        before, given = self.events, weights if len(weights) else None
        info = self.learner.learn_many(batch, given)
        earlier = before + np.cumsum(info.outcome != REJECTED) - 1
        times = earlier[info.outcome == UPDATED]
        symmetric = isinstance(self.config, DissimConfig) or self.config.symmetric == "online"
        for steps in self.learner.taken(batch, info, given):
            assert isinstance(steps, StepBatch)
            later = StepBatch(steps.tau * times.astype(np.float64), steps.query, steps.error)
            replay_rank_one(self.sums, symmetric, later)
        return info

    def similarity(self, queries: Any, items: Any) -> Float32s:
        """As the learner scores, with the mean for W."""
        arrays = {"W": self.W, "events": np.array(self.events, np.int64)}
        scores: Float32s = self._class.from_state(arrays, self.config, copy=False).similarity(queries, items)
        return scores

    def form(self, normalised: bool = True, power: float | None = DEFAULT_POWER) -> ServingForm:
        """What it is served as: the form of the mean, as that of the learner."""
        return form_of_matrix(self.W, normalised, power, self.learner.DISTANCE)

    def as_learned(self, copy: bool = True) -> BilinearForm:
        """The scores of `similarity`, by the mean as a new matrix."""
        return BilinearForm(self.W, None, self.learner.DISTANCE)

    def _live(self) -> dict[str, NDArray[Any]]:
        return {**self.learner.state(), "sums": self.sums}

    def _restore(self, arrays: Mapping[str, NDArray[Any]], copy: bool) -> None:
        self._check()
        self.learner = self._class.from_state(arrays, self.config, copy)
        self.sums = saved_matrix(arrays, "sums", copy)
        if self.sums.shape != self.learner.base.shape:
            raise StateError(f"array sums has shape {self.sums.shape}, W {self.learner.base.shape}")

    @classmethod
    def warm_up(cls, sparse_rows: bool | None = None) -> None:
        """Load and check the kernels. Raises RuntimeError."""
        Oasis.warm_up(sparse_rows)
        Dissim.warm_up(sparse_rows)


def average_states(
    states: Sequence[Mapping[str, NDArray[Any]]], weights: Sequence[float] | None = None
) -> dict[str, NDArray[Any]]:
    """One state of several learners of a matrix that learned alike from different triplets: W their weighted
    mean, in float64 and rounded once, without pending steps, `events` their sum.

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
        if set(state) - {TAU, PAIRS, KIND} != {"W", "events"}:
            raise StateError(f"state {number} has the arrays {sorted(state)}: only W and events are averaged")
        saved_square(state)
    matrices = [matrix_in(state) for state in states]
    if len({matrix.shape for matrix in matrices}) > 1:
        raise StateError("the matrices have different shapes: " + ", ".join(str(m.shape) for m in matrices))
    # their differences from any matrix, weighted, bring that one to the mean
    mean = merged_array(MergeRule.MEAN, matrices[0], matrices, (shares / shares.sum()).tolist())
    events = np.array(sum(saved_count(state, "events") for state in states), np.int64)
    pending = {name: np.zeros_like(states[0][name]) for name in (TAU, PAIRS) if name in states[0]}
    kind = {KIND: states[0][KIND]} if KIND in states[0] else {}
    return {"W": read_only(mean), "events": events, **pending, **kind}
