"""The validator's memory is the ledger: a pure fold of its entries into the history the decisions need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from checkpoints.aliases import PAUSE, stop_in_force
from checkpoints.ledger import LedgerEntry
from daemon.validate.decide import History, Positions
from daemon.validate.rules import DecisionRule, Judged, Standing, is_finite, judge_by

BEST = "best"
VALIDATE = "validate"
REFERENCE = "version_0"
REFUSED = "refused"
DECIDED_BY = "decision_measure"
POSITIONS = "holdout_positions"
BEST_BEFORE = "best_before"
BEST_DECISION = "best_decision"
BEST_HOLDS = "best_holds"
MIN_DELTA = "min_delta"


def fold(entries: Iterable[LedgerEntry], rule: DecisionRule) -> History:
    """History since the last RESUME. Entries judged by another rule (the judgments came or went) do not
    count, nor does a judgement of a version refused later: a best version that can no longer be read. The
    learner's own pauses, and what lifts them, say nothing about versions.
    """
    judged: list[Judged] = []
    refused: set[int] = set()
    baseline = frozenset({0})
    promoted: int | None = None
    ordered = sorted(entries, key=lambda e: e.n)
    for entry in ordered:
        if entry.kind == "KEEP" and entry.version is not None:
            if entry.measures.get(REFUSED):
                refused.add(entry.version)
                judged = [one for one in judged if one.version != entry.version]
            else:
                judged += _judged(entry.version, entry.measures, rule)
        elif entry.kind in ("PROMOTE", "ROLLBACK") and entry.alias == BEST:
            promoted = entry.version
        elif entry.kind == "RESUME" and PAUSE not in entry.measures:
            judged = []
            baseline = frozenset({0} if promoted is None else {0, promoted})
    stop = stop_in_force(ordered)
    stopped = None if stop is None else positions_of(stop.measures)
    return History(tuple(judged), baseline, frozenset(refused), promoted, stopped)


def measured_positions(positions: Positions) -> dict[str, int]:
    """Holdout positions as they stand in an entry's measures (JSON has no whole numbers as keys)."""
    return {str(partition): offset for partition, offset in sorted(positions.items())}


def positions_of(measures: Mapping[str, Any]) -> Positions:
    """The inverse of `measured_positions`; empty for an entry written by somebody else."""
    found = measures.get(POSITIONS)
    return {int(partition): int(offset) for partition, offset in found.items()} if found else {}


def _judged(version: int, measures: Mapping[str, Any], rule: DecisionRule) -> list[Judged]:
    reference = measures.get(REFERENCE)
    if not isinstance(reference, Mapping) or measures.get(DECIDED_BY) != rule.measure:
        return []
    if not is_finite(measures, rule) or not is_finite(reference, rule):
        return []
    return [judge_by(rule, version, measures, reference, _standing(measures))]


def _standing(measures: Mapping[str, Any]) -> Standing | None:
    """The best version the candidate was judged against, with the `min_delta` of that day: another setting
    today leaves what was decided.
    """
    number = measures.get(BEST_BEFORE)
    if not number:
        return None
    value, min_delta = float(measures[BEST_DECISION]), float(measures[MIN_DELTA])
    return Standing(int(number), value, min_delta, bool(measures[BEST_HOLDS]))
