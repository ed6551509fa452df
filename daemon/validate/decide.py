"""Which version is best and when to stop: pure functions over the judged versions.

Every version is judged together with version 0 (the untrained similarity) on the same holdout window, and
what decides is the **gain**: the decision measure minus version 0's. A moving window makes all versions
easier or harder together; the gain does not move with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

SHOWN_GUARD_TOLERANCE = 0.01
"""How far `clicked_vs_random` may fall below version 0's: with 1,000 impressions of 100 draws its standard
error is below 0.01, so a smaller tolerance would refuse versions for noise.
"""

STOP_PATIENCE = "patience"
Positions = dict[int, int]
Kind = Literal["KEEP", "PROMOTE", "STOP", "RESUME"]


@dataclass(frozen=True, slots=True)
class DecisionRule:
    """A decision measure and the guard that must hold before a version may be best.

    `measure` decides; `guard` may not fall below version 0's by more than `tolerance`.
    """

    measure: str
    guard: str
    tolerance: float


FULL_CATALOG = DecisionRule("map_full", "p10_full", 0.0)
"""With judgments: mAP over the whole catalog; P@10 must not pay for it."""
SHOWN_LIST = DecisionRule("map_shown", "clicked_vs_random", SHOWN_GUARD_TOLERANCE)
"""Without: AP inside the shown lists, which can rise while retrieval over the catalog collapses; the guard
sees that collapse, because it compares clicked objects with random ones instead of with near neighbours.
"""


@dataclass(frozen=True, slots=True)
class StopRule:
    """Early stop, counted in judged versions: `patience` of them without a gain of `min_delta`, after
    `min_versions` at the earliest."""

    patience: int
    min_delta: float
    min_versions: int


@dataclass(frozen=True, slots=True)
class Judged:
    """One judged version: its decision measure, version 0's on the same window, and if the guard held."""

    version: int
    value: float
    reference: float
    guarded: bool = True

    @property
    def gain(self) -> float:
        """Decision measure above version 0's."""
        return self.value - self.reference


@dataclass(frozen=True, slots=True)
class History:
    """What the ledger says since the last RESUME: judged versions in order, and the verdicts already given.

    `baseline` holds the versions judged only as a yardstick (version 0, and the best version carried over a
    RESUME): they may be best, but patience does not count them. `stopped_at` holds the holdout positions at
    which a STOP was given (empty when it was not given by the validator), None while learning goes on.
    """

    judged: tuple[Judged, ...] = ()
    baseline: frozenset[int] = frozenset({0})
    refused: frozenset[int] = frozenset()
    promoted: int | None = None
    stopped_at: Positions | None = None

    @property
    def stopped(self) -> bool:
        """Whether a STOP is in force."""
        return self.stopped_at is not None


@dataclass(frozen=True, slots=True)
class Verdict:
    """One ledger entry to write."""

    kind: Kind
    version: int
    reason: str
    measures: Mapping[str, Any] = field(default_factory=dict)


def judge_by(
    rule: DecisionRule, version: int, own: Mapping[str, Any], reference: Mapping[str, Any]
) -> Judged:
    """Apply a rule to a version's measures and version 0's on the same window. KeyError: the measure is
    absent.
    """
    return Judged(
        version, float(own[rule.measure]), float(reference[rule.measure]), guard_holds(rule, own, reference)
    )


def guard_holds(rule: DecisionRule, own: Mapping[str, Any], reference: Mapping[str, Any]) -> bool:
    """True when the guard measure is known for both and not below version 0's by more than the tolerance."""
    mine, base = own.get(rule.guard), reference.get(rule.guard)
    if mine is None or base is None:
        return False
    return bool(mine >= base - rule.tolerance)


def best_version(judged: Sequence[Judged]) -> int:
    """The version with the highest gain among those whose guard held; version 0 (gain 0) is always a
    candidate.

    A version judged twice counts by its later judgement; equal gains go to the lower number. Never a
    version with a gain below 0, so the best is never below version 0 on the decision measure.
    """
    latest = {entry.version: entry for entry in judged}
    best, best_gain = 0, 0.0
    for version in sorted(latest):
        entry = latest[version]
        if version and entry.guarded and entry.gain > best_gain:
            best, best_gain = version, entry.gain
    return best


def out_of_patience(history: History, rule: StopRule) -> bool:
    """Early stop: the last `patience` judged versions brought no gain of `min_delta` over the best before
    them.

    Small gains add up: the mark moves only when it is beaten by `min_delta`, so slow steady learning goes
    on.
    """
    mark = max((e.gain for e in history.judged if e.version in history.baseline and e.guarded), default=0.0)
    mark = max(mark, 0.0)
    counted, stale = 0, 0
    for entry in history.judged:
        if entry.version in history.baseline:
            continue
        counted += 1
        stale += 1
        if entry.guarded and entry.gain >= mark + rule.min_delta and entry.gain > mark:
            mark, stale = entry.gain, 0
    return counted >= rule.min_versions and stale >= rule.patience


def outstanding(history: History, rule: StopRule) -> tuple[Verdict, ...]:
    """PROMOTE and STOP verdicts that follow from the history and are not in the ledger yet.

    Asked after every judgement and once at start-up: a crash between two ledger entries is completed then.
    """
    if history.stopped or not history.judged:
        return ()
    best = best_version(history.judged)
    verdicts = []
    if best != history.promoted:
        latest = {entry.version: entry for entry in history.judged}
        gain = latest[best].gain if best in latest else 0.0
        verdicts.append(Verdict("PROMOTE", best, f"best by {gain:+.4f} over version 0"))
    if out_of_patience(history, rule):
        verdicts.append(Verdict("STOP", best, STOP_PATIENCE))
    return tuple(verdicts)


def next_to_judge(history: History, newest: int | None) -> int | None:
    """The version to judge now: first the yardsticks not judged since the last RESUME, then the newest.

    None when there is nothing new, when STOP was written, or when no version exists. Versions between two
    judgements are skipped on purpose: a judge that falls behind would judge the past.
    """
    if newest is None or history.stopped:
        return None
    seen = {entry.version for entry in history.judged} | history.refused
    for version in (*sorted(history.baseline), newest):
        if version not in seen:
            return version
    return None


def is_finite(measures: Mapping[str, Any], rule: DecisionRule) -> bool:
    """True when the decision measure is there and a finite number."""
    value = measures.get(rule.measure)
    return value is not None and math.isfinite(value)
