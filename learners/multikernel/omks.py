"""OMKS: m kernel similarities learned side by side over one support set, and weighed into one.

S_i(q, p) = k_i(q, p) + sum_l tau_l,i k_i(q, q_l) (k_i(c_l, p) - k_i(s_l, p)) over the kept triplets l, which
is the kernel itself before any event; tau_i = min(C, l_i / (k_i(q, q) (k_i(c, c) - 2 k_i(c, s) + k_i(s, s))))
with the hinge loss l_i of S_i; f = sum_i theta_i S_i. With one kernel it is OKS, with the linear kernel
OASIS.

Source: Xia, Hoi, Jin, Zhao: Online multiple kernel similarity learning for visual search, TPAMI 36 (2014),
section 4. The budget is ours: the paper leaves it open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learners.base import BaseLearner, Doubles, KnownAnswer, Weights
from learners.block import Float32s, Int64s, TripletBatch, as_block, dense_rows, row_blocks, without_sense
from learners.errors import ConfigError, StateError, saved
from learners.faults import spread_triplets
from learners.forms.serving import DEFAULT_POWER
from learners.hedge import first_standing, read_standing, theta
from learners.kernels.support_slots import OLDEST, SMALLEST
from learners.multikernel.config import KernelConfig, OmksConfig, make_plan, mean_distances, one_kernel
from learners.multikernel.form import AsLearned, SupportsForm
from learners.multikernel.support import SupportSet
from learners.outcome import UPDATED, StepInfo
from learners.steps import Steps, taken_triplets

EVICTIONS = {"oldest": OLDEST, "smallest": SMALLEST}


class Omks(BaseLearner[OmksConfig]):
    """A similarity of `dim`-dimensional vectors by m kernels.

    support: the kept triplets and their objects. standing: float64 [m], see `learners.hedge`. gamma: float64
    [views], the mean distances that scale the RBF kernels. counts: int64 [2], steps taken, triplets evicted.

    loss of a step's info: the hinge loss of f before the step, theta of sum 1 over the kernels awake; tau:
    the largest of the kernels. With several views, a kernel sleeps where its view is all zero in one of the
    three: neither S_i nor theta_i changes. Sparse rows are spread out a few at a time.
    """

    KNOWN: ClassVar[KnownAnswer] = KnownAnswer(
        one_kernel(2, KernelConfig("linear"), C=0.25, triplets=2, objects=3),
        ((1, 0), (0.5, 1), (1, 0.5)),
        1.5,
        ((0.875, 0.125), (0, 1)),
    )

    support: SupportSet
    standing: Doubles
    gamma: Doubles
    counts: Int64s

    def __init__(self, dim: int, config: OmksConfig | None = None, sample: Any = None) -> None:
        """Start from an empty support set. sample: mapped objects, of which gamma is taken where the settings
        leave it open. Raises ConfigError, BlockError."""
        self._sample = None if sample is None else dense_rows(as_block(sample, dim, "sample"))
        super().__init__(dim, config)
        self._sample = None

    def _start(self, dim: int) -> None:
        self._set(dim, mean_distances(self.config, self._sample))
        self.support = SupportSet.empty(dim, self.config)
        self.standing = first_standing(self.config.hedge, self.config.kernels)
        self.counts = np.zeros(2, np.int64)

    def _set(self, dim: int, gamma: Doubles) -> None:
        last = max(view.stop for view in self.config.views)
        if last > dim:
            raise ConfigError(f"a view ends at column {last}, the vectors have {dim}: name columns they have")
        self._dim, self.gamma, self._plan = dim, gamma, make_plan(self.config, gamma)

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return self._dim

    @property
    def theta(self) -> Doubles:
        """The weights of the kernels, float64 [m], of sum 1."""
        return theta(self.config.hedge, self.standing)

    def _learn(self, batch: TripletBatch, weights: Doubles) -> StepInfo:
        info, scale = StepInfo.empty(len(batch)), weights if len(weights) else np.ones(len(batch))
        config = self.config
        rule = config.hedge.kernel_settings(config.kernels)
        limits = (config.C, EVICTIONS[config.evict])
        for part in row_blocks(len(batch), 4 * self.dim):
            rows, steps = spread_triplets(batch.slice(part.start, part.stop), scale[part], info, part)
            self.support.step(
                self._plan, limits, rule, self.standing, self.counts, (*rows, scale[part]), steps
            )
        return info

    def taken(self, batch: TripletBatch, info: StepInfo, weights: Weights = None) -> Sequence[Steps]:
        """The triplets that updated, with their weights. Raises BlockError on another number of events."""
        return taken_triplets(batch, info, weights, info.outcome == UPDATED)

    def similarity(self, queries: Any, items: Any) -> Float32s:
        """f(q, p) = sum_i theta_i S_i(q, p), float32 [queries, items]; theta of sum 1; bits repeat however
        many are asked at once. NaN where a vector holds a value that is not finite. Raises BlockError on
        another dimension or an index out of range.
        """
        left, right = as_block(queries, self.dim, "queries"), as_block(items, self.dim, "items")
        theta = self.theta.astype(np.float32)
        scores = self.support.scores(self._plan, theta, dense_rows(left), dense_rows(right))
        return without_sense(scores, left, right)

    def _live(self) -> dict[str, NDArray[Any]]:
        own = {"standing": self.standing, "gamma": self.gamma, "counts": self.counts}
        return {**{name: getattr(self.support, name) for name in SupportSet.names()}, **own}

    def _restore(self, arrays: Mapping[str, NDArray[Any]], copy: bool) -> None:
        config, dim = self.config, saved(arrays, "rows", np.float32, (None, None, None)).shape[1]
        gamma = np.array(saved(arrays, "gamma", np.float64, (len(config.views),)))
        self.counts = np.array(saved(arrays, "counts", np.int64, (2,)))
        if not (gamma > 0).all() or (self.counts < 0).any():
            raise StateError("gamma must be above 0, and counts not below")
        self._set(dim, gamma)
        self.support = SupportSet.read(arrays, dim, config, self._plan, copy)
        self.standing = read_standing(arrays, config.hedge, config.kernels)

    def form(self, normalised: bool = True, power: float | None = DEFAULT_POWER) -> SupportsForm | AsLearned:
        """What it is served as, independent of what is learned later; power None leaves f as it is. Raises
        ConfigError where more objects are kept than a form is made of."""
        if power is None:
            return replace(self.as_learned(), normalised=normalised)
        return SupportsForm.from_support(self.support, self.config, self.gamma, self.theta, normalised, power)

    def as_learned(self, copy: bool = True) -> AsLearned:
        """f(q, p) over a support set of its own."""
        theta = self.theta.astype(np.float32)
        return AsLearned(self.config, self.gamma, self.clone().support, theta, False)
