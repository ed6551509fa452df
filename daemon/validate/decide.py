"""Which version is best and when to stop: pure functions over the judged versions.

Every version is judged together with version 0 (the untrained similarity) on the same holdout window, and
what decides is the **gain**: the decision measure minus version 0's. A moving window makes all versions
easier or harder together; the gain does not move with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from daemon.validate.rules import Judged

STOP_PATIENCE = "patience"
Positions = dict[int, int]
Kind = Literal["KEEP", "PROMOTE", "STOP", "RESUME"]


@dataclass(frozen=True, slots=True)
class StopRule:
    """Early stop, counted in judged versions: `patience` of them without a gain of `min_delta`, after
    `min_versions` at the earliest."""

    patience: int
    min_delta: float
    min_versions: int


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


def best_version(judged: Sequence[Judged]) -> int:
    """The eligible version with the highest gain, else version 0.

    A version judged twice counts by its later judgement; equal gains go to the lower number. Never a
    version with a gain below 0, so the best is never below version 0 on the decision measure.
    """
    latest = {entry.version: entry for entry in judged}
    best, best_gain = 0, 0.0
    for version in sorted(latest):
        entry = latest[version]
        if version and entry.eligible and entry.gain > best_gain:
            best, best_gain = version, entry.gain
    return best


def out_of_patience(history: History, rule: StopRule) -> bool:
    """Early stop: the last `patience` judged versions brought no gain of `min_delta` over the best before
    them.

    Small gains add up: the mark moves only when it is beaten by `min_delta`, so slow steady learning goes on.
    Noise stops by itself: the more versions a mark has beaten, the less likely the next beats it by
    `min_delta`. Versions judged on a window that could not decide do not count.
    """
    mark = max((e.gain for e in history.judged if _sets_mark(e, history)), default=0.0)
    mark = max(mark, 0.0)
    counted, stale = 0, 0
    for entry in history.judged:
        if entry.version in history.baseline or not entry.enough:
            continue
        counted += 1
        stale += 1
        if entry.guarded and entry.gain >= mark + rule.min_delta and entry.gain > mark:
            mark, stale = entry.gain, 0
    return counted >= rule.min_versions and stale >= rule.patience


def _sets_mark(entry: Judged, history: History) -> bool:
    return entry.version in history.baseline and entry.guarded and entry.enough


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
        why = f"best by {latest[best].gain:+.4f} over version 0" if best else "no version is surely better"
        verdicts.append(Verdict("PROMOTE", best, why))
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
