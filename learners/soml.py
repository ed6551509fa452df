"""SOML: sparse online learning of a diagonal metric, by truncated gradient (TG) or dual averaging (DA).

S_w(a, b) = sum_j w_j a_j b_j; g = q (.) (c - s), loss l = max(0, 1 - w^T g), whose subgradient is -g on a
violating round (l > 0) and 0 otherwise; w = 0 at first (Gao, Hoi, Zhang, Wan, Li: SOML: sparse online
metric learning with application to image retrieval, AAAI 2014).

TG, on a violating round: w <- T_1(w + eta g, eta lam) on all coordinates, T_1(v, a) = sign(v) max(0, |v| - a)
(algorithm 1; its equation 12 prints w - eta g, which drives w the wrong way).

DA, with G the sum of subgradients, t the rounds and t* the last violating one: gbar = G / t*, lambda_t =
lam + gamma rho / sqrt(t*), w_j = 0 if |gbar_j| <= lambda_t, else -(sqrt(t*) / gamma) (gbar_j - lambda_t
sign(gbar_j)) (algorithm 2; its equation 15 prints the subgradient with the opposite sign, and averages it
on every round).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learners.base import AnyConfig, BaseLearner, Doubles, KnownAnswer, started
from learners.block import MAX_DIM, DenseBlock, Float32s, Int64s, TripletBatch, as_block, without_sense
from learners.errors import ConfigError, StateError, require_number, saved, saved_count, to_write
from learners.forms.quadratic import DiagonalForm, diagonal_scores
from learners.kernels.soml import DUAL_AVERAGING, TRUNCATED_GRADIENT, soml_dense, soml_sparse, soml_weights
from learners.outcome import StepInfo

EXTREME = 1e18
"""Largest constant, and the inverse of the smallest: no state of finite vectors overflows float64 then."""

ZERO = 1e-10
"""Largest |w_j| that counts as 0 in the paper ("Evaluation of sparsity of the learned weights")."""


@dataclass(frozen=True, slots=True)
class SomlTgConfig:
    """Settings of SOML-TG.

    eta: learning rate, > 0. lam: lambda, the weight of the L1 norm, >= 0: every violating round shrinks each
    coordinate by eta lam. The defaults are the paper's. start: what is served before any event, float32
    [dim], > 0, and w beside it later; None for the cosine. Raises ConfigError.
    """

    eta: float = 1.0
    lam: float = 1e-5
    start: Float32s | None = field(default=None, compare=False, repr=False)

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
    start: what is served before any event, float32 [dim], > 0, and w beside it later; None for the cosine.
    Raises ConfigError.
    """

    gamma: float = 1e-2
    rho: float = 1.0
    lam: float = 1e-6
    start: Float32s | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        _positive("gamma", self.gamma)
        _not_negative("rho", self.rho)
        _not_negative("lam", self.lam)


def _positive(name: str, value: float) -> None:
    require_number(name, value)
    if not 1 / EXTREME <= value <= EXTREME:
        raise ConfigError(
            f"{name} must be a number above 0, from {1 / EXTREME:g} to {EXTREME:g}, not {value}"
        )


def _not_negative(name: str, value: float) -> None:
    require_number(name, value)
    if not 0 <= value <= EXTREME:
        raise ConfigError(f"{name} must be a number from 0 to {EXTREME:g}, not {value}")


