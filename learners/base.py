"""What all learners share: how triplets are read, saved states, replaying, cloning and warming up.

A learner adds its settings, its arrays, its step and its scores: see `BaseLearner`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from learners.block import Float32s, TripletBatch, as_triplets
from learners.errors import BlockError, ConfigError
from learners.forms.quadratic import ServedForm
from learners.outcome import REJECTED, StepInfo
from learners.saved import read_only
from learners.steps import Steps, TripletSteps, taken_triplets

Config = TypeVar("Config")
Weights = NDArray[Any] | None
Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class KnownAnswer:
    """A step worked out on paper, in 2 dimensions: what the compiled kernels are checked by.

    triplet: query, clicked, skipped. loss: before the step. scores: after it, of the two unit vectors with
    each other.
    """

    config: Any
    triplet: tuple[tuple[float, float], tuple[float, float], tuple[float, float]]
    loss: float
    scores: tuple[tuple[float, float], tuple[float, float]]


class BaseLearner(ABC, Generic[Config]):
    """A similarity of `dim`-dimensional vectors, learned one triplet at a time.

    A subclass gives `dim`, `_start`, `_live`, `_restore`, `_learn`, `similarity`, `form` and a known
    answer; and where a step has a shorter form than its triplet, `taken` and `replay`. Scoring never
    changes a learner, and it keeps no reference to its input. Not safe for two threads at once: a step
    writes the state in place, with the GIL released.
    """

    DEFAULT: ClassVar[Any] = None
    """Settings where none are given; None where some must be."""
    KNOWN: ClassVar[KnownAnswer | None] = None

    config: Config

    def __init__(self, dim: int, config: Config | None = None) -> None:
        """The untrained learner of so many dimensions. Raises ConfigError."""
        self.config = self._settings(config)
        self._start(dim)

    @classmethod
    def _settings(cls, config: Config | None) -> Config:
        chosen: Config | None = cls.DEFAULT if config is None else config
        if chosen is None:
            raise ConfigError(f"{cls.__name__} has no default settings: give them as config")
        return chosen

    @property
    @abstractmethod
    def dim(self) -> int:
        """Dimension of the vectors."""

    @abstractmethod
    def _start(self, dim: int) -> None:
        """Begin untrained, by `config`. Raises ConfigError."""

    @abstractmethod
    def _live(self) -> dict[str, NDArray[Any]]:
        """The arrays of the state themselves."""

    @abstractmethod
    def _restore(self, arrays: Mapping[str, NDArray[Any]], copy: bool) -> None:
        """Go on from saved arrays, by `config`; what steps write in place is copied, or taken over. Raises
        StateError."""

    @abstractmethod
    def _learn(self, batch: TripletBatch, weights: Doubles) -> StepInfo:
        """Apply a batch of the learner's dimension in order; weights: one each, or empty for 1."""

    @abstractmethod
    def similarity(self, queries: Any, items: Any) -> Float32s:
        """Scores by the paper's formula, float32 [queries, items]; for numpy arrays, scipy CSR and blocks.

        Raises BlockError on another dimension or an index out of range. Where BLAS computes it, in blocks of
        queries, its last bits may depend on how many are asked at once.
        """

    @abstractmethod
    def form(self, normalised: bool = True) -> ServedForm:
        """What the learner is served as, independent of what is learned later; see `learners.search`.
        normalised: score by S(q, p) / sqrt(S(q, q) S(p, p)), the learned cosine."""

    def learn_one(self, query: Any, clicked: Any, skipped: Any) -> StepInfo:
        """Apply one triplet of vectors (anything `as_block` reads, one row each); the info holds one entry.

        Raises BlockError when the vectors do not fit each other or the learner; a malformed row is no error
        but an outcome.
        """
        return self.learn_many(one_triplet(query, clicked, skipped))

    @overload
    def learn_many(self, batch: TripletBatch, /, weights: Weights = None) -> StepInfo: ...

    @overload
    def learn_many(
        self,
        queries: Any,
        clicked: Any,
        skipped: Any,
        /,
        weights: Weights = None,
        *,
        keys: Sequence[str] | None = None,
    ) -> StepInfo: ...

    def learn_many(
        self, *triplets: Any, weights: Weights = None, keys: Sequence[str] | None = None
    ) -> StepInfo:
        """Apply triplets in order, bit for bit as `learn_one` of each would, however they are cut.

        Either a `TripletBatch`, or three numpy arrays [n, dim] or scipy CSR matrices, row i of each triplet
        i. weights: [n] importance, scales the step of each event; 0 makes an event passive, negative or not
        finite rejects it. keys: whose model each triplet is for (`Keyed`). Raises BlockError on another
        dimension or number of weights; a malformed row is no error but an outcome.
        """
        if len(triplets) in {2, 4}:  # the last is the weights
            *triplets, weights = triplets  # type: ignore[assignment]
        batch = as_triplets(*triplets, keys=keys)
        return self._learn(batch, checked_weights(batch, self.dim, weights))

    def taken(self, batch: TripletBatch, info: StepInfo, weights: Weights = None) -> Sequence[Steps]:
        """What another copy must `replay` to reach the bits that `learn_many(batch, weights)`, which gave
        `info`, left: the triplets that were accepted, with their weights. Copies.

        Pure: the state is neither read nor changed. Raises BlockError when `info` is of another number of
        events.
        """
        return taken_triplets(batch, info, weights)

    def replay(self, steps: Steps) -> None:
        """Learn again what another copy took: its bits.

        Raises BlockError for steps of another kind or dimension, and naming the first that is malformed: the
        others are applied then.
        """
        if not isinstance(steps, TripletSteps):
            raise BlockError(
                f"{type(self).__name__} replays triplets, not steps of rank one: give its own `taken`"
            )
        info = self.learn_many(steps.batch, steps.weights)
        wrong = np.flatnonzero(info.outcome == REJECTED)
        if len(wrong):
            raise BlockError(f"step {wrong[0]} of {len(steps)} is malformed: the others are applied")

    def state(self) -> dict[str, NDArray[Any]]:
        """What the next step needs, by name: read-only views, which change with the next step. Save them as
        they are; `from_state` reads them back."""
        return {name: read_only(array) for name, array in self._live().items()}

    @classmethod
    def from_state(
        cls, arrays: Mapping[str, NDArray[Any]], config: Config | None = None, copy: bool = True
    ) -> Self:
        """Go on from the arrays of `state`. copy=False takes the large ones over without a copy: they must be
        writable, and steps change them in place.

        Raises StateError naming the array that is missing or has another shape, dtype or value.
        """
        learner = cls.__new__(cls)
        learner.config = cls._settings(config)
        learner._restore(arrays, copy)
        return learner

    def clone(self) -> Self:
        """An independent copy."""
        return self.from_state(self.state(), self.config)

    @classmethod
    def warm_up(cls) -> None:
        """Load the kernels and check them on a known answer before the first event. Raises RuntimeError."""
        known = cls.KNOWN
        if known is None:
            return
        both = np.eye(2, dtype=np.float32)
        for kind in (np.asarray, sparse.csr_array):
            learner = cls(2, known.config)
            info = learner.learn_one(*(kind(np.array([row], np.float32)) for row in known.triplet))
            scores = learner.similarity(both, both)
            if abs(info.loss[0] - known.loss) > 1e-5 or np.abs(scores - known.scores).max() > 1e-5:
                raise RuntimeError(
                    "a compiled kernel gives a wrong answer: remove numba's cache (__pycache__/*.nb?)"
                )


def one_triplet(query: Any, clicked: Any, skipped: Any) -> TripletBatch:
    """Three vectors, each anything that `as_block` reads, as a batch of one. Raises BlockError."""
    batch = as_triplets(query, clicked, skipped)
    if len(batch) != 1:
        raise BlockError(f"learn_one takes one triplet, not {len(batch)}: use learn_many")
    return batch


def checked_weights(batch: TripletBatch, dim: int, weights: Weights) -> Doubles:
    """The weights of a batch as kernels take them: float64 [n], or empty for 1 each. Raises BlockError on
    triplets of another dimension than dim, or another number of weights."""
    if batch.dim != dim:
        raise BlockError(f"triplets have {batch.dim} dimensions, the learner {dim}: map them alike")
    scale = np.zeros(0) if weights is None else np.ascontiguousarray(weights, np.float64)
    if weights is not None and scale.shape != (len(batch),):
        raise BlockError(f"weights have shape {scale.shape}: give one per triplet ({len(batch)})")
    return scale
