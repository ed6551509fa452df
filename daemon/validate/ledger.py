"""Verdicts as ledger entries, and back: the validator's memory is the ledger.

A pure fold of its entries gives the history that the decisions need; each decision becomes one entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter

from checkpoints.entries import ANCHOR, LedgerEntry, is_pause, stop_in_force
from daemon.validate.decide import (
    MEANS,
    DecisionRule,
    Incumbent,
    Judged,
    JudgedHistory,
    LossRise,
    Trials,
    Verdict,
    is_finite,
    judge_by,
    why_not,
)
from daemon.validate.evaluator import Candidate
from daemon.validate.evidence import ORDER_SHARE, Conclusion, Positions, Standing, Weighed
from daemon.versions.contents import DROPPED
from daemon.versions.key_verdicts import KEYS, KeyVerdict, verdicts_to_json
from daemon.versions.order import ORDER, REACH
from daemon.versions.verdict import (
    ANSWER,
    JudgedGain,
    PlainAnswer,
    Stopped,
    by_judgments,
    by_keys,
    by_mean,
    short_name,
)

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
FORM = "form"
"""Of a judgement: the form of the version, and why, where forms are judged."""
BEST_MEASURES = "best_measures"
"""Of a judgement: what the best version before it reaches on the same window."""
TRIAL = "trial"
"""Of a RESUME after enough new events: trials since the last gain, events that the gain took."""
FORMER = {"balanced_hop": "position_balanced"}
"""What earlier releases decided by, and what is decided by instead."""
EVIDENCE = "evidence"
"""Of a judgement by evidence: its outcome, and what is known after it."""
_CONCLUSION = TypeAdapter(Conclusion)


def fold(entries: Iterable[LedgerEntry], rule: DecisionRule) -> JudgedHistory:
    """History since the last RESUME. Entries judged by another rule (the judgments came or went) do not
    count, nor does a judgement of a version refused later: a best version that can no longer be read. The
    learner's own pauses, and what lifts them, say nothing about versions.
    """
    judged: list[Judged] = []
    refused: set[int] = set()
    baseline = frozenset({0})
    promoted, reach = None, True
    standing, trials, stood = Standing(), Trials(), 0

    def reached() -> int:
        return max([trials.began, stood, *(one.events for one in judged)])

    ordered = sorted(entries, key=lambda e: e.n)
    for entry in ordered:
        if entry.kind == "KEEP" and entry.version is not None:
            if entry.measures.get(REFUSED):
                refused.add(entry.version)
                judged = [one for one in judged if one.version != entry.version]
            elif found := _judged(entry.version, entry.measures, rule):
                judged.append(found)
                if found.outcome is not None:
                    standing = Standing.from_json(entry.measures[EVIDENCE]["standing"])
        elif entry.kind in ("PROMOTE", "ROLLBACK") and entry.alias == BEST:
            promoted, reach = entry.version, bool(entry.measures.get(REACH, True))
            if entry.kind == "ROLLBACK" and entry.by == VALIDATE:
                trials = Trials(began=reached())
                judged = [one for one in judged if one.version == 0]  # what led to the fallen one
        elif entry.kind == "STOP":
            given = Stopped.from_json(entry.measures)
            stood = stood if given is None else given.at
        elif entry.kind == "RESUME" and not is_pause(entry):
            count, took = entry.measures.get(TRIAL, (0, 0))
            trials = Trials(int(count), int(took), reached())
            judged = []
            baseline = frozenset({0} if promoted is None else {0, promoted})
            through, bettor = positions_of(entry.measures), standing.bettor
            anchor, falls, race = (promoted or 0) if reach else 0, standing.falls, standing.race
            standing = Standing(anchor, falls=falls, through=through, bettor=bettor, race=race)
    stop = stop_in_force(ordered)
    stopped = None if stop is None else positions_of(stop.measures)
    why = None if stop is None or stop.by != VALIDATE else Stopped.from_json(stop.measures)
    known = (tuple(judged), baseline, frozenset(refused), promoted, stopped, standing)
    latest = max((one.version or 0 for one in ordered if one.kind == "KEEP"), default=-1)
    return JudgedHistory(*known, trials, why, reach, latest)


def stood_at(entries: Iterable[LedgerEntry]) -> Positions:
    """Where the holdout was read to when `validate` wrote last, entries ascending; {} where it has not."""
    found = (positions_of(one.measures) for one in entries if one.by == VALIDATE)
    return next(filter(None, reversed(list(found))), {})


def positions_of(measures: Mapping[str, Any]) -> Positions:
    """Holdout positions in an entry's measures; empty for one written by somebody else."""
    found = measures.get(POSITIONS)
    return {int(partition): int(offset) for partition, offset in found.items()} if found else {}


def _judged(version: int, measures: Mapping[str, Any], rule: DecisionRule) -> Judged | None:
    reference = measures.get(REFERENCE)
    decided_by = str(measures.get(DECIDED_BY))
    if not isinstance(reference, Mapping) or FORMER.get(decided_by, decided_by) != rule.measure:
        return None
    if decided_by in FORMER:  # its values, the best version's too, are of the former measure
        measures = {**measures, rule.measure: measures.get(decided_by)}
        reference = {**reference, rule.measure: reference.get(decided_by)}
    if not is_finite(measures, rule) or not is_finite(reference, rule):
        return None
    found = measures.get(EVIDENCE)
    outcome = _CONCLUSION.validate_python(found) if isinstance(found, Mapping) else None
    best, number = None, measures.get(BEST_BEFORE)
    if number:  # with the `min_delta` of that day: another setting today leaves what was decided
        stands = float(measures[BEST_DECISION]), float(measures[MIN_DELTA]), bool(measures[BEST_HOLDS])
        best = Incumbent(int(number), *stands)
    judged = judge_by(rule, version, measures, reference, best)
    events, order = int(measures.get("events", 0)), measures.get(ORDER)
    return replace(judged, outcome=outcome, events=events, order=order)


