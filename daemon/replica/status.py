"""What a replica says of itself, for health, metrics and the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from daemon.replica.model import ModelId


class NotServing(Exception):
    """Nothing can be answered yet under this alias; the message says why."""


@dataclass(frozen=True, slots=True)
class CarriedError:
    """What carrying a form over cost, measured when it was made anew, on a sample; all relative, 0 is exact.

    fold: of folded queries. norms: of item norms, the largest. overlap: mean share of the top 10 that stays,
    1 is exact. events: applied between the two forms. seconds: what making the new form took.
    """

    fold: float
    norms: float
    overlap: float
    events: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """A snapshot.

    model: what answers, None for nothing yet. since: when it began, seconds since the epoch. why_not_newer: why
    nothing newer is served, "" when there is nothing newer. following: "steps" or "versions". refusals: counts by reason.
    swaps: counts by result. swap_seconds: the last swap by phase (load, form, prepare, warm, flip, drain).
    carried: the last measured error, None before any. stuck: readers who do not leave the old side.
    fallbacks: how often following the steps had to begin anew from a version, by reason.
    """

    alias: str
    model: ModelId | None
    since: float | None
    why_not_newer: str
    following: str
    refusals: Mapping[str, int] = field(default_factory=dict)
    fallbacks: Mapping[str, int] = field(default_factory=dict)
    swaps: Mapping[str, int] = field(default_factory=dict)
    swap_seconds: Mapping[str, float] = field(default_factory=dict)
    carried: CarriedError | None = None
    stuck: tuple[str, ...] = ()
