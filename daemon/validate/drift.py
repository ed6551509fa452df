"""Has the users' behaviour drifted? A river detector over the best version's holdout loss, impression by
impression.

Only a *rising* loss counts: a detector also fires when the loss falls, which asks for no action.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from river.drift import ADWIN, PageHinkley

from daemon.validate.decide import JudgedHistory, Positions
from daemon.validate.holdout import HeldImpression, Window
from daemon.validate.measures import Float
from streams.event import Impression

DriftKind = Literal["adwin", "page_hinkley", "off"]

RECENT = 0.02
"""Step of the exponential mean that tells a rise from a fall: about the last 50 impressions."""


@dataclass(frozen=True, slots=True)
class LossRise:
    """A drift: the mean loss before it and the recent mean at its detection."""

    before: float
    now: float


class Detector(Protocol):
    """What is used of a river drift detector."""

    drift_detected: bool

    def update(self, x: float) -> object:
        """Take one value."""


class LossDrift:
    """Drift of one version's holdout loss.

    `kind`: `adwin` (Bifet and Gavalda, SDM 2007; delta = 0.002), `page_hinkley` (mean shift upwards,
    threshold 10 in units of summed loss) or `off`. `primed` with the losses of the window it was chosen on:
    what happened before then is known to the judge and never reported.
    """

    def __init__(self, kind: DriftKind, primed: Iterable[float] = ()) -> None:
        self._kind = kind
        self._detector = _detector(kind)
        self._count = 0
        self._mean = 0.0
        self._recent = 0.0
        for loss in primed:
            self.update(loss)

    @property
    def mean(self) -> float:
        """Mean loss since the last drift (0 before the first value)."""
        return self._mean

    def update(self, loss: float) -> LossRise | None:
        """Take the loss of one impression; how it rose, when it has risen for good. NaN is ignored."""
        if self._detector is None or math.isnan(loss):
            return None
        self._recent = loss if self._count == 0 else self._recent + RECENT * (loss - self._recent)
        before = self._mean
        self._count += 1
        self._mean += (loss - self._mean) / self._count
        self._detector.update(loss)
        if not self._detector.drift_detected:
            return None
        self._count, self._mean = 1, self._recent
        return LossRise(before, self._recent) if self._recent > before else None


def _detector(kind: DriftKind) -> Detector | None:
    if kind == "adwin":
        return ADWIN(delta=0.002)  # type: ignore[no-any-return]
    if kind == "page_hinkley":
        return PageHinkley(min_instances=30, delta=0.005, threshold=10.0, mode="up")  # type: ignore[no-any-return]
    return None


LossesOf: TypeAlias = Callable[[Sequence[Impression]], Float]
"""Holdout loss of each impression under one version, float64[n]."""


class DriftWatch:
    """One detector, replaced when another version becomes best or a STOP is given.

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
        self, losses_of: LossesOf, history: JudgedHistory, window: Window, fresh: Sequence[HeldImpression]
    ) -> LossRise | None:
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
        risen: LossRise | None = None
        for loss in losses_of([held.impression for held in fresh]).tolist():
            risen = self._drift.update(loss) or risen
        return risen


def _split(window: Window, stopped_at: Positions | None) -> tuple[list[HeldImpression], list[HeldImpression]]:
    """The window before and after the STOP; all of it is before when none was given by the validator."""
    before: list[HeldImpression] = []
    after: list[HeldImpression] = []
    for held in window:
        known = not stopped_at or held.offset < stopped_at.get(held.partition, 0)
        (before if known else after).append(held)
    return before, after