def keep_entry(
    candidate: Candidate,
    own: Mapping[str, float],
    reference: Mapping[str, float],
    rule: DecisionRule,
    window: tuple[int, Positions],
    *,
    best: Incumbent | None,
    best_measures: Mapping[str, float] | None = None,
    keys: Mapping[str, KeyVerdict] | None = None,
    evidence: Weighed | None = None,
    gains: Mapping[int, JudgedGain | None] | None = None,
) -> dict[str, Any]:
    """KEEP with every measure of the version and of version 0 on the same window, and how the best version
    so far stands there (None: version 0 is best), with its measures. keys: the verdicts on its models, where
    there is one per key. evidence: where that decides; gains: by version, where judgments do.

    `window` is (impressions, holdout positions): with `state_hash` they determine all the numbers.
    """
    count, positions = window
    known = {**own, "impressions": count}
    judged = judge_by(rule, candidate.number, known, reference, best)
    if evidence is not None:
        judged = replace(judged, outcome=evidence.outcome)
    measures: dict[str, Any] = {
        "events": candidate.events,
        **known,
        "decision": judged.value,
        DECIDED_BY: rule.measure,
        "guarded": judged.guarded,
        "eligible": judged.eligible if judged.outcome is None else judged.outcome.promoted,
        "state_hash": candidate.manifest.state_hash,
        REFERENCE: {**reference, "decision": judged.reference},
        BEST_BEFORE: 0 if best is None else best.version,
    }
    reason = f"{short_name(rule.measure)} {judged.value:.4f}, version 0 {judged.reference:.4f}"
    if best is not None:
        measures |= {BEST_DECISION: best.value, BEST_HOLDS: best.holds, MIN_DELTA: best.min_delta}
        measures[BEST_MEASURES] = dict(best_measures or {})
        reason += f", best so far ({best.version}) {best.value:.4f}"
    if evidence is not None:
        measures |= {EVIDENCE: evidence.to_json(), ANCHOR: evidence.standing.anchor}
        race, alpha = evidence.standing.race, ORDER_SHARE * evidence.rule.alpha
        measures[ORDER] = None if race.choice is None else race.choice.to_json()
        measures |= {DROPPED: list(gone)} if (gone := race.dropped(alpha)) else {}
    answer = _answer(judged, rule, keys, evidence, gains)
    if answer is not None:
        measures[ANSWER] = answer.to_json()
        reason += f"; {answer.sentence}"
    if evidence is None and candidate.number and not judged.beats:
        reason += f"; not best: {why_not(rule, judged)}"
    if candidate.choice is not None:
        measures[FORM] = candidate.choice.to_json()
        only_orders = judged.outcome is not None and judged.outcome.promoted and not judged.outcome.reach
        reason += f"; {'its form is' if only_orders else 'served with'} {candidate.choice.why}"
    if keys is not None:
        measures[KEYS] = verdicts_to_json(keys)
        reason += f"; {sum(one.learned for one in keys.values())} of {len(keys)} keys judged learned"
    return _entry("KEEP", candidate.number, reason, positions, measures)


def _answer(
    judged: Judged,
    rule: DecisionRule,
    keys: Mapping[str, KeyVerdict] | None,
    evidence: Weighed | None,
    gains: Mapping[int, JudgedGain | None] | None,
) -> PlainAnswer | None:
    """Is it better? None for version 0, and where nothing says so."""
    if evidence is not None:
        return evidence.answer
    if keys is not None and judged.version:
        return by_keys(sum(one.learned for one in keys.values()), len(keys))
    served = judged.version if judged.beats else 0 if judged.best is None else judged.best.version
    gain = (gains or {}).get(served or judged.version)
    if gain is not None and judged.version:
        return by_judgments(served, gain)
    if rule.measure not in MEANS or not judged.version:
        return None
    value = judged.value if judged.beats or judged.best is None else judged.best.value
    return by_mean(short_name(rule.measure), served, value, judged.reference)


def refused_entry(version: int, why: str, positions: Positions) -> dict[str, Any]:
    """KEEP of a version that must never be best."""
    return _entry("KEEP", version, f"refused: {why}", positions, {REFUSED: True})


def verdict_entry(verdict: Verdict, positions: Positions) -> dict[str, Any]:
    """PROMOTE or ROLLBACK of the alias `best`, or STOP."""
    entry = _entry(verdict.kind, verdict.version, verdict.reason, positions, verdict.measures)
    return entry if verdict.kind == "STOP" else {**entry, "alias": BEST}


def resume_entry(version: int, risen: LossRise, positions: Positions) -> dict[str, Any]:
    """RESUME because the best version's holdout loss has risen."""
    why = f"drift: holdout loss of version {version} rose from {risen.before:.3f} to {risen.now:.3f}"
    return _entry("RESUME", version, why, positions, {})


def trial_entry(version: int, stop: Stopped, came: int, positions: Positions) -> dict[str, Any]:
    """RESUME because as many events have come since the STOP as were to be waited for."""
    why = f"trial: {came:,} new events have come since learning was stopped"
    return _entry("RESUME", version, why, positions, {TRIAL: [stop.trials + 1, stop.wait >> stop.trials]})


def _entry(
    kind: str, version: int, reason: str, positions: Positions, measures: Mapping[str, Any]
) -> dict[str, Any]:
    known = {str(partition): offset for partition, offset in sorted(positions.items())}  # JSON keys are text
    measures = {**measures, POSITIONS: known}
    return {"kind": kind, "version": version, "by": VALIDATE, "reason": reason, "measures": measures}