class DiagonalLearner(BaseLearner[AnyConfig]):
    """A learned diagonal metric. w is a function of the state, never kept and never looped over by a step:
    one event costs the non-zeros of its vectors, whatever the dimension.

    Passive rounds count, so what is replayed are triplets. An event of weight 0 is no round.
    """

    RULE: ClassVar[int]
    """As the kernels know it, which also say what the three that follow hold."""

    _state: tuple[Doubles, Int64s]
    _rounds: tuple[int, int]

    @property
    @abstractmethod
    def _constants(self) -> tuple[float, float, float]:
        """The settings, as kernels take them."""

    @property
    @abstractmethod
    def evidence(self) -> int:
        """How many rounds are behind w."""

    @abstractmethod
    def forget(self, share: float) -> None:
        """Give up this share, in [0, 1), of what was learned and of the rounds behind it, in one pass over
        the dimensions. What is learned afterwards counts for more, so that w follows users who change."""

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return len(self._state[0])

    def weights(self) -> Doubles:
        """w, float64 [dim], as a new array."""
        w = np.empty(self.dim)
        soml_weights(self.RULE, self._state, self._rounds, self._constants, w)
        return w

    def sparsity(self) -> float:
        """Share of columns that do not count, in [0, 1]: |w_j| <= 1e-10, as the paper's tables 4 to 6 have
        it. One pass over the dimensions."""
        return float(np.mean(np.abs(self.weights()) <= ZERO))

    def _learn(self, batch: TripletBatch, weights: Doubles) -> StepInfo:
        info = StepInfo.empty(len(batch))
        rows = (block.kernel_rows() for block in (batch.query, batch.clicked, batch.skipped))
        steps = (info.outcome, info.loss, info.tau, info.reason)
        learn = soml_dense if isinstance(batch.query, DenseBlock) else soml_sparse
        self._rounds = learn(self.RULE, self._state, self._rounds, self._constants, *rows, weights, steps)
        return info

    def form(self, normalised: bool = True) -> DiagonalForm:
        """What is served: the cosine, or the metric it starts from, plus what was learned. Copies."""
        start = started(self.dim, getattr(self.config, "start", None))
        return DiagonalForm.from_weights(self.weights(), self.evidence, normalised, start)

    def as_learned(self, copy: bool = True) -> DiagonalForm:
        """sum_j w_j q_j p_j with w alone, of either sign and mostly 0 where learning made it sparse: rounded
        to float32, in new arrays. Before any event w is 0 and so is every score."""
        return DiagonalForm(self.weights().astype(np.float32), normalised=False)

    def similarity(self, queries: Any, items: Any) -> Float32s:
        """Raw scores sum_j w_j q_j p_j; otherwise as `BaseLearner.similarity`."""
        left, right = as_block(queries, self.dim, "queries"), as_block(items, self.dim, "items")
        return without_sense(diagonal_scores(self.weights(), left, right), left, right)


class SomlDa(DiagonalLearner[SomlDaConfig]):
    """SOML-DA of `dim`-dimensional vectors."""

    DEFAULT: ClassVar[SomlDaConfig] = SomlDaConfig()
    KNOWN: ClassVar[KnownAnswer] = KnownAnswer(
        SomlDaConfig(gamma=0.25, rho=1.0, lam=0.125), ((1, 0), (0.5, 0), (0, 1)), 1.0, ((0.5, 0), (0, 0))
    )
    RULE = DUAL_AVERAGING

    @property
    def G(self) -> Doubles:
        """The sum of subgradients, float64 [dim] (float32 would stall)."""
        return self._state[0]

    @property
    def rounds(self) -> int:
        """t: accepted events of a weight above 0."""
        return self._rounds[0]

    @property
    def violated(self) -> int:
        """t*: the last violating round, 0 before it."""
        return self._rounds[1]

    @property
    def evidence(self) -> int:
        """t*: the rounds that w is made of."""
        return self.violated

    @property
    def _constants(self) -> tuple[float, float, float]:
        return float(self.config.gamma), float(self.config.rho), float(self.config.lam)

    def _start(self, dim: int) -> None:
        self._state, self._rounds = (np.zeros(checked_dim(dim)), np.zeros(0, np.int64)), (0, 0)

    def _live(self) -> dict[str, NDArray[Any]]:
        counts = {"rounds": self.rounds, "violated": self.violated}
        return {"G": self.G, **{name: np.array(n, np.int64) for name, n in counts.items()}}

    def _restore(self, arrays: Mapping[str, NDArray[Any]], copy: bool) -> None:
        self._state = saved_vector(arrays, "G", np.float64, copy), np.zeros(0, np.int64)
        self._rounds = saved_count(arrays, "rounds"), saved_count(arrays, "violated")
        if self.violated > self.rounds:
            raise StateError(f"array violated is {self.violated}, beyond all {self.rounds} rounds")

    def forget(self, share: float) -> None:
        """G, t and t* <- (1 - share) of each, the rounds rounded down: the mean subgradient stays, and is one
        of fewer rounds. Its weight, sqrt(t) / gamma, shrinks by the root; one round moves w as much as it did
        when there were so many. Without that a round counts 1 / (gamma sqrt(t)), less and less."""
        self._state[0][:] *= 1 - share
        self._rounds = int((1 - share) * self.rounds), int((1 - share) * self.violated)


