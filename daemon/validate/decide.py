"""Which version is best and when to stop: pure functions over the judged versions, and the rules they follow.

Every version is judged together with version 0 (the untrained similarity) and the best version so far on
the same holdout window: numbers from different windows are never compared. To be best it must be surely
better than version 0 there, and better than the best by `min_delta`. The best version gives way only to a
better one. Where it falls below version 0 on the newest window it is reported (a warning and a metric), not
replaced: one window is noise, and clicks that changed for good are for the drift detector.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from daemon.validate.evidence import Conclusion, Positions, Standing
from daemon.versions.order import ORDER, REACH
from daemon.versions.verdict import Stopped, short_name

CLICKS_MARGIN = 0.02
"""Smallest gain of a version that may be best by clicks. The standard deviation of a gain is 0.016 on 200
impressions, 0.008 on 500, 0.006 on 2,000; versions that learned from clicks without any preference gained up
to 0.013.
"""
CLICKS_IMPRESSIONS = 500
"""Impressions for which the margin is meant: there it is two and a half deviations of the noise of a gain. On
fewer it grows as the noise does.
"""
NOISE_EXPONENT = 0.75
"""The deviation of a gain grew from 500 impressions to 200 by (500 / 200) to this power."""
RANDOM_TOLERANCE = 0.03
"""How far `clicked_vs_random` may fall below version 0's: lists made by version 0 give it 1 by construction,
and where many objects are relevant (569 in two classes) a far better version had .977.
"""


@dataclass(frozen=True, slots=True)
class DecisionRule:
    """What decides: `measure`, by its gain over version 0.

    To be best a version needs a gain of at least `margin` (and above 0), and a `guard`, another measure, that
    is not below version 0's by more than `tolerance`. The margin is meant for `margin_impressions`.
    """

    measure: str
    guard: str = ""
    tolerance: float = 0.0
    margin: float = 0.0
    margin_impressions: int = 0

    def is_guarded(self, own: Mapping[str, Any], reference: Mapping[str, Any]) -> bool:
        """Whether the guard is known of both, and not too far below version 0's."""
        mine, base = own.get(self.guard), reference.get(self.guard)
        return not self.guard or (mine is not None and base is not None and mine >= base - self.tolerance)

    def margin_on(self, impressions: int) -> float:
        """The gain asked for on so many impressions: larger on few of them, by as much as noise is."""
        short = max(1.0, self.margin_impressions / max(1, impressions))
        return self.margin * float(short**NOISE_EXPONENT)


FULL_CATALOG = DecisionRule("map_full", "p10_full")
"""With judgments: mAP over the whole catalog; P@10 must not pay for it."""
CLICKS = DecisionRule(
    "position_balanced", "clicked_vs_random", RANDOM_TOLERANCE, CLICKS_MARGIN, CLICKS_IMPRESSIONS
)
"""Of a model per key: the order of shown lists; objects that were not shown say whether search collapses."""
MEANS = {rule.measure: rule for rule in (FULL_CATALOG, DecisionRule("map_shown"), DecisionRule("map_clicks"))}
"""By validate.decide, the rules that compare means on one window; `race` is decided by evidence instead."""


@dataclass(frozen=True, slots=True)
class Incumbent:
    """The best version so far on the window a candidate is judged on: its decision measure there, the
    `min_delta` by which the candidate must exceed it, and whether it still `holds` against version 0.
    """

    version: int
    value: float
    min_delta: float
    holds: bool = True


