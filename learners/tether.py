"""A learner that does not drift away: pulled back towards its start at stated numbers of events.

For streams without an end whose users change. Nothing is done per event; after every `every`-th accepted one

    W <- I + (1 - decay) (W - I),  then  W <- I + min(1, radius / ||W - I||_F) (W - I),

each one pass over W, or over each block of OMKS over maps; W_0 where that is another diagonal than I. Both
keep I as it is, so an untrained similarity stays the cosine, and keep W symmetric and PSD where it is: they
mix it with I. decay forgets: a step counts (1 - decay)^k after k pulls. radius is the projection onto the
ball around the start, which brings W nearer to every matrix U in that ball; so the mistake bound of OASIS,
which lives of ||W - U||, still holds against every such U (the argument of Zinkevich: Online convex
programming and generalized infinitesimal gradient ascent, ICML 2003).

The diagonal metrics of SOML are pulled towards w = 0 by decay alone, and what is behind w, the rounds, by the
same share, see `DiagonalLearner.forget`; the length of w says nothing there, since what is served divides by
the mean of w. OASIS with a diagonal is pulled towards the w that it began at. Learners over a support set
need no tether: what leaves the budget is forgotten. A running average is one over all events by its
definition.

A matrix pulled towards W = I, see `learners.tether`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from learners.base import BaseLearner, Doubles, Learner, started
from learners.block import Float32s, TripletBatch
from learners.distance import Dissim, DissimConfig, Lego, LegoConfig
from learners.errors import ConfigError, require_number, require_whole, saved_count
from learners.forms.quadratic import ServedForm
from learners.kernels.fold import squared_distance_to_diagonal
from learners.lego_pairs import LegoPairs, LegoPairsConfig
from learners.oasis import Oasis, OasisConfig
from learners.oasis_diagonal import OasisDiagonal, OasisDiagonalConfig
from learners.omks_maps import OmksMaps, OmksMapsConfig
from learners.outcome import REJECTED, StepInfo, joined
from learners.soml import DiagonalLearner, SomlDa, SomlDaConfig, SomlTg, SomlTgConfig


def pull(W: Float32s, decay: float, radius: float, start: Float32s | None = None) -> None:
    """One pull, in place, as the module says. W: float32 [d, d]. start: the diagonal of W_0, float32 [d],
    None for that of I. Up to three passes, with no memory of its size; the same bits on every machine:
    elementwise in float32, the norm in float64 in a fixed order."""
    diagonal = started(len(W), start)
    _towards(diagonal, W, np.float32(1.0 - decay))
    distance = math.sqrt(squared_distance_to_diagonal(W, diagonal)) if radius else 0.0
    if distance > radius:
        _towards(diagonal, W, np.float32(radius / distance))


def _towards(diagonal: Float32s, W: Float32s, keep: np.float32) -> None:
    if keep != 1:
        W *= keep
        W.reshape(-1)[:: len(W) + 1] += (np.float32(1) - keep) * diagonal


OfMatrix: TypeAlias = OasisConfig | DissimConfig | LegoConfig | LegoPairsConfig
Inner: TypeAlias = OfMatrix | OmksMapsConfig | SomlTgConfig | SomlDaConfig | OasisDiagonalConfig

LEAST_DECAY = 1e-6
"""Of a matrix: below it the rounding of float32 decides which entries are pulled at all."""


@dataclass(frozen=True, slots=True)
class TetherConfig:
    """Settings of a learner that is pulled back.

    learner: what learns. every: accepted events from one pull to the next, > 0. decay: in [0, 1), of a
    matrix 0 or at least LEAST_DECAY. radius: largest ||W - I||_F after a pull, of each block where there are
    several, > 0; 0 for none, as it must be of a diagonal metric. Raises ConfigError.
    """

    learner: Inner
    every: int
    decay: float = 0.0
    radius: float = 0.0

    def __post_init__(self) -> None:
        require_whole("pull_every", self.every)
        require_number("decay", self.decay)
        require_number("radius", self.radius)
        if self.every < 1:
            raise ConfigError(f"pull_every must be a number of events above 0, not {self.every}")
        if not 0 <= self.decay < 1:
            raise ConfigError(f"decay must be at least 0 and below 1, not {self.decay}")
        if not (math.isfinite(self.radius) and self.radius >= 0):
            raise ConfigError(f"radius must be 0 (none) or a finite number above it, not {self.radius}")
        diagonal = isinstance(self.learner, SomlTgConfig | SomlDaConfig | OasisDiagonalConfig)
        if self.radius and diagonal:
            raise ConfigError("a diagonal metric has no radius: use decay")
        if 0 < self.decay < LEAST_DECAY and not diagonal:
            raise ConfigError(
                f"decay must be 0 or at least {LEAST_DECAY:g}, not {self.decay}: raise pull_every with it"
            )


class Tethered(BaseLearner[TetherConfig]):
    """A learner pulled back towards its start; all else is as that learner has it. Passive events bring a
    pull nearer too, so what is replayed are triplets.

    events: how many were accepted, which times the pulls.
    """

    learner: Any
    events: int

    def _start(self, dim: int) -> None:
        self.learner, self.events = _CLASSES[type(self.config.learner)](dim, self.config.learner), 0

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return int(self.learner.dim)

    @classmethod
    def added_later(cls, config: TetherConfig, dim: int) -> dict[str, NDArray[Any]]:
        """Those of what learns."""
        added: dict[str, NDArray[Any]] = _CLASSES[type(config.learner)].added_later(config.learner, dim)
        return added

    @property
    def W(self) -> Float32s:
        """The learned matrix, float32 [dim, dim], or matrices; of a learner that has one. A copy where steps
        are pending."""
        W: Float32s = self.learner.W
        return W

    def _learn(self, batch: TripletBatch, weights: Doubles) -> StepInfo:
        """No more events are handed on at once than may be accepted before the next pull, so a pull comes
        right after the event that brings it about."""
        infos, done = [], 0
        while done < len(batch):
            left = self.config.every - self.events % self.config.every
            stop = min(len(batch), done + left)
            own = weights[done:stop] if len(weights) else None
            infos.append(self.learner.learn_many(batch.slice(done, stop), own))
            accepted = int(np.count_nonzero(infos[-1].outcome != REJECTED))
            self.events += accepted
            if accepted == left:
                _pull(self.learner, self.config)
            done = stop
        return joined(infos)

    def similarity(self, queries: Any, items: Any) -> Float32s:
        """Raw scores, as the learner's own."""
        scores: Float32s = self.learner.similarity(queries, items)
        return scores

    def form(self, normalised: bool = True, **settings: Any) -> ServedForm:
        """What the learner is served as; `settings` are others of its own `form`."""
        form: ServedForm = self.learner.form(normalised, **settings)
        return form

    def as_learned(self, copy: bool = True) -> ServedForm:
        """The scores of `similarity`, as the learner has them."""
        form: ServedForm = self.learner.as_learned(copy)
        return form

    def _live(self) -> dict[str, NDArray[Any]]:
        return {**self.learner.state(), "events": np.array(self.events, np.int64)}

    def _restore(self, arrays: Mapping[str, NDArray[Any]], copy: bool) -> None:
        inner = self.config.learner
        self.learner = _CLASSES[type(inner)].from_state(arrays, inner, copy=copy)
        self.events = saved_count(arrays, "events")

    def warm_up(self, sparse_rows: bool | None = None) -> None:  # type: ignore[override]  # of its own kind
        """Load the kernels of the learner that is pulled back. Raises RuntimeError."""
        self.learner.warm_up(sparse_rows)


def untethered(learner: Learner) -> Any:
    """The learner itself, whether it is pulled back or not."""
    return learner.learner if isinstance(learner, Tethered) else learner


def _pull(learner: Any, config: TetherConfig) -> None:
    if isinstance(learner, DiagonalLearner):
        learner.forget(config.decay)
    elif isinstance(learner, OmksMaps):
        start = started(learner.dim, learner.config.start)
        for columns, matrix in zip(learner.columns, learner.settled(), strict=True):
            pull(matrix, config.decay, config.radius, np.ascontiguousarray(start[columns]))
    else:
        pull(learner.settled(), config.decay, config.radius, learner.config.start)


_CLASSES: Mapping[type[Any], Any] = {
    OasisConfig: Oasis,
    DissimConfig: Dissim,
    LegoConfig: Lego,
    LegoPairsConfig: LegoPairs,
    OmksMapsConfig: OmksMaps,
    SomlTgConfig: SomlTg,
    SomlDaConfig: SomlDa,
    OasisDiagonalConfig: OasisDiagonal,
}