class SomlTg(DiagonalLearner[SomlTgConfig]):
    """SOML-TG of `dim`-dimensional vectors."""

    DEFAULT: ClassVar[SomlTgConfig] = SomlTgConfig()
    KNOWN: ClassVar[KnownAnswer] = KnownAnswer(
        SomlTgConfig(eta=2.0, lam=0.25), ((1, 0), (0.5, 0), (0, 1)), 1.0, ((0.5, 0), (0, 0))
    )
    RULE = TRUNCATED_GRADIENT

    @property
    def w(self) -> Doubles:
        """float64 [dim]: each coordinate as of when it was last written; `weights` is what it comes to."""
        return self._state[0]

    @property
    def shrunk(self) -> Int64s:
        """int64 [dim]: the violating rounds before a coordinate was last written."""
        return self._state[1]

    @property
    def violations(self) -> int:
        """How many violating rounds there were."""
        return self._rounds[0]

    @property
    def evidence(self) -> int:
        """The number of violating rounds."""
        return self.violations

    @property
    def _constants(self) -> tuple[float, float, float]:
        return float(self.config.eta), float(self.config.lam), 0.0

    def _start(self, dim: int) -> None:
        self._state, self._rounds = (np.zeros(checked_dim(dim)), np.zeros(dim, np.int64)), (0, 0)

    def _live(self) -> dict[str, NDArray[Any]]:
        return {"w": self.w, "shrunk": self.shrunk, "violations": np.array(self.violations, np.int64)}

    def _restore(self, arrays: Mapping[str, NDArray[Any]], copy: bool) -> None:
        w = saved_vector(arrays, "w", np.float64, copy)
        shrunk = saved_vector(arrays, "shrunk", np.int64, copy)
        self._state, self._rounds = (w, shrunk), (saved_count(arrays, "violations"), 0)
        if shrunk.shape != w.shape:
            raise StateError(f"array shrunk has shape {shrunk.shape}, w {w.shape}")
        if shrunk.min() < 0 or shrunk.max() > self.violations:
            raise StateError(f"array shrunk holds rounds outside 0..violations, which is {self.violations}")

    def forget(self, share: float) -> None:
        """w <- (1 - share) w after all shrinking, and as much of the violating rounds, rounded down: their
        number is what is known of w's evidence, and a coordinate no longer owes what it has missed."""
        np.multiply(self.weights(), 1 - share, out=self.w)
        self._rounds = int((1 - share) * self.violations), 0
        self.shrunk[:] = self.violations


def checked_dim(dim: int) -> int:
    """`dim`; raises ConfigError where no block has so many columns."""
    if not 1 <= dim <= MAX_DIM:
        raise ConfigError(f"dim must be in 1..{MAX_DIM}, not {dim}")
    return dim


def saved_vector(arrays: Mapping[str, NDArray[Any]], name: str, dtype: Any, copy: bool) -> NDArray[Any]:
    """The vector of that name to continue from: copied, or taken over. Raises StateError."""
    vector = saved(arrays, name, dtype, (None,))
    if len(vector) == 0:
        raise StateError(f"array {name} has shape {vector.shape}: it must hold numbers")
    return to_write(vector, name, copy)