@dataclass(frozen=True, slots=True)
class Judged:
    """One judged version: its decision measure, version 0's and the best version's on the same window.

    `guarded`: every guard held. `margin`: the gain it needs to be best. `enough`: the window could decide;
    otherwise the version cannot be best, and patience does not count it. `best`: None where version 0 was.
    `outcome`: what the evidence says, where that decides and not the values. `events`: learned up to it.
    `order`: how it orders given lists, an `OrderChoice` as JSON.
    """

    version: int
    value: float
    reference: float
    guarded: bool = True
    margin: float = 0.0
    enough: bool = True
    best: Incumbent | None = None
    outcome: Conclusion | None = None
    events: int = 0
    order: Mapping[str, Any] | None = None

    @property
    def gain(self) -> float:
        """Decision measure above version 0's."""
        return self.value - self.reference

    @property
    def lead(self) -> float:
        """Decision measure above the best version's so far."""
        return self.value - (self.reference if self.best is None else self.best.value)

    @property
    def holds(self) -> bool:
        """Not worse than version 0 in anything that counts."""
        return self.guarded and self.gain > 0

    @property
    def eligible(self) -> bool:
        """Whether it may be best. Version 0 needs no permission."""
        return self.holds and self.enough and self.gain >= self.margin

    @property
    def beats(self) -> bool:
        """Whether it replaces the best version so far. Version 0 is beaten by being eligible."""
        if self.outcome is not None:
            return self.outcome.promoted
        if self.best is None:
            return self.eligible
        return self.eligible and self.lead > 0 and self.lead >= self.best.min_delta

    @property
    def fell(self) -> bool:
        """Whether it was found that the best version so far is not better than version 0."""
        return self.outcome is not None and self.outcome.fell

    @property
    def decided(self) -> bool:
        """Whether patience counts it: there was evidence."""
        return self.enough if self.outcome is None else self.outcome.decided


def judge_by(
    rule: DecisionRule,
    version: int,
    own: Mapping[str, Any],
    reference: Mapping[str, Any],
    best: Incumbent | None = None,
) -> Judged:
    """Apply a rule to a version's measures (with `impressions`, the window's), version 0's and the best
    version's on the same window. KeyError: the decision measure is absent.
    """
    return Judged(
        version,
        float(own[rule.measure]),
        float(reference[rule.measure]),
        guarded=rule.is_guarded(own, reference),
        margin=rule.margin_on(own.get("impressions", 0)),
        enough=not rule.guard or reference.get(rule.guard) is not None,
        best=best,
    )


def why_not(rule: DecisionRule, judged: Judged) -> str:
    """Why a judged version does not beat the best one, for people."""
    if not judged.enough:
        return f"the window cannot decide (no {rule.guard})"
    if not judged.guarded:
        return f"{short_name(rule.guard)} below version 0's"
    if judged.best is None or not judged.eligible:
        return f"its gain {judged.gain:+.4f} is not above {judged.margin:.4g}"
    return f"its lead {judged.lead:+.4f} is not above {judged.best.min_delta:g}"


def is_finite(measures: Mapping[str, Any], rule: DecisionRule) -> bool:
    """True when the decision measure is there and a finite number."""
    value = measures.get(rule.measure)
    return value is not None and math.isfinite(value)


Kind = Literal["KEEP", "PROMOTE", "ROLLBACK", "STOP", "RESUME"]


