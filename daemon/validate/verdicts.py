"""Verdicts as ledger entries: what is written about a judged version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemon.validate.decide import DecisionRule, Positions, Verdict, guard_holds
from daemon.validate.drift import Risen
from daemon.validate.history import BEST, POSITIONS, REFERENCE, REFUSED, VALIDATE, measured_positions
from daemon.validate.shelf import Candidate


def keep_entry(
    candidate: Candidate,
    own: Mapping[str, float],
    reference: Mapping[str, float],
    rule: DecisionRule,
    window: tuple[int, Positions],
) -> dict[str, Any]:
    """KEEP with every measure of the version and of version 0 on the same window.

    `window` is (impressions, holdout positions): with `state_hash` they determine all the numbers.
    """
    value, base = own[rule.measure], reference[rule.measure]
    guarded = guard_holds(rule, own, reference)
    count, positions = window
    measures = {
        "events": candidate.events,
        **own,
        "decision": value,
        "decision_measure": rule.measure,
        "guarded": guarded,
        "impressions": count,
        "state_hash": candidate.manifest.state_hash,
        POSITIONS: measured_positions(positions),
        REFERENCE: dict(reference),
    }
    told = f"{rule.measure} {value:.4f}, version 0 {base:.4f}"
    if not guarded:
        told += f"; not best: {rule.guard} is below version 0"
    return _entry("KEEP", candidate.number, told, measures)


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
