"""Which version is best and when to stop: pure functions over the judged versions.

Every version is judged together with version 0 (the untrained similarity) and the best version so far on
the same holdout window. To be best it must be surely better than version 0 there, and better than the best
by `min_delta`. Numbers from different windows are never compared: when the best version makes the lists,
the window changes its character with it, and a gain over version 0 says as much about the lists as about
the version.

The best version gives way only to a better one. Where it falls below version 0 on the newest window it is
reported (a warning and a metric), not replaced: one window is noise, and clicks that changed for good are
for the drift detector, after which it must show itself surely better than version 0 again.
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
    """Early stop, counted in judged versions: `patience` of them without a new best, after `min_versions` at
    the earliest.
    """

    patience: int
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

    @property
    def seen(self) -> frozenset[int]:
        """Versions with a judgement, or refused one."""
        return self.refused.union(entry.version for entry in self.judged)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One ledger entry to write."""

    kind: Kind
    version: int
    reason: str
    measures: Mapping[str, Any] = field(default_factory=dict)


def best_version(judged: Sequence[Judged]) -> int:
    """The last version that beat the best before it, each pair on one window; version 0 when none did.

    A version judged against another best than the one that stands does not count: that one was refused
    meanwhile.
    """
    best = 0
    for entry in judged:
        if _replaces(entry, best):
            best = entry.version
    return best


def out_of_patience(history: History, rule: StopRule) -> bool:
    """Early stop: the last `patience` judged versions brought no new best.

    Small gains add up: versions are compared with the best, not with the version before, so slow steady
    learning makes a new best whenever `min_delta` has come together. Versions judged on a window that could
    not decide do not count.
    """
    best, counted, stale = 0, 0, 0
    for entry in history.judged:
        replaces = _replaces(entry, best)
        if replaces:
            best = entry.version
        if entry.version in history.baseline or not entry.enough:
            continue
        counted += 1
        stale = 0 if replaces else stale + 1
    return counted >= rule.min_versions and stale >= rule.patience


def _replaces(entry: Judged, best: int) -> bool:
    against = 0 if entry.best is None else entry.best.version
    return entry.version != 0 and against == best and entry.beats


def outstanding(history: History, rule: StopRule) -> tuple[Verdict, ...]:
    """PROMOTE and STOP verdicts that follow from the history and are not in the ledger yet.

    Asked after every judgement and once at start-up: a crash between two ledger entries is completed then.
    Nothing follows before the yardsticks are judged: after a RESUME the best version is not given up unheard.
    """
    if history.stopped or not history.baseline <= history.seen:
        return ()
    best = best_version(history.judged)
    verdicts = []
    if best != history.promoted:
        verdicts.append(Verdict("PROMOTE", best, _why_best(history, best)))
    if out_of_patience(history, rule):
        verdicts.append(Verdict("STOP", best, STOP_PATIENCE))
    return tuple(verdicts)


def _why_best(history: History, best: int) -> str:
    entry = next((one for one in reversed(history.judged) if one.version == best), None)
    if entry is None or not best:
        return "no version is surely better"
    why = f"best by {entry.gain:+.4f} over version 0"
    return why if entry.best is None else f"{why}, {entry.lead:+.4f} over version {entry.best.version}"


def next_to_judge(history: History, newest: int | None) -> int | None:
    """The version to judge now: first the yardsticks not judged since the last RESUME, then the newest.

    None when there is nothing new, when STOP was written, or when no version exists. Versions between two
    judgements are skipped on purpose: a judge that falls behind would judge the past.
    """
    if newest is None or history.stopped:
        return None
    for version in (*sorted(history.baseline), newest):
        if version not in history.seen:
            return version
    return None
