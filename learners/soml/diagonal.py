"""What the learners of a diagonal metric share: S_w(a, b) = sum_j w_j a_j b_j."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from learners.batch import TripletBatch
from learners.block import MAX_DIM, DenseBlock, Float32s, as_block
from learners.errors import BlockError, ConfigError, StateError
from learners.forms.diagonal import DiagonalForm, diagonal_scores
from learners.matrix_state import checked_weights, one_triplet
from learners.outcome import REJECTED, StepInfo
from learners.ownership import to_write
from learners.protocol import Learner
from learners.steps import Steps, TripletSteps, taken_triplets

Doubles = NDArray[np.float64]
Counts = NDArray[np.int64]


class DiagonalLearner(Learner, ABC):
    """A learned diagonal metric. w is a function of the state, never kept and never looped over by a step:
    one event costs the non-zeros of its vectors, whatever the dimension.

    Not safe for two threads at once: a step writes the state in place, with the GIL released.
    """

    config: Any

    @abstractmethod
    def __init__(self, dim: int, config: Any) -> None:
        """Start from w = 0. Raises ConfigError."""

    @abstractmethod
    def weights(self) -> Doubles:
        """w, float64 [dim], made anew."""

    @property
    @abstractmethod
    def evidence(self) -> int:
        """How many rounds are behind w."""

    @abstractmethod
    def forget(self, share: float) -> None:
        """Give up this share, in [0, 1), of what was learned and of the rounds behind it, in one pass over
        the dimensions. What is learned afterwards counts for more, so that w follows users who change."""

    @abstractmethod
    def _step(self, dense: bool, triplets: tuple[Any, ...], weights: Doubles, info: StepInfo) -> None:
        """Apply the kernel rows of a checked batch."""

    def learn_one(self, query: Any, clicked: Any, skipped: Any) -> StepInfo:
        """Apply one triplet of vectors (anything `as_block` reads, one row each); the info holds one entry.

        Raises BlockError when the vectors do not fit each other or the learner; a malformed row is no error
        but an outcome.
        """
        return self.learn_many(one_triplet(query, clicked, skipped))

    def learn_many(self, batch: TripletBatch, weights: NDArray[Any] | None = None) -> StepInfo:
        """Apply a batch in order, bit for bit as `learn_one` of each would.

        weights: [n] importance, scales the subgradient of each event; 0 makes an event passive, and no round
        of its own; negative or not finite rejects it. Raises BlockError on another dimension or number of
        weights.
        """
        scale = checked_weights(batch, self.dim, weights)
        info = StepInfo.empty(len(batch))
        triplets = tuple(block.kernel_rows() for block in (batch.query, batch.clicked, batch.skipped))
        self._step(isinstance(batch.query, DenseBlock), triplets, scale, info)
        return info

    def taken(
        self, batch: TripletBatch, info: StepInfo, weights: NDArray[Any] | None = None
    ) -> list[TripletSteps]:
        """The accepted triplets with their weights, for a copy to learn again. Copies."""
        return taken_triplets(batch, info, weights)

    def replay(self, steps: Steps) -> None:
        """Learn again what another copy learned: its bits.

        Raises BlockError for steps of another kind or dimension, and naming the first that is malformed: the
        others are applied then.
        """
        if not isinstance(steps, TripletSteps):
            raise BlockError("steps of a matrix do not fit a diagonal metric: give those of its own `taken`")
        info = self.learn_many(steps.batch, steps.weights)
        wrong = np.flatnonzero(info.outcome == REJECTED)
        if len(wrong):
            raise BlockError(f"step {wrong[0]} of {len(steps)} is malformed: the others are applied")

    def form(self, normalised: bool = True) -> DiagonalForm:
        """What is served: the cosine plus what was learned. Copies."""
        return DiagonalForm.from_weights(self.weights(), self.evidence, normalised)

    def similarity(self, queries: Any, items: Any) -> Float32s:
        """Raw scores sum_j w_j q_j p_j, float32 [queries, items]; for numpy arrays, scipy CSR and blocks.

        Raises BlockError on another dimension or an index out of range.
        """
        return diagonal_scores(self.weights(), as_block(queries, self.dim), as_block(items, self.dim))

    def clone(self) -> Self:
        """An independent copy."""
        return self.from_state(self.state(), self.config)


def checked_dim(dim: int) -> int:
    """`dim`; raises ConfigError where no block has so many columns."""
    if not 1 <= dim <= MAX_DIM:
        raise ConfigError(f"dim must be in 1..{MAX_DIM}, not {dim}")
    return dim


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written through."""
    view = array.view()
    view.flags.writeable = False
    return view


def state_vector(arrays: Mapping[str, NDArray[Any]], name: str, dtype: Any, copy: bool) -> NDArray[Any]:
    """A vector of a saved state, to be written in place. Raises StateError naming it."""
    vector = arrays.get(name)
    if vector is None:
        raise StateError(f"array {name} is missing")
    if vector.ndim != 1 or len(vector) == 0:
        raise StateError(f"array {name} has shape {vector.shape}: it must be one row of numbers")
    if vector.dtype != dtype:
        raise StateError(f"array {name} has dtype {vector.dtype}: it must be {np.dtype(dtype)}")
    if not np.isfinite(vector).all():
        raise StateError(f"array {name} holds values that are not finite")
    return to_write(vector, name, copy)


def state_count(arrays: Mapping[str, NDArray[Any]], name: str) -> int:
    """A count of a saved state. Raises StateError naming it."""
    count = arrays.get(name)
    if count is None:
        raise StateError(f"array {name} is missing")
    if count.dtype != np.int64 or count.size != 1 or int(count.reshape(-1)[0]) < 0:
        raise StateError(f"array {name} must be one int64 >= 0, not {count.dtype} {count.shape}")
    return int(count.reshape(-1)[0])


def one_event(learner: DiagonalLearner, expected: list[float]) -> None:
    """Check on a known answer that the kernels of both kinds of rows work. Raises RuntimeError."""
    rows = [np.array([[1, 0]], np.float32), np.array([[0.5, 0]], np.float32), np.array([[0, 1]], np.float32)]
    for kind in (np.asarray, sparse.csr_array):
        copy = learner.clone()
        info = copy.learn_one(*(kind(row) for row in rows))
        if info.loss.tolist() != [1.0] or not np.allclose(copy.weights(), expected):
            raise RuntimeError(
                "a compiled kernel gives a wrong answer: remove numba's cache (__pycache__/*.nb?)"
            )
