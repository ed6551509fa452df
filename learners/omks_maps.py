"""OMKS over explicit maps: one bilinear similarity per kernel, weighed by Hedge, in constant memory.

With k(x, y) ~ phi(x)^T phi(y), the kernel similarity of OKS on k is OASIS on phi: S_k(q, p) = phi_k(q)^T W_k
phi_k(p), W_k = I at the start, one passive-aggressive step each and event, and f = sum_k theta_k S_k. The
maps are the feature space's; here a kernel is a block of columns of the mapped vector.

Source: Xia, Hoi, Jin, Zhao: Online multiple kernel similarity learning for visual search, TPAMI 36 (2014),
section 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learners.base import UNBOUNDED, BaseLearner, Doubles, KnownAnswer, StepsFromIdentity, Weights, started
from learners.block import Float32s, TripletBatch, as_block, row_blocks, without_sense
from learners.errors import ConfigError, require_positive, require_whole, saved, to_write
from learners.faults import spread_triplets
from learners.forms.blocks import BlockLayout, BlocksForm, dense_part
from learners.forms.serving import DEFAULT_POWER
from learners.hedge import HedgeConfig, first_standing, read_standing, theta
from learners.kernels.delayed import BILINEAR, step_dense
from learners.kernels.omks_blocks import weigh_steps
from learners.outcome import UPDATED, StepInfo
from learners.pending import PAIRS, TAU, PendingSteps, room_of, width_of
from learners.steps import Steps, taken_triplets


@dataclass(frozen=True, slots=True)
class OmksMapsConfig:
    """Settings of OMKS over explicit maps.

    widths: columns of each kernel's block, in order; all of a vector's columns. C: aggressiveness of the
    step of every kernel, > 0. hedge: how the kernels are weighed. start: the diagonals of the first W_k, one
    after another, float32 [sum(widths)], > 0; None for those of I. Raises ConfigError.
    """

    widths: tuple[int, ...]
    C: float = 0.1
    hedge: HedgeConfig = field(default_factory=HedgeConfig)
    start: Float32s | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        for width in self.widths:
            require_whole("a width", width)
        if not self.widths or min(self.widths) < 1:
            raise ConfigError(f"widths must name one or more blocks of at least 1 column, not {self.widths}")
        require_positive("C", self.C)
        first_standing(self.hedge, len(self.widths))


class OmksMaps(BaseLearner[OmksMapsConfig]):
    """m similarities of the blocks of `sum(widths)`-dimensional vectors, and their weights.

    base: float32 [sum D_k^2], the matrices [D_k, D_k] one after another, without their pending steps; it is
    the state's W. pending: see `learners.pending`, for each block. standing: float64 [m], see
    `learners.hedge`. A block where a vector of the triplet is all zero (its view is missing) sleeps: neither
    W_k nor theta_k changes. A round of Hedge is an event in which a block steps.

    loss of a step's info: the hinge loss of f before the step, theta of sum 1 over the blocks awake; tau:
    the largest of the blocks. Sparse rows are spread out a few at a time. A weight of 0 makes an event
    passive; Hedge counts any other as one round.
    """

    KNOWN: ClassVar[KnownAnswer] = KnownAnswer(
        OmksMapsConfig((2,), C=0.25), ((1, 0), (0.5, 1), (1, 0.5)), 1.5, ((0.875, 0.125), (0, 1))
    )

    ROOM: ClassVar[int | None] = None
    """Steps on dense rows that may wait for a block, a multiple of 4; None for what `room_of` says."""

    base: Float32s
    pending: list[PendingSteps]
    standing: Doubles

    def _start(self, dim: int) -> None:
        self._layout = BlockLayout.of(self.config.widths)
        if dim != self._layout.dim:
            raise ConfigError(f"the blocks have {self._layout.dim} columns together, the vectors {dim}")
        self.base = np.zeros(self._layout.entries, np.float32)
        start = started(dim, self.config.start)
        for columns, matrix in zip(self._layout.columns, self._layout.matrices(self.base), strict=True):
            np.fill_diagonal(matrix, start[columns])
        self._wait()
        self.standing = first_standing(self.config.hedge, len(self.config.widths))
        self._sizes = StepsFromIdentity()

    def _wait(self, arrays: Mapping[str, NDArray[Any]] | None = None, copy: bool = True) -> None:
        """Pending steps of each block: those of saved arrays, or none. Raises StateError."""
        widths = self.config.widths
        rooms = [room_of(width) if self.ROOM is None else self.ROOM for width in widths]
        sizes = [2 * room * width_of(width) for room, width in zip(rooms, widths, strict=True)]
        self._waiting = self.added_later(self.config, self._layout.dim)
        if arrays is not None and {TAU, PAIRS} & set(arrays):
            self._waiting = {
                name: to_write(saved(arrays, name, np.float32, fresh.shape), name, copy)
                for name, fresh in self._waiting.items()
            }
        tau, pairs = (self._waiting.get(name, np.zeros(0, np.float32)) for name in (TAU, PAIRS))
        taus, rows = np.split(tau, np.cumsum(rooms)[:-1]), np.split(pairs, np.cumsum(sizes)[:-1])
        self.pending = [
            PendingSteps.on(one, many.reshape(2 * room, -1), width) if room else PendingSteps.none(width, 0)
            for one, many, room, width in zip(taus, rows, rooms, widths, strict=True)
        ]

    @classmethod
    def added_later(cls, config: OmksMapsConfig, dim: int) -> dict[str, NDArray[Any]]:
        """Pending steps of each block."""
        rooms = [room_of(width) if cls.ROOM is None else cls.ROOM for width in config.widths]
        sizes = [2 * room * width_of(width) for room, width in zip(rooms, config.widths, strict=True)]
        both = {TAU: np.zeros(sum(rooms), np.float32), PAIRS: np.zeros(sum(sizes), np.float32)}
        return both if any(rooms) else {}

    @property
    def dim(self) -> int:
        """Dimension of the vectors: all blocks together."""
        return self._layout.dim

    @property
    def W(self) -> Float32s:
        """The learned matrices one after another, float32 [sum D_k^2]: `base` itself where no step is
        pending, else a copy."""
        if not any(map(len, self.pending)):
            return self.base
        whole = self.base.copy()
        for matrix, pending in zip(self._layout.matrices(whole), self.pending, strict=True):
            matrix[...] = pending.with_them(matrix)
        return whole

    @property
    def matrices(self) -> list[Float32s]:
        """W_k of each block, float32 [D_k, D_k], views of `W`."""
        return self._layout.matrices(self.W)

    def settled(self) -> list[Float32s]:
        """The matrices themselves, to be changed in place, every pending step added."""
        matrices: list[Float32s] = self._layout.matrices(self.base)
        for matrix, pending in zip(matrices, self.pending, strict=True):
            pending.add_to(matrix)
        return matrices

    @property
    def columns(self) -> list[slice]:
        """The columns of each block."""
        return self._layout.columns

    @property
    def theta(self) -> Doubles:
        """The weights of the kernels, float64 [m], of sum 1."""
        return theta(self.config.hedge, self.standing)

    def _learn(self, batch: TripletBatch, weights: Doubles) -> StepInfo:
        info, scale = StepInfo.empty(len(batch)), weights if len(weights) else np.ones(len(batch))
        matrices = self._layout.matrices(self.base)
        rule = self.config.hedge.kernel_settings(len(matrices))
        for part in row_blocks(len(batch), 2 * self.dim):
            rows, steps = spread_triplets(batch.slice(part.start, part.stop), scale[part], info, part)
            shape = len(matrices), len(steps[0])
            margins, taus = np.empty(shape), np.empty(shape, np.float32)
            outcomes, awake = np.empty(shape, np.uint8), np.empty(shape, np.bool_)
            for k, (matrix, pending) in enumerate(zip(matrices, self.pending, strict=True)):
                own = (outcomes[k], np.empty(shape[1], np.float32), taus[k], steps[3])
                first, outputs = int(self._layout.starts[k]), (margins[k], awake[k])
                C, waiting = self.config.C, pending.for_kernels
                step_dense(
                    matrix, waiting, BILINEAR, C, UNBOUNDED, first, tuple(rows), scale[part], own, outputs
                )
            weigh_steps(rule, self.standing, margins, taus, outcomes, awake, scale[part], steps)
        return info

    def _check_precision(self, batch: TripletBatch, info: StepInfo) -> None:
        self._sizes.look(type(self).__name__, batch, info)

    def taken(self, batch: TripletBatch, info: StepInfo, weights: Weights = None) -> Sequence[Steps]:
        """The triplets that updated, with their weights. Raises BlockError on another number of events."""
        return taken_triplets(batch, info, weights, info.outcome == UPDATED)

    def similarity(self, queries: Any, items: Any) -> Float32s:
        """f(q, p) = sum_k theta_k phi_k(q)^T W_k phi_k(p), float32 [queries, items]; theta of sum 1.

        Raises BlockError on another dimension or an index out of range. Its last bits may depend on how many
        are asked at once.
        """
        left, right = as_block(queries, self.dim, "queries"), as_block(items, self.dim, "items")
        scores = np.zeros((len(left), len(right)), np.float32)
        for weight, columns, matrix in zip(self.theta, self._layout.columns, self.matrices, strict=True):
            scores += np.float32(weight) * (dense_part(left, columns) @ matrix @ dense_part(right, columns).T)
        return without_sense(scores, left, right)

    def _live(self) -> dict[str, NDArray[Any]]:
        return {"W": self.base, "standing": self.standing, **self._waiting}

    def _restore(self, arrays: Mapping[str, NDArray[Any]], copy: bool) -> None:
        self._layout = BlockLayout.of(self.config.widths)
        self.base = to_write(saved(arrays, "W", np.float32, (self._layout.entries,)), "W", copy)
        self._wait(arrays, copy)
        self.standing = read_standing(arrays, self.config.hedge, len(self.config.widths))
        self._sizes = StepsFromIdentity()

    def form(self, normalised: bool = True, power: float | None = DEFAULT_POWER) -> BlocksForm:
        """What it is served as: see `BlocksForm.from_blocks`."""
        return BlocksForm.from_blocks(self.config.widths, self.W, self.theta, normalised, power)

    def as_learned(self, copy: bool = True) -> BlocksForm:
        """f(q, p) with matrices theta_k W_k of its own, which need not be symmetric."""
        return BlocksForm.as_learned(self.config.widths, self.W, self.theta)
