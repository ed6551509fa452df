"""Verdicts as ledger entries: what is written about a judged version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemon.validate.decide import Positions, Verdict
from daemon.validate.drift import Risen
from daemon.validate.history import (
    BEST,
    BEST_BEFORE,
    BEST_DECISION,
    BEST_HOLDS,
    DECIDED_BY,
    MIN_DELTA,
    POSITIONS,
    REFERENCE,
    REFUSED,
    VALIDATE,
    measured_positions,
)
from daemon.validate.rules import DecisionRule, Standing, judge_by, why_not
from daemon.validate.shelf import Candidate
from daemon.versions.key_verdicts import KEYS, KeyVerdict, verdicts_to_json


def keep_entry(
    candidate: Candidate,
    own: Mapping[str, float],
    reference: Mapping[str, float],
    rule: DecisionRule,
    window: tuple[int, Positions],
    *,
    best: Standing | None,
    keys: Mapping[str, KeyVerdict] | None = None,
) -> dict[str, Any]:
    """KEEP with every measure of the version and of version 0 on the same window, and how the best version
    so far stands there (None: version 0 is best). keys: the verdicts on its models, where there is one per
    key.

    `window` is (impressions, holdout positions): with `state_hash` they determine all the numbers.
    """
    count, positions = window
    known = {**own, "impressions": count}
    judged = judge_by(rule, candidate.number, known, reference, best)
    measures = {
        "events": candidate.events,
        **known,
        "decision": judged.value,
        DECIDED_BY: rule.measure,
        "guarded": judged.guarded,
        "eligible": judged.eligible,
        "state_hash": candidate.manifest.state_hash,
        POSITIONS: measured_positions(positions),
        REFERENCE: {**reference, "decision": judged.reference},
        **_against(best),
        **({} if keys is None else {KEYS: verdicts_to_json(keys)}),
    }
    told = f"{rule.measure} {judged.value:.4f}, version 0 {judged.reference:.4f}"
    if best is not None:
        told += f", best so far ({best.version}) {best.value:.4f}"
    if candidate.number and not judged.beats:
        told += f"; not best: {why_not(rule, judged, known, reference)}"
    if keys is not None:
        told += f"; {sum(one.learned for one in keys.values())} of {len(keys)} keys judged learned"
    return _entry("KEEP", candidate.number, told, measures)


def _against(best: Standing | None) -> dict[str, Any]:
    if best is None:
        return {BEST_BEFORE: 0}
    return {
        BEST_BEFORE: best.version,
        BEST_DECISION: best.value,
        BEST_HOLDS: best.holds,
        MIN_DELTA: best.min_delta,
    }


def refused_entry(version: int, why: str, positions: Positions) -> dict[str, Any]:
    """KEEP of a version that must never be best."""
    measures = {REFUSED: True, POSITIONS: measured_positions(positions)}
    return _entry("KEEP", version, f"refused: {why}", measures)


def verdict_entry(verdict: Verdict, positions: Positions) -> dict[str, Any]:
    """PROMOTE (of the alias `best`) or STOP."""
    entry = _entry(verdict.kind, verdict.version, verdict.reason, {POSITIONS: measured_positions(positions)})
    return {**entry, "alias": BEST} if verdict.kind == "PROMOTE" else entry


def resume_entry(version: int, risen: Risen, positions: Positions) -> dict[str, Any]:
    """RESUME because the best version's holdout loss has risen."""
    why = f"drift: holdout loss of version {version} rose from {risen.before:.3f} to {risen.now:.3f}"
    return _entry("RESUME", version, why, {POSITIONS: measured_positions(positions)})


def _entry(kind: str, version: int, reason: str, measures: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kind": kind,
        "version": version,
        "by": VALIDATE,
        "reason": reason,
        "measures": dict(measures),
    }
