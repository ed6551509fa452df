"""What a replica says of itself, for health, metrics and the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from daemon.replica.model import ModelId


class NotServing(Exception):
    """Nothing can be answered yet under this alias; the message says why."""


@dataclass(frozen=True, slots=True)
class Refined:
    """What carrying a form over cost, measured on a sample when the form was made anew.

    fold: relative error of folded queries, norms: the largest one of an item's norm, 0 is exact; overlap:
    mean share of the top 10 that stays, 1 is exact. records: applied between the two forms. seconds: of
    processor time that the new form and what is prepared of it took.
    """

    fold: float
    norms: float
    overlap: float
    records: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """A snapshot.

    model: what answers, None for nothing yet; since: when its version or its last steps came, seconds since
    the epoch. why_not_newer: why nothing newer is served, "" when there is nothing newer. following: "steps"
    while the learner is followed step by step, else "versions". refusals: versions refused, by reason.
    fallbacks: how often the step log was lost, by reason. swaps: flips by what changed (version, steps,
    relabel, refine). swap_seconds: of the last version swapped in, by phase (load, prepare, follow, warm,
    flip). carried: the last measured error, None before any. stuck: readers who do not leave the old side.
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
    carried: Refined | None = None
    stuck: tuple[str, ...] = ()
