"""What learners of one matrix W share: its state, its steps of rank one, projections at stated events, its
form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from learners.base import BaseLearner, Config
from learners.block import DenseBlock, Float32s
from learners.errors import BlockError, ConfigError, StateError
from learners.forms.serving import DEFAULT_POWER, ServingForm
from learners.kernels.oasis import replay_dense, replay_sparse
from learners.outcome import StepInfo
from learners.psd import MAX_FULL_DIM, project_psd
from learners.saved import CHECKED, saved, saved_count, to_write
from learners.steps import StepBatch, Steps

UNBOUNDED = np.iinfo(np.int64).max

StepArrays: TypeAlias = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]
"""outcome, loss, tau and reason, as kernels write them."""


class MatrixLearner(BaseLearner[Config]):
    """A similarity given by a matrix, from W = I on.

    W: float32 [dim, dim], C-contiguous (4 dim^2 bytes; numpy asks for huge pages by itself). events: how many
    events were accepted so far, that is not rejected.
    """

    DISTANCE: ClassVar[bool] = False
    """Whether the score is -(a - b)^T W (a - b), with a W symmetric to the bit, and not a^T W b."""

    W: Float32s
    events: int

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return int(self.W.shape[0])

    def _start(self, dim: int) -> None:
        self._check(dim)
        self.W, self.events = identity(dim), 0

    def _check(self, dim: int) -> None:
        """Raises ConfigError where the settings do not fit so many dimensions."""
        if self._psd_every and dim > MAX_FULL_DIM:
            raise ConfigError(
                f"psd_every needs dim <= {MAX_FULL_DIM}, not {dim}: set it to 0 and use the serving form"
            )

    def _live(self) -> dict[str, NDArray[Any]]:
        return {"W": self.W, "events": np.array(self.events, np.int64)}

    def _restore(self, arrays: Mapping[str, NDArray[Any]], copy: bool) -> None:
        self.W, self.events = saved_matrix(arrays, copy=copy), saved_count(arrays, "events")
        if self.DISTANCE:
            require_symmetric(self.W)
        self._check(self.dim)

    @property
    def _psd_every(self) -> int:
        return int(getattr(self.config, "psd_every", 0))

    def _up_to_projections(
        self, info: StepInfo, step: Callable[[int, int, StepArrays], tuple[int, int]]
    ) -> None:
        """Take steps from one projection of W to the next, after every `psd_every` accepted events.

        step: (first row, how many events it may accept, where it writes) -> (rows consumed, events accepted).
        """
        every, done = self._psd_every, 0
        while done < len(info):
            budget = every - self.events % every if every else UNBOUNDED
            rest = slice(done, None)
            steps = (info.outcome[rest], info.loss[rest], info.tau[rest], info.reason[rest])
            consumed, accepted = step(done, budget, steps)
            done += int(consumed)
            self.events += int(accepted)
            if accepted == budget:
                self.W[...] = project_psd(self.W)
                info.projected.append(done)

    def form(self, normalised: bool = True, power: float | None = DEFAULT_POWER) -> ServingForm:
        """What it is served as: `ServingForm.from_matrix` of W, or sym(W) as it was learned where `power` is
        None."""
        return form_of_matrix(self.W, normalised, power, self.DISTANCE)


def form_of_matrix(W: Float32s, normalised: bool, power: float | None, distance: bool = False) -> ServingForm:
    """The form of W, which it keeps a copy of where it needs it. distance: as in `ServingForm`, where the
    score is not normalised."""
    dim = len(W)
    if power is None or dim == 1:
        none, no_values = np.zeros((dim, 0), np.float32), np.zeros(0, np.float32)
        form = ServingForm(None, none, no_values, normalised, W.copy())
    else:
        form = ServingForm.from_matrix(W if dim <= MAX_FULL_DIM else W.copy(), normalised, power=power)
    return replace(form, distance=distance and not normalised)


def identity(dim: int) -> Float32s:
    """W = I, float32 [dim, dim], in fresh pages. Raises ConfigError below 1 dimension or beyond int32."""
    if not 1 <= dim <= np.iinfo(np.int32).max:
        raise ConfigError(f"dim must be at least 1, not {dim}")
    W = np.zeros((dim, dim), np.float32)
    np.fill_diagonal(W, 1.0)
    return W


def saved_square(arrays: Mapping[str, NDArray[Any]], name: str = "W") -> Float32s:
    """The square matrix of that name itself. Raises StateError."""
    W = saved(arrays, name, np.float32, (None, None))
    if W.shape[0] != W.shape[1] or W.shape[0] == 0:
        raise StateError(f"array {name} has shape {W.shape}: it must be square")
    return W


def saved_matrix(arrays: Mapping[str, NDArray[Any]], name: str = "W", copy: bool = True) -> Float32s:
    """The square matrix of that name to go on from: copied, or taken over. Raises StateError."""
    return to_write(saved_square(arrays, name), name, copy)


def require_symmetric(W: Float32s) -> None:
    """Raises StateError where W is not symmetric to the bit."""
    step = max(1, CHECKED // len(W))
    for start in range(0, len(W), step):
        if not np.array_equal(W[start : start + step], W[:, start : start + step].T):
            raise StateError("array W is not symmetric: it belongs to another algorithm")


def replay_rank_one(W: Float32s, symmetric: bool, steps: Steps) -> None:
    """W <- W + tau V for each step in order, in place; V = q e^T, or its symmetric part; then the projection
    that `steps` may hold.

    Raises BlockError on steps of another kind or dimension, and naming the first step that is malformed:
    those before it are applied then.
    """
    if not isinstance(steps, StepBatch):
        raise BlockError("this learner replays steps of rank one, not triplets: give its own `taken`")
    dim = W.shape[0]
    if steps.dim != dim:
        raise BlockError(f"steps have {steps.dim} dimensions, the learner {dim}: give its own `taken`")
    rows = (steps.query.kernel_rows(), steps.error.kernel_rows())
    if isinstance(steps.query, DenseBlock):
        taken = replay_dense(W, symmetric, steps.tau, *rows)
    else:
        taken = replay_sparse(W.reshape(-1), dim, symmetric, steps.tau, *rows)
    if taken < len(steps):
        raise BlockError(f"step {taken} of {len(steps)} is malformed: steps before it are applied")
    if steps.project:
        W[...] = project_psd(W)


def require_period(psd_every: int) -> None:
    """Raises ConfigError for what is no number of events."""
    if psd_every < 0:
        raise ConfigError(f"psd_every must be 0 (never) or a number of events, not {psd_every}")