@dataclass(frozen=True, slots=True)
class StopRule:
    """Early stop: no gain in `events` learned, or in as many as the last gain took where those are more, and
    `min_versions` judged versions at the least.

    gain: what counts as one, for people; 0 where clicks prove it.
    """

    events: int = 20_000
    min_versions: int = 3
    gain: float = 0.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long nothing has improved. counted: versions with evidence; stale, idle: versions judged and events
    learned since the last gain; took: events that the last gain took, None without one.
    """

    counted: int = 0
    stale: int = 0
    idle: int = 0
    took: int | None = None

    def is_over(self, rule: StopRule) -> bool:
        """Whether learning is to stop."""
        return self.counted >= rule.min_versions and self.idle >= max(rule.events, self.took or 0)


@dataclass(frozen=True, slots=True)
class Trials:
    """Trials since the last gain, how many events that took, and where learning stood at the beginning."""

    count: int = 0
    took: int = 0
    began: int = 0


@dataclass(frozen=True, slots=True)
class JudgedHistory:
    """What the ledger says since the last RESUME: judged versions in order, and the verdicts already given.

    `baseline` holds the versions judged only to be compared with (version 0, and the best version carried
    over a RESUME): they may be best, but patience does not count them. `stopped_at` holds the holdout
    positions at which a STOP was given (empty when it was not given by the validator), None while learning is
    not stopped. `standing`: of the evidence, where that decides. `latest`: the newest version that was ever
    judged or refused, -1: none.
    """

    judged: tuple[Judged, ...] = ()
    baseline: frozenset[int] = frozenset({0})
    refused: frozenset[int] = frozenset()
    promoted: int | None = None
    stopped_at: Positions | None = None
    standing: Standing = field(default_factory=Standing)
    trials: Trials = Trials()
    stop: Stopped | None = None
    reach: bool = True
    latest: int = -1

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
        best = _after(entry, best)
    return best


def patience_of(history: JudgedHistory) -> Patience:
    """How long nothing has improved.

    Small gains add up: versions are compared with the best (by clicks: with the last that was surely better),
    not with the version before. What was learned up to versions without evidence for or against them does not
    count, nor what was before the first judged version, up to which nobody looked for a gain: neither when
    judging begins, how fast it is, nor how many versions are passed over moves a STOP.
    """
    now, best = Patience(), 0
    gained = history.trials.began
    last = gained or None
    for entry in history.judged:
        before, best = best, _after(entry, best)
        if entry.version in history.baseline:
            continue
        passed, last = 0 if last is None else max(0, entry.events - last), entry.events
        if not entry.decided:
            continue
        improved = best != before if entry.outcome is None else entry.outcome.improved or entry.fell
        if improved:
            now, gained = Patience(now.counted + 1, took=max(0, last - gained)), last
        else:
            now = replace(now, counted=now.counted + 1, stale=now.stale + 1, idle=now.idle + passed)
    return now


def stopped_by(history: JudgedHistory, rule: StopRule) -> Stopped | None:
    """Early stop: why, and after how many new events it is tried again; None while patience lasts.

    Each trial without a gain doubles the wait for the next.
    """
    now = patience_of(history)
    if not now.is_over(rule):
        return None
    trials, took = (history.trials.count, history.trials.took) if now.took is None else (0, now.took)
    at = max(entry.events for entry in history.judged)
    return Stopped(now.idle, now.stale, rule.gain, max(rule.events, took) * 2**trials, trials, at)


def _after(entry: Judged, best: int) -> int:
    """The best version after this judgement. By values, one against another best than this says nothing."""
    against = 0 if entry.best is None else entry.best.version
    if entry.version == 0 or (entry.outcome is None and against != best):
        return best
    if entry.fell:
        return 0
    return entry.version if entry.beats else best


def outstanding(history: JudgedHistory, rule: StopRule) -> tuple[Verdict, ...]:
    """PROMOTE and STOP verdicts that follow from the history and are not in the ledger yet.

    Asked after every judgement and once at start-up: a crash between two ledger entries is completed then.
    Nothing follows before the baseline is judged: a RESUME has the best version judged again first.
    """
    if history.stopped or not history.baseline <= history.seen:
        return ()
    best = best_version(history.judged)
    judged = next((entry for entry in reversed(history.judged) if entry.version == best), None)
    reach = judged is None or judged.outcome is None or judged.outcome.reach
    verdicts = []
    if best != history.promoted or (best and reach != history.reach):
        fell = not best and bool(history.promoted) and any(entry.fell for entry in history.judged)
        why = f"version {history.promoted} lost to version 0" if fell else _why_best(judged)
        how = {} if judged is None or judged.order is None else {ORDER: dict(judged.order), REACH: reach}
        verdicts.append(Verdict("ROLLBACK" if fell else "PROMOTE", best, why, how))
    stopped = stopped_by(history, rule)
    if stopped is not None:
        verdicts.append(Verdict("STOP", best, stopped.reason, stopped.to_json()))
    return tuple(verdicts)


def _why_best(judged: Judged | None) -> str:
    if judged is None or not judged.version:
        return "no version is surely better"
    if judged.outcome is not None:
        if not judged.outcome.reach:
            return "it orders given lists better; your own ranking searches the catalog"
        return "users prefer its order" if judged.outcome.improved else "no worse than the best before it"
    why = f"best by {judged.gain:+.4f} over version 0"
    return why if judged.best is None else f"{why}, {judged.lead:+.4f} over version {judged.best.version}"


def to_judge(history: JudgedHistory, versions: Sequence[int]) -> tuple[int, ...]:
    """Of these versions, those to judge where each is: all after the latest judged; else the newest, where
    nothing counts that was said of it: after a RESUME, or by another rule.
    """
    if history.stopped or not versions:
        return ()
    later = tuple(one for one in sorted(versions) if one > history.latest)
    return later or tuple({max(versions)} - history.seen)


@dataclass(frozen=True, slots=True)
class LossRise:
    """A drift: the mean loss before it and the recent mean at its detection."""

    before: float
    now: float
