"""OMKS: m kernel similarities learned side by side over one support set, and weighed into one.

S_i(q, p) = k_i(q, p) + sum_l tau_l,i k_i(q, q_l) (k_i(c_l, p) - k_i(s_l, p)) over the kept triplets l, which
is the kernel itself before any event; tau_i = min(C, l_i / (k_i(q, q) (k_i(c, c) - 2 k_i(c, s) + k_i(s, s))))
with the hinge loss l_i of S_i; f = sum_i theta_i S_i. With one kernel it is OKS, with the linear kernel
OASIS.

Source: Xia, Hoi, Jin, Zhao: Online multiple kernel similarity learning for visual search, TPAMI 36 (2014),
section 4. The budget is ours: the paper leaves it open.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from learners.block import Float32s, TripletBatch, as_block, row_blocks
from learners.errors import BlockError, ConfigError, StateError
from learners.faults import dense_rows, fault_weights, spread_rows
from learners.forms.serving import DEFAULT_POWER
from learners.hedge import first_standing, read_standing, theta
from learners.kernels.support_slots import OLDEST, SMALLEST
from learners.matrix import checked_weights, one_triplet
from learners.multikernel.config import KernelConfig, OmksConfig, make_plan, mean_distances, one_kernel
from learners.multikernel.form import AsLearned, SupportsForm
from learners.multikernel.support import SupportSet
from learners.outcome import UPDATED, StepInfo
from learners.steps import Steps, TripletSteps, taken_triplets

EVICTIONS = {"oldest": OLDEST, "smallest": SMALLEST}


class Omks:
    """A similarity of `dim`-dimensional vectors by m kernels.

    support: the kept triplets and their objects. standing: float64 [m], see `learners.hedge`. gamma: float64
    [views], the mean distances that scale the RBF kernels. counts: int64 [2], steps taken, triplets evicted.
    Not safe for two threads at once: a step writes in place, with the GIL released.
    """

    support: SupportSet
    standing: NDArray[np.float64]
    gamma: NDArray[np.float64]
    counts: NDArray[np.int64]
    config: OmksConfig

    def __init__(self, dim: int, config: OmksConfig, sample: Any = None) -> None:
        """Start from an empty support set. sample: mapped objects, of which gamma is taken where the settings
        leave it open. Raises ConfigError, BlockError."""
        _check(dim, config)
        rows = None if sample is None else dense_rows(as_block(sample, dim))
        self._set(dim, config, mean_distances(config, rows))
        self.support = SupportSet.empty(dim, config)
        self.standing, self.counts = first_standing(config.hedge, config.kernels), np.zeros(2, np.int64)

    def _set(self, dim: int, config: OmksConfig, gamma: NDArray[np.float64]) -> None:
        self._dim, self.config, self.gamma, self._plan = dim, config, gamma, make_plan(config, gamma)

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return self._dim

    @property
    def theta(self) -> NDArray[np.float64]:
        """The weights of the kernels, float64 [m], of sum 1."""
        return theta(self.config.hedge, self.standing)

    def learn_one(self, query: Any, clicked: Any, skipped: Any) -> StepInfo:
        """Apply one triplet of vectors (anything `as_block` reads, one row each); the info holds one entry.

        Raises BlockError as `learn_many`, and for more than one row.
        """
        return self.learn_many(one_triplet(query, clicked, skipped))

    def learn_many(self, batch: TripletBatch, weights: NDArray[Any] | None = None) -> StepInfo:
        """Apply a batch in order, bit for bit as `learn_one` of each would.

        loss of the info: the hinge loss of f before the step, theta of sum 1 over the kernels awake; tau: the
        largest of the kernels. With several views, a kernel sleeps where its view is all zero in one of the
        three: neither S_i nor theta_i changes. weights: [n] importance, scales C per event; 0 makes an event
        passive, negative or not finite rejects it. Sparse rows are spread out a few at a time. Raises
        BlockError on another dimension or number of weights.
        """
        every = np.ones(len(batch)) if weights is None else weights
        scale = checked_weights(batch, self.dim, every)
        info = StepInfo.empty(len(batch))
        for part in row_blocks(len(batch), 4 * self.dim):
            self._apply(batch.slice(part.start, part.stop), scale[part], info, part)
        return info

    def _apply(self, batch: TripletBatch, weights: NDArray[np.float64], info: StepInfo, part: slice) -> None:
        reason, config = info.reason[part], self.config
        rows = [spread_rows(block, reason) for block in (batch.query, batch.clicked, batch.skipped)]
        fault_weights(weights, reason)
        steps = (info.outcome[part], info.loss[part], info.tau[part], reason)
        limits, rule = (config.C, EVICTIONS[config.evict]), config.hedge.kernel_settings()
        self.support.step(self._plan, limits, rule, self.standing, self.counts, (*rows, weights), steps)

    def taken(
        self, batch: TripletBatch, info: StepInfo, weights: NDArray[Any] | None = None
    ) -> list[TripletSteps]:
        """The triplets that updated, with their weights. Raises BlockError on another number of events."""
        return taken_triplets(batch, info, weights, info.outcome == UPDATED)

    def replay(self, steps: Steps) -> None:
        """Learn again what another copy took. Raises BlockError on steps of another kind or dimension."""
        if not isinstance(steps, TripletSteps):
            raise BlockError("OMKS takes triplets again, not single steps: take its own")
        self.learn_many(steps.batch, steps.weights)

    def similarity(self, queries: Any, items: Any) -> Float32s:
        """f(q, p) = sum_i theta_i S_i(q, p), float32 [queries, items]; theta of sum 1; bits repeat however
        many are asked at once. Raises BlockError on another dimension or an index out of range.
        """
        left, right = dense_rows(as_block(queries, self.dim)), dense_rows(as_block(items, self.dim))
        return self.support.scores(self._plan, self.theta.astype(np.float32), left, right)

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays of the support set, standing, gamma and counts: read-only views, which change with the
        next step."""
        own = {"standing": self.standing, "gamma": self.gamma, "counts": self.counts}
        views = {name: getattr(self.support, name).view() for name in SupportSet.names()}
        views.update((name, array.view()) for name, array in own.items())
        for view in views.values():
            view.flags.writeable = False
        return views

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], config: OmksConfig, copy: bool = True) -> Self:
        """Go on from the arrays of `state`. copy=False takes the support set over without a copy.

        Raises StateError naming the array that is missing or has another shape, dtype or value.
        """
        rows = arrays.get("rows")
        if rows is None or rows.ndim != 3:
            raise StateError("array rows is missing, or has not three axes")
        learner = cls.__new__(cls)
        _check(rows.shape[1], config)
        gamma, counts = (
            _numbers(arrays, "gamma", np.float64, len(config.views)),
            _numbers(arrays, "counts", np.int64, 2),
        )
        if not (gamma > 0).all() or (counts < 0).any():
            raise StateError("gamma must be above 0, and counts not below")
        learner._set(rows.shape[1], config, gamma)
        learner.support = SupportSet.read(arrays, rows.shape[1], config, learner._plan, copy)
        learner.standing, learner.counts = read_standing(arrays, config.hedge, config.kernels), counts
        return learner

    def clone(self) -> Self:
        """An independent copy."""
        return self.from_state(self.state(), self.config)

    def form(self, normalised: bool = True, power: float | None = DEFAULT_POWER) -> SupportsForm | AsLearned:
        """What it is served as, independent of what is learned later; power None leaves f as it is. Raises
        ConfigError where more objects are kept than a form is made of."""
        if power is None:
            theta = self.theta.astype(np.float32)
            return AsLearned(self.config, self.gamma, self.clone().support, theta, normalised)
        return SupportsForm.from_support(self.support, self.config, self.gamma, self.theta, normalised, power)

    @staticmethod
    def warm_up() -> None:
        """Load the kernels and check them on a known answer before the first event. Raises RuntimeError."""
        learner = Omks(2, one_kernel(2, KernelConfig("linear"), C=0.25, triplets=2, objects=3))
        info = learner.learn_one([1.0, 0.0], [0.5, 1.0], [1.0, 0.5])
        if info.loss.tolist() != [1.5] or info.tau.tolist() != [0.25] or learner.support.objects != 3:
            raise RuntimeError(
                "a compiled kernel gives a wrong answer: remove numba's cache (__pycache__/*.nb?)"
            )


def _check(dim: int, config: OmksConfig) -> None:
    last = max(view.stop for view in config.views)
    if last > dim:
        raise ConfigError(f"a view ends at column {last}, the vectors have {dim}: name columns they have")


def _numbers(arrays: Mapping[str, NDArray[Any]], name: str, dtype: Any, count: int) -> NDArray[Any]:
    array = arrays.get(name)
    if array is None or array.dtype != dtype or array.shape != (count,) or not np.isfinite(array).all():
        raise StateError(f"array {name} must be {count} finite {np.dtype(dtype)}, not {array!r}")
    return np.array(array)
