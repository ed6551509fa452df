"""Watches the best version's holdout loss for drift."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from daemon.validate.decide import History, Positions
from daemon.validate.drift import DriftKind, LossDrift, Risen
from daemon.validate.measures import Float
from daemon.validate.window import Held, Window
from streams.event import Impression

LossesOf: TypeAlias = Callable[[Sequence[Impression]], Float]
"""Holdout loss of each impression under one version, float64[n]."""


class DriftWatch:
    """One detector, made anew when another version becomes best or a STOP is given.

    It is primed with what the window held before, at a STOP with what it held when the STOP was given:
    after a restart the impressions since then are taken again, so that a restart hides no drift.
    """

    def __init__(self, kind: DriftKind) -> None:
        self._kind = kind
        self._watched: tuple[int, Positions | None] | None = None
        self._drift = LossDrift(kind)

    @property
    def mean(self) -> float:
        """Mean holdout loss of the best version."""
        return self._drift.mean

    def take(
        self, losses_of: LossesOf, history: History, window: Window, fresh: Sequence[Held]
    ) -> Risen | None:
        """Feed new impressions to the detector; how the loss rose when it has. `losses_of` is the best
        version's.
        """
        if self._kind == "off":
            return None
        if self._watched != (history.promoted or 0, history.stopped_at):
            self._watched = (history.promoted or 0, history.stopped_at)
            before, fresh = _split(window, history.stopped_at)
            losses = losses_of([held.impression for held in before])
            self._drift = LossDrift(self._kind, losses.tolist())
        if not fresh:
            return None
        risen: Risen | None = None
        for loss in losses_of([held.impression for held in fresh]).tolist():
            risen = self._drift.update(loss) or risen
        return risen


def _split(window: Window, stopped_at: Positions | None) -> tuple[list[Held], list[Held]]:
    """The window before and after the STOP; all of it is before when none was given by the validator."""
    before: list[Held] = []
    after: list[Held] = []
    for held in window:
        known = not stopped_at or held.offset < stopped_at.get(held.partition, 0)
        (before if known else after).append(held)
    return before, after
