"""OMKS over explicit maps: one bilinear similarity per kernel, weighed by Hedge, in constant memory.

With k(x, y) ~ phi(x)^T phi(y), the kernel similarity of OKS on k is OASIS on phi: S_k(q, p) = phi_k(q)^T W_k
phi_k(p), W_k = I at the start, one passive-aggressive step each and event, and f = sum_k theta_k S_k. The
maps are the feature space's; here a kernel is a block of columns of the mapped vector.

Source: Xia, Hoi, Jin, Zhao: Online multiple kernel similarity learning for visual search, TPAMI 36 (2014),
section 4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from learners.block import Float32s, TripletBatch, as_block, row_blocks
from learners.errors import BlockError, ConfigError, StateError
from learners.faults import fault_weights, spread_rows
from learners.forms.blocks import BlockLayout, BlocksForm, dense_part
from learners.forms.serving import DEFAULT_POWER
from learners.hedge import HedgeConfig, first_standing, read_standing, theta
from learners.kernels.omks_blocks import step_blocks
from learners.matrix import checked_weights, one_triplet, to_write
from learners.outcome import UPDATED, StepInfo
from learners.steps import Steps, TripletSteps, taken_triplets


@dataclass(frozen=True, slots=True)
class OmksMapsConfig:
    """Settings of OMKS over explicit maps.

    widths: columns of each kernel's block, in order; all of a vector's columns. C: aggressiveness of the
    step of every kernel, > 0. hedge: how the kernels are weighed. Raises ConfigError.
    """

    widths: tuple[int, ...]
    C: float = 0.1
    hedge: HedgeConfig = field(default_factory=HedgeConfig)

    def __post_init__(self) -> None:
        if not self.widths or min(self.widths) < 1:
            raise ConfigError(f"widths must name one or more blocks of at least 1 column, not {self.widths}")
        if not (math.isfinite(self.C) and self.C > 0):
            raise ConfigError(f"C must be a finite number above 0, not {self.C}")
        first_standing(self.hedge, len(self.widths))


class OmksMaps:
    """m similarities of the blocks of `sum(widths)`-dimensional vectors, and their weights.

    W: float32 [sum D_k^2], the matrices [D_k, D_k] one after another. standing: float64 [m], see
    `learners.hedge`. A block where a vector of the triplet is all zero (its view is missing) sleeps: neither
    W_k nor theta_k changes. A round of Hedge is an event in which a block steps. Not safe for two threads at
    once: a step writes in place, with the GIL released.
    """

    W: Float32s
    standing: NDArray[np.float64]
    config: OmksMapsConfig

    def __init__(self, dim: int, config: OmksMapsConfig) -> None:
        """Start from W_k = I, where each similarity is its kernel, and from even weights. Raises ConfigError
        when the blocks are not all of `dim` columns."""
        self.config, self._layout = config, BlockLayout.of(config.widths)
        if dim != self._layout.dim:
            raise ConfigError(f"the blocks have {self._layout.dim} columns together, the vectors {dim}")
        self.W = np.zeros(self._layout.entries, np.float32)
        for matrix in self._layout.matrices(self.W):
            np.fill_diagonal(matrix, 1.0)
        self.standing = first_standing(config.hedge, len(config.widths))

    @property
    def dim(self) -> int:
        """Dimension of the vectors: all blocks together."""
        return self._layout.dim

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

        loss of the info: the hinge loss of f before the step, theta of sum 1 over the blocks awake; tau: the
        largest of the blocks. Sparse rows are spread out a few at a time. weights: [n] importance, scales C
        per event; 0 makes an event passive (Hedge counts any other as one round), negative or not finite
        rejects it. Raises BlockError on another dimension or number of weights.
        """
        every = np.ones(len(batch)) if weights is None else weights
        scale = checked_weights(batch, self.dim, every)
        info = StepInfo.empty(len(batch))
        for part in row_blocks(len(batch), 4 * self.dim):
            self._apply(batch.slice(part.start, part.stop), scale[part], info, part)
        return info

    def _apply(self, batch: TripletBatch, weights: NDArray[np.float64], info: StepInfo, part: slice) -> None:
        reason = info.reason[part]
        rows = [spread_rows(block, reason) for block in (batch.query, batch.clicked, batch.skipped)]
        fault_weights(weights, reason)
        steps = (info.outcome[part], info.loss[part], info.tau[part], reason)
        layout, rule = self._layout, self.config.hedge.kernel_settings()
        step_blocks(
            self.W, layout.starts, layout.places, self.config.C, rule, self.standing, *rows, weights, steps
        )

    def taken(
        self, batch: TripletBatch, info: StepInfo, weights: NDArray[Any] | None = None
    ) -> list[TripletSteps]:
        """The triplets that updated, with their weights. Raises BlockError on another number of events."""
        return taken_triplets(batch, info, weights, info.outcome == UPDATED)

    def replay(self, steps: Steps) -> None:
        """Learn again what another copy took. Raises BlockError on steps of another kind or dimension."""
        if not isinstance(steps, TripletSteps):
            raise BlockError("OMKS over maps takes triplets again, not single steps: take its own")
        self.learn_many(steps.batch, steps.weights)

    def similarity(self, queries: Any, items: Any) -> Float32s:
        """f(q, p) = sum_k theta_k phi_k(q)^T W_k phi_k(p), float32 [queries, items]; theta of sum 1.

        Raises BlockError on another dimension or an index out of range. Its last bits may depend on how many
        are asked at once.
        """
        left, right = as_block(queries, self.dim), as_block(items, self.dim)
        scores = np.zeros((len(left), len(right)), np.float32)
        for weight, columns, matrix in zip(
            self.theta, self._layout.columns, self._layout.matrices(self.W), strict=True
        ):
            scores += np.float32(weight) * (dense_part(left, columns) @ matrix @ dense_part(right, columns).T)
        return scores

    def state(self) -> dict[str, NDArray[Any]]:
        """{"W": float32 [sum D_k^2], "standing": float64 [m]}: read-only views, which change with the next
        step."""
        views: dict[str, NDArray[Any]] = {"W": self.W.view(), "standing": self.standing.view()}
        for view in views.values():
            view.flags.writeable = False
        return views

    @classmethod
    def from_state(
        cls, arrays: Mapping[str, NDArray[Any]], config: OmksMapsConfig, copy: bool = True
    ) -> Self:
        """Go on from the arrays of `state`. copy=False takes W over without a copy (it must be writable).

        Raises StateError naming the array that is missing or has another shape, dtype or value.
        """
        layout, W = BlockLayout.of(config.widths), arrays.get("W")
        if W is None:
            raise StateError("array W is missing")
        if W.dtype != np.float32 or W.shape != (layout.entries,) or not np.isfinite(W).all():
            raise StateError(f"array W must be finite float32 ({layout.entries},), not {W.dtype} {W.shape}")
        learner = cls.__new__(cls)
        learner.config, learner._layout, learner.W = config, layout, to_write(W, "W", copy)
        learner.standing = read_standing(arrays, config.hedge, len(config.widths))
        return learner

    def clone(self) -> Self:
        """An independent copy, with its own W and weights."""
        return self.from_state(self.state(), self.config)

    def form(self, normalised: bool = True, power: float | None = DEFAULT_POWER) -> BlocksForm:
        """What it is served as: see `BlocksForm.from_blocks`."""
        return BlocksForm.from_blocks(self.config.widths, self.W, self.theta, normalised, power)

    @staticmethod
    def warm_up() -> None:
        """Load the kernels and check them on a known answer before the first event. Raises RuntimeError."""
        learner = OmksMaps(2, OmksMapsConfig((2,), C=0.25))
        info = learner.learn_one([1.0, 0.0], [0.5, 1.0], [1.0, 0.5])
        if learner.W.tolist() != [0.875, 0.125, 0.0, 1.0] or info.loss.tolist() != [1.5]:
            raise RuntimeError(
                "a compiled kernel gives a wrong answer: remove numba's cache (__pycache__/*.nb?)"
            )
