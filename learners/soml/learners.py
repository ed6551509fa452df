"""Settings of the two SOML algorithms.

What the learners of a diagonal metric share: S_w(a, b) = sum_j w_j a_j b_j.

SOML-DA: sparse online metric learning by dual averaging.

S_w(a, b) = sum_j w_j a_j b_j; g = q (.) (c - s), loss l = max(0, 1 - w^T g), whose subgradient is -g on a
violating round (l > 0) and 0 otherwise. With G the sum of subgradients, t the rounds and t* the last
violating one: gbar = G / t*, lambda_t = lam + gamma rho / sqrt(t*), w_j = 0 if |gbar_j| <= lambda_t, else
-(sqrt(t*) / gamma) (gbar_j - lambda_t sign(gbar_j)); w = 0 at first (Gao, Hoi, Zhang, Wan, Li: SOML: sparse
online metric learning with application to image retrieval, AAAI 2014, algorithm 2; its equation 15 prints the
subgradient with the opposite sign, and averages it on every round).

SOML-TG: sparse online metric learning by truncated gradient.

S_w(a, b) = sum_j w_j a_j b_j; g = q (.) (c - s), loss l = max(0, 1 - w^T g), w = 0 at first; on a violating
round (l > 0) w <- T_1(w + eta g, eta lam) on all coordinates, T_1(v, a) = sign(v) max(0, |v| - a) (Gao, Hoi,
Zhang, Wan, Li: SOML: sparse online metric learning with application to image retrieval, AAAI 2014, algorithm
1; its equation 12 prints w - eta g, which drives w the wrong way).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from learners.block import MAX_DIM, DenseBlock, Float32s, TripletBatch, as_block
from learners.errors import BlockError, ConfigError, StateError
from learners.forms.diagonal import DiagonalForm, diagonal_scores
from learners.kernels.soml import da_dense, da_sparse, da_weights, tg_dense, tg_sparse, tg_weights
from learners.matrix import checked_weights, one_triplet, to_write
from learners.outcome import REJECTED, StepInfo
from learners.protocol import Learner
from learners.steps import Steps, TripletSteps, taken_triplets

EXTREME = 1e18
"""Largest constant, and the inverse of the smallest: no state of finite vectors overflows float64 then."""


@dataclass(frozen=True, slots=True)
class SomlTgConfig:
    """Settings of SOML-TG.

    eta: learning rate, > 0. lam: lambda, the weight of the L1 norm, >= 0: every violating round shrinks each
    coordinate by eta lam. The defaults are the paper's. Raises ConfigError.
    """

    eta: float = 1.0
    lam: float = 1e-5

    def __post_init__(self) -> None:
        _positive("eta", self.eta)
        _not_negative("lam", self.lam)


@dataclass(frozen=True, slots=True)
class SomlDaConfig:
    """Settings of SOML-DA.

    gamma: > 0, the weight of the strongly convex term: w grows as 1 / gamma. lam, rho: >= 0, the threshold of
    the mean subgradient below which a coordinate is 0 is lam + gamma rho / sqrt(t). rho and lam are the
    paper's; its gamma is 1e-4, for labels. Clicks are noisier and want a w that moves less: on texts (mAP /
    P@10 after 64,000 events) .281 / .578 with 1e-4, .331 / .645 with 1e-2; from 3e-3 to 3e-2 little changes.
    Raises ConfigError.
    """

    gamma: float = 1e-2
    rho: float = 1.0
    lam: float = 1e-6

    def __post_init__(self) -> None:
        _positive("gamma", self.gamma)
        _not_negative("rho", self.rho)
        _not_negative("lam", self.lam)


def _positive(name: str, value: float) -> None:
    if not 1 / EXTREME <= value <= EXTREME:
        raise ConfigError(
            f"{name} must be a number above 0, from {1 / EXTREME:g} to {EXTREME:g}, not {value}"
        )


def _not_negative(name: str, value: float) -> None:
    if not 0 <= value <= EXTREME:
        raise ConfigError(f"{name} must be a number from 0 to {EXTREME:g}, not {value}")


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


DA_DEFAULT = SomlDaConfig()


class SomlDa(DiagonalLearner):
    """A learned diagonal metric of `dim`-dimensional vectors.

    G: float64 [dim], the sum of subgradients (float32 would stall). rounds: t, accepted events of a weight
    above 0. violated: t*, the last violating round, 0 before it.
    """

    G: Doubles
    config: SomlDaConfig
    rounds: int
    violated: int

    def __init__(self, dim: int, config: SomlDaConfig = DA_DEFAULT) -> None:
        """Start from w = 0, where all similarities are 0. Raises ConfigError."""
        self.G, self.config = np.zeros(checked_dim(dim)), config
        self.rounds = self.violated = 0

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return len(self.G)

    @property
    def evidence(self) -> int:
        """t*: the rounds that w is made of."""
        return self.violated

    def weights(self) -> Doubles:
        """w, float64 [dim], made anew from G and t*."""
        w = np.empty(self.dim)
        da_weights(self.G, self.violated, self._settings(), w)
        return w

    def state(self) -> dict[str, NDArray[Any]]:
        """{"G": float64 [dim], "rounds": int64 [], "violated": int64 []}: read-only views."""
        counts = {"rounds": self.rounds, "violated": self.violated}
        return {"G": read_only(self.G), **{name: np.array(n, np.int64) for name, n in counts.items()}}

    @classmethod
    def from_state(
        cls, arrays: Mapping[str, NDArray[Any]], config: SomlDaConfig = DA_DEFAULT, copy: bool = True
    ) -> Self:
        """Go on from the arrays of `state`. copy=False takes G over without a copy (it must be writable).

        Raises StateError naming the array that is missing or has another shape, dtype or value.
        """
        learner = cls.__new__(cls)
        learner.G, learner.config = state_vector(arrays, "G", np.float64, copy), config
        learner.rounds, learner.violated = state_count(arrays, "rounds"), state_count(arrays, "violated")
        if learner.violated > learner.rounds:
            raise StateError(f"array violated is {learner.violated}, beyond all {learner.rounds} rounds")
        return learner

    def forget(self, share: float) -> None:
        """G, t and t* <- (1 - share) of each, the rounds rounded down: the mean subgradient stays, and is one
        of fewer rounds. Its weight, sqrt(t) / gamma, shrinks by the root; one round moves w as much as it did
        when there were so many. Without that a round counts 1 / (gamma sqrt(t)), less and less."""
        self.G *= 1 - share
        self.rounds, self.violated = int((1 - share) * self.rounds), int((1 - share) * self.violated)

    @staticmethod
    def warm_up() -> None:
        """Load the kernels and check each on a known answer before the first event. Raises RuntimeError."""
        one_event(SomlDa(2, SomlDaConfig(gamma=0.25, rho=1.0, lam=0.125)), [0.5, 0.0])

    def _settings(self) -> tuple[float, float, float]:
        return float(self.config.gamma), float(self.config.rho), float(self.config.lam)

    def _step(self, dense: bool, triplets: tuple[Any, ...], weights: Doubles, info: StepInfo) -> None:
        steps = (info.outcome, info.loss, info.tau, info.reason)
        take = da_dense if dense else da_sparse
        rounds = (self.rounds, self.violated)
        self.rounds, self.violated = take(self.G, rounds, self._settings(), *triplets, weights, steps)


TG_DEFAULT = SomlTgConfig()


class SomlTg(DiagonalLearner):
    """A learned diagonal metric of `dim`-dimensional vectors.

    w: float64 [dim], each coordinate as of when it was last written, which `shrunk` tells: int64 [dim], the
    violating rounds that came before. violations: how many there were.
    """

    w: Doubles
    shrunk: Counts
    config: SomlTgConfig
    violations: int

    def __init__(self, dim: int, config: SomlTgConfig = TG_DEFAULT) -> None:
        """Start from w = 0, where all similarities are 0. Raises ConfigError."""
        self.w, self.config = np.zeros(checked_dim(dim)), config
        self.shrunk, self.violations = np.zeros(dim, np.int64), 0

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return len(self.w)

    @property
    def evidence(self) -> int:
        """The violating rounds."""
        return self.violations

    def weights(self) -> Doubles:
        """w after all shrinking, float64 [dim], made anew."""
        w = np.empty(self.dim)
        tg_weights(self.w, self.shrunk, self.violations, self._settings(), w)
        return w

    def state(self) -> dict[str, NDArray[Any]]:
        """{"w": float64 [dim], "shrunk": int64 [dim], "violations": int64 []}: read-only views."""
        count = np.array(self.violations, np.int64)
        return {"w": read_only(self.w), "shrunk": read_only(self.shrunk), "violations": count}

    @classmethod
    def from_state(
        cls, arrays: Mapping[str, NDArray[Any]], config: SomlTgConfig = TG_DEFAULT, copy: bool = True
    ) -> Self:
        """Go on from the arrays of `state`. copy=False takes both vectors over without a copy (they must be
        writable).

        Raises StateError naming the array that is missing or has another shape, dtype or value.
        """
        learner = cls.__new__(cls)
        learner.w, learner.config = state_vector(arrays, "w", np.float64, copy), config
        learner.shrunk = state_vector(arrays, "shrunk", np.int64, copy)
        learner.violations = state_count(arrays, "violations")
        if learner.shrunk.shape != learner.w.shape:
            raise StateError(f"array shrunk has shape {learner.shrunk.shape}, w {learner.w.shape}")
        if learner.shrunk.min() < 0 or learner.shrunk.max() > learner.violations:
            raise StateError(f"array shrunk holds rounds outside 0..{learner.violations}")
        return learner

    def forget(self, share: float) -> None:
        """w <- (1 - share) w after all shrinking, and as much of the violating rounds, rounded down: their
        number is what is known of w's evidence, and what a coordinate has missed is not owed any more."""
        np.multiply(self.weights(), 1 - share, out=self.w)
        self.violations = int((1 - share) * self.violations)
        self.shrunk[:] = self.violations

    @staticmethod
    def warm_up() -> None:
        """Load the kernels and check each on a known answer before the first event. Raises RuntimeError."""
        one_event(SomlTg(2, SomlTgConfig(eta=2.0, lam=0.25)), [0.5, 0.0])

    def _settings(self) -> tuple[float, float]:
        return float(self.config.eta), float(self.config.lam)

    def _step(self, dense: bool, triplets: tuple[Any, ...], weights: Doubles, info: StepInfo) -> None:
        steps, state = (info.outcome, info.loss, info.tau, info.reason), (self.w, self.shrunk)
        take = tg_dense if dense else tg_sparse
        self.violations = take(state, self.violations, self._settings(), *triplets, weights, steps)
