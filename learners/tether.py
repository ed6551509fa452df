"""A learner that does not drift away: pulled back towards its start at stated numbers of events.

For streams without an end whose users change. Nothing is done per event; after every `every`-th accepted one

    W <- I + (1 - decay) (W - I),  then  W <- I + min(1, radius / ||W - I||_F) (W - I),

each one pass over W, or over each block of OMKS over maps. Both keep I as it is, so an untrained similarity
stays the cosine, and keep W symmetric and PSD where it is: they mix it with I. decay forgets: a step counts
(1 - decay)^k after k pulls. radius is the projection onto the ball around the start, which brings W nearer to
every matrix U in that ball; so the mistake bound of OASIS, which lives of ||W - U||, goes on to hold against
every such U (the argument of Zinkevich: Online convex programming and generalized infinitesimal gradient
ascent, ICML 2003).

The diagonal metrics of SOML are pulled towards w = 0 by decay alone, and what is behind w, the rounds, by the
same share, see `DiagonalLearner.forget`; the length of w says nothing there, since what is served divides by
the mean of w. Learners over a support set need no tether: what leaves the budget is forgotten. A running
average is one over all events by its definition.

A matrix pulled towards W = I, see `learners.tether`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from learners.block import Float32s, TripletBatch
from learners.dissim import Dissim, DissimConfig
from learners.errors import BlockError, ConfigError
from learners.forms.blocks import BlockLayout
from learners.kernels.compile import ROWS, kernel
from learners.lego import Lego, LegoConfig
from learners.matrix import checked_weights, one_triplet, state_events
from learners.oasis import Oasis, OasisConfig
from learners.omks_maps import OmksMaps, OmksMapsConfig
from learners.outcome import REJECTED, StepInfo, joined
from learners.protocol import Learner
from learners.soml import DiagonalLearner, SomlDa, SomlDaConfig, SomlTg, SomlTgConfig
from learners.steps import Steps, TripletSteps, taken_triplets

from numba import types  # isort: skip


def pull(W: Float32s, decay: float, radius: float) -> None:
    """One pull, in place, as the module says. W: float32 [d, d]. Up to three passes, with no memory of its
    size; the same bits on every machine: elementwise in float32, the norm in float64 in a fixed order."""
    keep = np.float32(1.0 - decay)
    _towards_identity(W, keep)
    distance = math.sqrt(_squared_distance(W)) if radius else 0.0
    if distance > radius:
        _towards_identity(W, np.float32(radius / distance))


def _towards_identity(W: Float32s, keep: np.float32) -> None:
    if keep != 1:
        W *= keep
        W.reshape(-1)[:: len(W) + 1] += np.float32(1) - keep


@kernel(types.float64(ROWS))
def _squared_distance(W: Any) -> float:
    """||W - I||_F^2 in float64, row by row."""
    total = 0.0
    for row in range(W.shape[0]):
        along = 0.0
        for column in range(W.shape[1]):
            entry = np.float64(W[row, column]) - (1.0 if row == column else 0.0)
            along += entry * entry
        total += along
    return total


OfMatrix: TypeAlias = OasisConfig | DissimConfig | LegoConfig
Inner: TypeAlias = OfMatrix | OmksMapsConfig | SomlTgConfig | SomlDaConfig

LEAST_DECAY = 1e-6
"""Of a matrix: below it the rounding of float32 decides which entries are pulled at all."""


@dataclass(frozen=True, slots=True)
class TetherConfig:
    """Settings of a learner that is pulled back.

    learner: what learns. every: accepted events from one pull to the next, > 0. decay: in [0, 1), of a
    matrix 0 or at least LEAST_DECAY. radius: largest ||W - I||_F after a pull, of each block where there are
    several, > 0; 0 for none, as it must be of SOML. Raises ConfigError.
    """

    learner: Inner
    every: int
    decay: float = 0.0
    radius: float = 0.0

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ConfigError(f"pull_every must be a number of events above 0, not {self.every}")
        if not 0 <= self.decay < 1:
            raise ConfigError(f"decay must be at least 0 and below 1, not {self.decay}")
        if not (math.isfinite(self.radius) and self.radius >= 0):
            raise ConfigError(f"radius must be 0 (none) or a finite number above it, not {self.radius}")
        diagonal = isinstance(self.learner, SomlTgConfig | SomlDaConfig)
        if self.radius and diagonal:
            raise ConfigError("a diagonal metric has no radius: use decay")
        if 0 < self.decay < LEAST_DECAY and not diagonal:
            raise ConfigError(
                f"decay must be 0 or at least {LEAST_DECAY:g}, not {self.decay}: raise pull_every with it"
            )


class Tethered:
    """A learner pulled back towards its start; all else is as that learner has it.

    events: how many were accepted, which times the pulls. Not safe for two threads at once.
    """

    learner: Any
    config: TetherConfig
    events: int

    def __init__(self, dim: int, config: TetherConfig) -> None:
        """Start where the learner does. Raises ConfigError."""
        self.learner, self.config = _CLASSES[type(config.learner)](dim, config.learner), config
        self.events = 0

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return int(self.learner.dim)

    @property
    def W(self) -> Float32s:
        """The learned matrix, float32 [dim, dim], or matrices; of a learner that has one."""
        W: Float32s = self.learner.W
        return W

    def learn_one(self, query: Any, clicked: Any, skipped: Any) -> StepInfo:
        """Apply one triplet; the info holds one entry. Raises BlockError."""
        return self.learn_many(one_triplet(query, clicked, skipped))

    def learn_many(self, batch: TripletBatch, weights: NDArray[Any] | None = None) -> StepInfo:
        """Apply a batch in order, bit for bit as `learn_one` of each, also across pulls. Raises BlockError.

        No more events are handed on at once than may be accepted before the next pull, so a pull comes right
        after the event that brings it about.
        """
        scale = checked_weights(batch, self.dim, weights)
        infos, done = [], 0
        while done < len(batch):
            left = self.config.every - self.events % self.config.every
            stop = min(len(batch), done + left)
            own = scale[done:stop] if len(scale) else None
            infos.append(self.learner.learn_many(batch.slice(done, stop), own))
            accepted = int(np.count_nonzero(infos[-1].outcome != REJECTED))
            self.events += accepted
            if accepted == left:
                _pull(self.learner, self.config)
            done = stop
        return joined(infos)

    def taken(
        self, batch: TripletBatch, info: StepInfo, weights: NDArray[Any] | None = None
    ) -> list[TripletSteps]:
        """Every triplet that was accepted: passive ones bring a pull nearer too."""
        return taken_triplets(batch, info, weights)

    def replay(self, steps: Steps) -> None:
        """Learn the triplets again. Raises BlockError for steps of another kind or dimension."""
        if not isinstance(steps, TripletSteps):
            raise BlockError("a learner that is pulled back takes triplets again: take its own")
        self.learn_many(steps.batch, steps.weights)

    def similarity(self, queries: Any, items: Any) -> Float32s:
        """Raw scores, float32 [queries, items], as the learner's own. Raises BlockError."""
        scores: Float32s = self.learner.similarity(queries, items)
        return scores

    def state(self) -> dict[str, NDArray[Any]]:
        """The learner's own, and `events` int64 []."""
        return {**self.learner.state(), "events": np.array(self.events, np.int64)}

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], config: TetherConfig, copy: bool = True) -> Self:
        """Go on from the arrays of `state`. Raises StateError."""
        tethered = cls.__new__(cls)
        restored = _CLASSES[type(config.learner)].from_state(arrays, config.learner, copy=copy)
        tethered.learner, tethered.config, tethered.events = restored, config, state_events(arrays)
        return tethered

    def clone(self) -> Self:
        """An independent copy."""
        return self.from_state(self.state(), self.config)

    @staticmethod
    def warm_up() -> None:
        """Load the kernels of all."""
        for learner in _CLASSES.values():
            learner.warm_up()


def untethered(learner: Learner) -> Any:
    """The learner itself, whether it is pulled back or not."""
    return learner.learner if isinstance(learner, Tethered) else learner


def _pull(learner: Any, config: TetherConfig) -> None:
    """One pull, as the module says."""
    if isinstance(learner, DiagonalLearner):
        learner.forget(config.decay)
    elif isinstance(learner, OmksMaps):
        for matrix in BlockLayout.of(learner.config.widths).matrices(learner.W):
            pull(matrix, config.decay, config.radius)
    else:
        pull(learner.W, config.decay, config.radius)


_CLASSES: Mapping[type[Any], Any] = {
    OasisConfig: Oasis,
    DissimConfig: Dissim,
    LegoConfig: Lego,
    OmksMapsConfig: OmksMaps,
    SomlTgConfig: SomlTg,
    SomlDaConfig: SomlDa,
}
