"""A matrix that does not drift away: pulled back towards the start W = I at stated numbers of events.

For streams without an end whose users change. Nothing is done per event; after every `every`-th accepted one

    W <- I + (1 - decay) (W - I),  then  W <- I + min(1, radius / ||W - I||_F) (W - I),

each one pass over W. Both keep I as it is, so an untrained similarity stays the cosine, and keep W symmetric
and PSD where it is: they mix it with I. decay forgets: a step counts (1 - decay)^k after k pulls. radius is
the projection onto the ball around the start, which brings W nearer to every matrix U in that ball; so the
mistake bound of OASIS, which lives of ||W - U||, goes on to hold against every such U (the argument of
Zinkevich: Online convex programming and generalized infinitesimal gradient ascent, ICML 2003).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from learners.batch import TripletBatch
from learners.block import Float32s
from learners.dissim import Dissim, DissimConfig
from learners.errors import BlockError, ConfigError
from learners.infos import joined
from learners.kernels.compile import ROWS, kernel
from learners.lego import Lego, LegoConfig
from learners.matrix_state import checked_weights, one_triplet
from learners.oasis import Oasis, OasisConfig
from learners.outcome import StepInfo
from learners.steps import Steps, TripletSteps, taken_triplets

from numba import types  # isort: skip

Inner: TypeAlias = OasisConfig | DissimConfig | LegoConfig


@dataclass(frozen=True, slots=True)
class TetherConfig:
    """Settings of a learner that is pulled back.

    learner: what learns. every: accepted events from one pull to the next, > 0. decay: in [0, 1). radius:
    largest ||W - I||_F after a pull, > 0; 0 for none. Raises ConfigError.
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


class Tethered:
    """OASIS, Dissim-OASIS or LEGO, pulled back towards W = I; all else is as that learner has it.

    Not safe for two threads at once.
    """

    learner: Oasis | Dissim | Lego
    config: TetherConfig

    def __init__(self, dim: int, config: TetherConfig) -> None:
        """Start from W = I. Raises ConfigError."""
        self.learner, self.config = _CLASSES[type(config.learner)](dim, config.learner), config

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return self.learner.dim

    @property
    def W(self) -> Float32s:
        """The learned matrix, float32 [dim, dim]."""
        return self.learner.W

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
            left = self.config.every - self.learner.events % self.config.every
            stop = min(len(batch), done + left)
            before = self.learner.events
            own = scale[done:stop] if len(scale) else None
            infos.append(self.learner.learn_many(batch.slice(done, stop), own))
            if self.learner.events - before == left:
                pull(self.learner.W, self.config.decay, self.config.radius)
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
        return self.learner.similarity(queries, items)

    def state(self) -> dict[str, NDArray[Any]]:
        """The learner's own: its `events` time the pulls."""
        return self.learner.state()

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], config: TetherConfig, copy: bool = True) -> Self:
        """Go on from the arrays of `state`. Raises StateError."""
        tethered = cls.__new__(cls)
        restored = _CLASSES[type(config.learner)].from_state(arrays, config.learner, copy=copy)
        tethered.learner, tethered.config = restored, config
        return tethered

    def clone(self) -> Self:
        """An independent copy."""
        return self.from_state(self.state(), self.config)

    @staticmethod
    def warm_up() -> None:
        """Load the kernels of all three."""
        for learner in _CLASSES.values():
            learner.warm_up()


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


_CLASSES: Mapping[type[Any], Any] = {OasisConfig: Oasis, DissimConfig: Dissim, LegoConfig: Lego}
