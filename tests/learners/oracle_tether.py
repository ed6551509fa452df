"""Learners pulled back towards their start, by the formula, after every so many events.

A matrix: W <- I + (1 - decay) (W - I), then the nearest matrix in ||W - I||_F <= radius. OMKS over maps: each
of its matrices. SOML: (1 - decay) of what was summed up, and of the rounds that count it.
"""

from __future__ import annotations

import numpy as np

from .oracle_lego import LegoOracle, LegoPairsOracle
from .oracle_oasis import DissimOracle, OasisDiagonalOracle, OasisOracle
from .oracle_omks import MappedOasisOracle, OmksOracle
from .oracle_soml import SomlDaOracle, SomlTgOracle
from .oracle_step import Doubles, Oracle, Step


class TetheredOracle:
    """Any of them, every event of which counts. radius 0: no ball."""

    def __init__(self, inner: Oracle, every: int, decay: float, radius: float = 0.0) -> None:
        self._inner, self._every, self._keep, self._radius = inner, every, 1 - decay, radius
        self._events = 0

    def step(self, q: Doubles, c: Doubles, s: Doubles, weight: float = 1.0) -> Step:
        step = self._inner.step(q, c, s, weight)
        self._events += 1
        if self._events % self._every == 0:
            self._pull(self._inner)
        return step

    def score(self, q: Doubles, p: Doubles) -> float:
        return self._inner.score(q, p)

    @property
    def tied(self) -> list[bool]:
        """As of what is pulled."""
        return self._inner.tied if isinstance(self._inner, OmksOracle) else []

    def _pull(self, one: Oracle) -> None:
        if isinstance(one, OmksOracle):
            for member in one.members:
                assert isinstance(member, MappedOasisOracle)
                self._pull(member.oasis)
        elif isinstance(one, SomlTgOracle):
            one.w = self._keep * one.w
        elif isinstance(one, OasisDiagonalOracle):
            one.w = 1 + self._keep * (one.w - 1)
        elif isinstance(one, SomlDaOracle):
            one.forget(self._keep)
        elif isinstance(one, LegoOracle | LegoPairsOracle):
            one.A = self._nearer(one.A)
        else:
            assert isinstance(one, OasisOracle | DissimOracle)
            one.W = self._nearer(one.W)

    def _nearer(self, W: Doubles) -> Doubles:
        away = self._keep * (W - np.eye(len(W)))
        length = np.sqrt(np.sum(away * away))
        if self._radius and length > self._radius:
            away *= self._radius / length
        nearer: Doubles = np.eye(len(W)) + away
        return nearer
