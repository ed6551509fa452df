"""The validator's work: judge versions, write the verdicts, watch the best one for drift, report, know when
it is done.

**Every version is judged, in order** (`validate.judge`), on lists that the log alone determines: version n
when the holdout topic is read to where it ended when n was seen, or beyond, and on all lists from before the
newest event time that n had learned. Newer lists wait for the next version; all are for one that has learned
the training topic to its end. Where more come between two versions than the window holds, a version is judged
several times, so that none leaves the window before it was bet on. A version is passed over where it is gone
(`checkpoints.keep`), or on too few lists.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import structlog

from checkpoints.entries import LedgerEntry
from checkpoints.store import CheckpointError, Damaged, WriteFailed, is_away
from checkpoints.versions import LOOK_EVERY_S, LOSS_MESSAGES, FolderWatch
from daemon.exits import EX_DATAERR, UserError
from daemon.validate.comparing import Measures
from daemon.validate.decide import (
    Incumbent,
    JudgedHistory,
    LossRise,
    StopRule,
    best_version,
    is_finite,
    judge_by,
    outstanding,
    to_judge,
)
from daemon.validate.evaluator import AnyEvaluator, Candidate, CandidateRejected, Evaluator, Weigher
from daemon.validate.evidence import EvidenceRule, Positions
from daemon.validate.holdout import HeldImpression
from daemon.validate.inputs import ValidatorInputs
from daemon.validate.ledger import fold, keep_entry, refused_entry, resume_entry, trial_entry, verdict_entry
from daemon.validate.reporting import report
from daemon.validate.scorer import NotFinite
from daemon.versions.contents import watermark_of
from daemon.versions.restore import queries_of
from daemon.versions.verdict import HIGHER, Stopped
from streams.errors import StreamError
from streams.event import Impression
from streams.partitions import behind_transactions

if TYPE_CHECKING:
    from river.base import DriftDetector

DriftKind = Literal["adwin", "page_hinkley", "off"]

RECENT = 0.02
"""Step of the exponential mean that tells a rise from a fall: about the last 50 impressions."""


class LossDrift:
    """Drift of one version's holdout loss, impression by impression: have the users changed?

    Only a *rising* loss counts: the detector also fires when the loss falls, which asks for no action.

    `kind`: `adwin` (Bifet and Gavalda, SDM 2007; delta = 0.002), `page_hinkley` (mean shift upwards,
    threshold 10 in units of summed loss) or `off`. `primed` with the losses of the window it was chosen on:
    what happened before then is known to the judge and never reported.
    """

    def __init__(self, kind: DriftKind, primed: Iterable[float] = ()) -> None:
        self._kind = kind
        self._detector: DriftDetector | None = None  # made for the first loss
        self._count, self._recent = 0, 0.0
        self.mean = 0.0
        """Mean loss since the last drift."""
        for loss in primed:
            self.update(loss)

    def update(self, loss: float) -> LossRise | None:
        """Take the loss of one impression; how it rose, when it has risen for good. NaN is ignored."""
        if self._kind == "off" or math.isnan(loss):
            return None
        self._detector = self._detector or _detector(self._kind)
        self._recent = loss if self._count == 0 else self._recent + RECENT * (loss - self._recent)
        before = self.mean
        self._count += 1
        self.mean += (loss - self.mean) / self._count
        self._detector.update(loss)
        if not self._detector.drift_detected:
            return None
        self._count, self.mean = 1, self._recent
        return LossRise(before, self._recent) if self._recent > before else None


def _detector(kind: Literal["adwin", "page_hinkley"]) -> DriftDetector:
    """Imported late: river brings scikit-learn and scipy's statistics, more than a third of what a start of
    `validate` would cost, and nothing can drift before a version is best.
    """
    from river.drift import ADWIN, PageHinkley

    if kind == "adwin":
        return ADWIN(delta=0.002)
    return PageHinkley(min_instances=30, delta=0.005, threshold=10.0, mode="up")


log = structlog.get_logger("tripletd.validate")


def passed_over(error: CheckpointError) -> None:
    """One warning for a verdict that cannot be read; the ledger tells each once."""
    log.warning("verdict passed over", error=str(error))


MAX_POLLS = 64
"""Most batches read between two judgements: a fast holdout stream cannot keep the judge from work."""


class Validator:
    """One validator. Its memory is the ledger, its window the holdout topic: it can be killed at any time."""

    def __init__(self, inputs: ValidatorInputs) -> None:
        self._inputs, self._by_evidence, self._rule = inputs, inputs.by_evidence, inputs.rule
        self._config = config = inputs.config.validate
        self._need = config.least_impressions
        evidence = EvidenceRule(config.alpha, config.window)
        self._weigher = Weigher(inputs.candidates, inputs.holdout, evidence)
        gain = 0.0 if self._by_evidence else config.min_delta
        self._stop = StopRule(config.patience_events, config.min_versions, gain)
        self._drift = LossDrift(config.drift)
        self._watched: tuple[int | None, Positions | None] | None = None
        self._folder, self._folder_at, self._trial_at = FolderWatch(inputs.versions), 0.0, 0.0
        self._evaluator: AnyEvaluator | None = None
        self._undecidable: Positions | None = None
        self._folded: tuple[list[LedgerEntry], JudgedHistory] | None = None
        self._completed: JudgedHistory | None = None
        self._known: int | None = None  # the newest version when last looked
        self._in_order, self._taken = config.judge == "every", list[HeldImpression]()
        self._ends: tuple[int, Positions] = -1, {}  # of the holdout, when that version was the newest
        self._bounds: dict[int, tuple[float, int | None]] = {}
        self._rests: int | None = None  # the newest version when nothing was to be judged
        self._gave_stop = False
        self._done = -1  # up to which version nothing is to be judged, since the last judgement

    def read(
        self, timeout_s: float, give_up: Callable[[float, Exception], bool], turned: Callable[[], None]
    ) -> list[HeldImpression]:
        """New usable impressions, already in the window; waits up to `timeout_s` when there are none.

        `turned` is called before each poll, which ends in time whatever the stream does.
        """
        fresh, self._taken = self._taken, []
        before, newest = self._known, self._newest()
        if newest is not None and newest != before:  # queries of other models are read as it does
            self._inputs.holdout.queries = queries_of(self._inputs.versions)
        holdout, metrics = self._inputs.holdout, self._inputs.metrics
        for turn in range(MAX_POLLS):
            turned()
            stood = dict(holdout.reached)
            fresh += holdout.poll(0.0 if turn else timeout_s, give_up)
            if self._history().stopped:  # there is nothing to judge, and drift to watch
                fresh += holdout.take(None, None).fresh
            if holdout.reached == stood:
                break
        metrics.window.set(len(holdout.window))
        metrics.held_back.record(holdout.transactions, holdout.reached, holdout.checked_at)
        metrics.record_skipped(holdout.take_counts())
        return fresh

    def judge_next(self) -> int | None:
        """Judge one version and write what follows; its number, None when there is nothing to judge, or no
        folder to write it to.
        """
        self._rests = None
        if is_away(self._inputs.versions.store):
            return None
        try:
            return self._judge_next()
        except WriteFailed:
            if is_away(self._inputs.versions.store):  # it went meanwhile: judged again when it is back
                return None
            raise

    def _judge_next(self) -> int | None:
        history = self._complete(self._history())
        number = self._next(history)
        if number is None:
            return None
        self._passed_over(history, number)
        began = time.perf_counter()
        entry = self._entry_for(number, best_version(history.judged), history)
        if entry is None:  # the window cannot decide: maybe that of the next version can
            return self._judge_next()
        if number not in self._inputs.versions.versions():  # it must not become best now
            why = "pruned while it was judged (checkpoints.keep)"
            entry = refused_entry(number, why, self._inputs.holdout.window.positions)
        self._inputs.ledger.append(entry)
        self._done = -1
        self._inputs.metrics.judged.inc()
        self._inputs.metrics.judge_seconds.observe(time.perf_counter() - began)
        log.info("version judged", version=entry["version"], verdict=entry["reason"])
        history = self._complete(self._history())
        standing = history.standing
        in_use = (0, history.promoted, standing.anchor, standing.bettor.version)
        self._inputs.candidates.keep(*in_use)
        return number

    def watch_drift(self, fresh: Sequence[HeldImpression]) -> None:
        """Watch the best version's loss on new impressions; RESUME when a drift shows after a STOP."""
        history = self._history()
        if history.promoted is None or self._config.drift == "off" or is_away(self._inputs.versions.store):
            return
        try:
            best = self._inputs.candidates.open(history.promoted)
            risen = self._loss_rise(best, history, fresh)
        except (CandidateRejected, NotFinite) as error:
            log.error("best version cannot be watched", version=history.promoted, reason=str(error))
            return
        self._inputs.metrics.holdout_loss.set(self._drift.mean)
        if risen is None:
            return
        self._inputs.metrics.drift.inc()
        log.warning("drift", version=best.number, before=risen.before, now=risen.now, stopped=history.stopped)
        if history.stopped:
            positions = self._inputs.holdout.window.positions
            self._inputs.ledger.append(resume_entry(best.number, risen, positions))
            self._history()

    def _loss_rise(
        self, best: Candidate, history: JudgedHistory, fresh: Sequence[HeldImpression]
    ) -> LossRise | None:
        """How the loss has risen with new impressions, None where not. Where another version is best, or a
        STOP was given, the detector begins with what the window held before, or held at the STOP: after a
        restart what came since is taken again, so that a restart hides no drift.
        """
        losses_of, watched = self._evaluator_now().losses, (history.promoted, history.stopped_at)
        if self._watched != watched:
            self._watched, stopped = watched, history.stopped_at
            before, fresh = list[Impression](), list[HeldImpression]()
            for held in self._inputs.holdout.window:  # all is before a STOP that the validator did not give
                if not stopped or held.offset < stopped.get(held.partition, 0):
                    before.append(held.impression)
                else:
                    fresh.append(held)
            self._drift = LossDrift(self._config.drift, losses_of(best, before).tolist())
        risen: LossRise | None = None
        for loss in losses_of(best, [held.impression for held in fresh]).tolist() if fresh else ():
            risen = self._drift.update(loss) or risen
        return risen

    def try_again(self) -> None:
        """RESUME as a trial when enough new events have come since a STOP for want of patience."""
        history, now = self._history(), time.monotonic()
        if history.stop is None or not history.stop.wait or self._config.on_stop == "exit":
            return
        if now < self._trial_at or is_away(self._inputs.versions.store):
            return
        self._trial_at = now + LOOK_EVERY_S
        end = self._training_end()
        came = 0 if end is None else history.stop.came(end)
        if came >= history.stop.wait:
            positions = self._inputs.holdout.window.positions
            entry = self._inputs.ledger.append(
                trial_entry(history.promoted or 0, history.stop, came, positions)
            )
            log.info(entry.kind, version=entry.version, reason=entry.reason)
            self._history()

    def _training_end(self) -> int | None:
        """Records that the training topic ever held; None while that is not known."""
        try:
            return sum(end for _, end in self._inputs.training.bounds().values())
        except StreamError:  # `learn` reports it
            return None

    def look_at_folder(self) -> None:
        """See, every LOOK_EVERY_S, whether the checkpoint folder still has the newest version it had."""
        now = time.monotonic()
        if now < self._folder_at:
            return
        self._folder_at = now + LOOK_EVERY_S
        folder, versions = self._folder, self._inputs.versions.listing.poll()
        before = folder.how
        folder.look(versions, now)
        if folder.how and not before and folder.mine is not None:
            log.error(LOSS_MESSAGES[folder.how], had=folder.mine.name, newest=max(versions, default=None))
        elif before and not folder.how:
            log.info("the checkpoint folder has what it had again")
        newest = max(versions, default=-1)
        if newest >= 0 and (folder.mine is None or newest != folder.mine.number):
            with suppress(CheckpointError):  # reported when it is judged
                found = self._inputs.versions.manifest(newest)
                if folder.mine is None or newest > folder.mine.number or found.line != folder.mine.line:
                    folder.works_with(found)
        self._inputs.metrics.folder.record(folder.how, folder.losses)

    def not_ready(self) -> str | None:
        """Why not, None when ready. A lost folder and records behind an open transaction are reported, but do
        not stop the versions that are there from being judged.
        """
        lost = LOSS_MESSAGES[self._folder.how] if self._folder.how else None
        return lost or self._inputs.holdout.trouble() or self.waiting_for()

    def waiting_for(self) -> str | None:
        """Why no version can be judged yet; None when nothing stands in the way."""
        if self._known is None and self._newest() is None:
            return "no version yet"
        window = self._inputs.holdout.window
        if (lists := self._inputs.holdout.lists) < self._need:
            return f"{lists} of {self._need} holdout impressions (validate.min_impressions)"
        if window.positions != self._undecidable:
            return None
        if self._config.decided_by == "map_full":
            return "no holdout query has judgments (validate.judgments, feed.holdout_share)"
        if self._inputs.per_key is not None:
            need = f"{self._inputs.per_key} holdout impressions (validate.min_impressions, .window)"
            return f"no key has {need}, or none of those has clicks and skips at the same ranks"
        why = (
            "needs clicks and skips at the same ranks"
            if self._by_evidence
            else "cannot be had on these lists"
        )
        return f"{self._rule.measure} {why}"

    def unfinished(self) -> str | None:
        """What is still to come; None when nothing is: the holdout is read, and either a STOP is in force or
        the newest version stands at the end of the training topic and is judged, or cannot be for lack of
        impressions.
        """
        history, newest, is_read = self._history(), self._newest(), self._inputs.holdout.caught_up()
        if history.stopped and (is_read or self._gave_stop):
            return None
        unread = None if is_read else "the holdout is not read to its end"
        if unread and not self._in_order:
            return unread
        if newest is None:
            return f"no version in {self._inputs.config.checkpoints.path}"
        if self._rests != newest:
            return f"version {newest} is not judged"
        return self._inputs.short_of_end(newest) or unread

    def held_back(self) -> Iterator[str]:
        """A line per partition whose newest records nobody is given before a transaction ends."""
        holdout = self._inputs.holdout
        yield from behind_transactions(holdout.topic, {p: held for p, held, _ in holdout.held_back()})

    def state(self) -> tuple[int | None, Positions]:
        """Newest version and holdout positions: while they stand, there is nothing new to judge."""
        return self._newest(), dict(self._inputs.holdout.reached)

    def _history(self) -> JudgedHistory:
        """Rebuilt only when the ledger has changed."""
        entries = self._inputs.ledger.poll(report=passed_over)
        if self._folded is None or self._folded[0] is not entries:
            self._folded = entries, fold(entries, self._rule)
            report(self._inputs.metrics, entries)
        return self._folded[1]

    def _newest(self) -> int | None:
        self._known = max(self._inputs.versions.listing.poll(), default=None)
        return self._known

    def _complete(self, history: JudgedHistory) -> JudgedHistory:
        """Write the verdicts that follow from the history; the history with them."""
        if history is self._completed:
            return history
        positions = self._inputs.holdout.window.positions
        for verdict in outstanding(history, self._stop):
            if verdict.kind == "STOP":
                end = self._training_end()
                if end is None:  # given when it is known: what comes after it is counted
                    return history
                stop = replace(Stopped.from_json(verdict.measures) or Stopped(0, 0), end=end)
                verdict, self._gave_stop = replace(verdict, measures=stop.to_json()), True
            self._inputs.ledger.append(verdict_entry(verdict, positions))
            log.info(verdict.kind, version=verdict.version, reason=verdict.reason)
            history = self._history()
        self._completed = history
        return history

    def _next(self, history: JudgedHistory) -> int | None:
        """The version to judge now, with the window on its lists; None where there is none, or lists are
        still to be read. By evidence one comes again where enough lists are left, or have come, for it.

        Where the newest alone is judged, all lists are its, and versions passed over are never looked at.
        """
        holdout, versions = self._inputs.holdout, sorted(self._inputs.versions.listing.poll())
        newest = self._known = versions[-1] if versions else None
        if not self._in_order:
            versions = versions[-1:]
        pending = to_judge(history, versions)
        last, standing = history.latest, history.standing
        has_bet = self._by_evidence and last in history.seen - history.refused - history.baseline
        again: tuple[int, ...] = (last,) if has_bet and last in versions and not history.stopped else ()
        for number in (*again, *pending):
            if number <= self._done:
                continue
            until_ms, ends = self._until(number), self._ends_for(number)
            if ends is None:
                return None
            if number in again and until_ms is None and pending:
                continue  # what is left is for those that have come since
            for since in (standing.through if self._by_evidence else None, None):
                taken = holdout.take(until_ms, since, ends)
                self._taken += taken.fresh
                enough = len(holdout.window) >= self._need
                if enough or not taken.full:  # else a whole window of records holds too few lists
                    break
            if not taken.settled:
                return None
            if enough and holdout.window.positions != self._undecidable:
                if unseen := history.baseline - history.seen:
                    return min(unseen)
                is_blocked = taken.full and until_ms is None
                if number not in again or is_blocked or self._weigher.is_worth_another(standing, self._need):
                    return number
            if until_ms is not None:  # lists that enter the window from here on are for the next one
                self._done = number
        self._rests = newest
        return None

    def _until(self, number: int) -> int | None:
        """Lists of which time a version is judged on: from before what it has learned; None: all."""
        if not self._in_order:
            return None
        known, now = self._bounds.get(number), time.monotonic()
        if known is not None and (known[1] is not None or now < known[0] + LOOK_EVERY_S):
            return known[1]
        try:
            manifest = self._inputs.versions.manifest(number)
            mark = watermark_of(manifest)
            until_ms = 0 if mark is None and number == 0 else mark
            with suppress(StreamError):  # `learn` reports it
                until_ms = until_ms if self._inputs.short_of_end(number) else None
        except Damaged:  # it is refused when it is judged
            until_ms = 0
        known_now = self._bounds | {number: (now, until_ms)}
        self._bounds = {one: at for one, at in known_now.items() if one >= number}
        return until_ms

    def _ends_for(self, number: int) -> Positions | None:
        """Where the holdout topic ended when the version was there, {} where no matter; None while that is
        not known."""
        if not self._in_order:
            return {}
        if number > self._ends[0]:
            try:
                newest = self._newest() or 0
                self._ends = newest, self._inputs.holdout.ends()
            except StreamError:
                return None
        return self._ends[1]

    def _entry_for(self, number: int, best: int, history: JudgedHistory) -> dict[str, Any] | None:
        """The KEEP of a version, judged or refused, or that of the best so far where it can no longer be
        read; None when the window cannot decide yet.
        """
        window, by_judgments = self._inputs.holdout.window, self._config.decided_by == "map_full"
        zero, candidates = self._open_zero(), self._inputs.candidates
        asked, incumbent, stands, weighed, gains = number, None, None, None, None
        try:
            reference = self._measured(zero)
            if not is_finite(reference, self._rule):
                self._undecidable = window.positions
                return None
            if best:
                asked = best
                incumbent = candidates.open(best)
                stands = self._stands(incumbent, zero, reference)
                asked = number
            candidate = candidates.open(number, self._evaluator_now().chooser(window, by_judgments))
            own, evaluator = self._measured(candidate), self._evaluator_now()
            if number and isinstance(evaluator, Evaluator):
                own = own | evaluator.unseen(candidate, zero, window)
                if self._by_evidence and number in history.baseline:
                    weighed = self._weigher.carry(evaluator, candidate, zero, history.standing)
                elif self._by_evidence:
                    against = zero, incumbent or zero
                    weighed = self._weigher.weigh(evaluator, candidate, against, history.standing)
                elif by_judgments:
                    versions, least = filter(None, (incumbent, candidate)), self._config.min_delta
                    gains = {one.number: evaluator.judged_gain(one, zero, window, least) for one in versions}
        except (CandidateRejected, NotFinite) as error:
            return refused_entry(asked, str(error), window.positions)
        if weighed is not None and weighed.higher is not None:
            own, reference = own | {HIGHER: weighed.higher}, reference | {HIGHER: 0.5}
        return keep_entry(
            *(candidate, own, reference, self._rule, (len(window), window.positions)),
            best=stands,
            best_measures=None if incumbent is None else self._measured(incumbent),
            keys=evaluator.verdicts(candidate),
            evidence=weighed,
            gains=gains,
        )

    def _stands(self, best: Candidate, zero: Candidate, reference: Measures) -> Incumbent:
        """How the best version so far does on the window; logged when it is best no longer."""
        evaluator, measures = self._evaluator_now(), self._measured(best)
        known = {**measures, "impressions": len(self._inputs.holdout.window)}
        judged = judge_by(self._rule, best.number, known, reference)
        holds = judged.holds or not judged.enough
        if self._by_evidence and isinstance(evaluator, Evaluator):
            holds = not self._weigher.is_worse(evaluator, best, zero)
        if not holds:
            log.warning(
                "best version is not above version 0 on the newest window",
                version=best.number,
                best=judged.value,
                version_0=judged.reference,
                guarded=judged.guarded,
            )
        return Incumbent(best.number, judged.value, self._config.min_delta, holds)

    def _measured(self, candidate: Candidate) -> Measures:
        """The open version's measures on the window. Raises NotFinite."""
        return self._evaluator_now().measures(candidate, self._inputs.holdout.window)

    def _open_zero(self) -> Candidate:
        try:
            return self._inputs.candidates.open(0)
        except CandidateRejected as error:
            raise UserError(
                f"version 0 cannot be read, and every version is judged against it: {error}",
                "restore it from a copy, or set checkpoints.path to an empty folder",
                EX_DATAERR,
            ) from error

    def _evaluator_now(self) -> AnyEvaluator:
        """The evaluator for the objects as mapped now; a version must be open."""
        if self._evaluator is None or self._evaluator.objects is not self._inputs.candidates.objects:
            self._evaluator = self._inputs.evaluator()
        return self._evaluator

    def _passed_over(self, history: JudgedHistory, number: int) -> None:
        try:
            before = self._inputs.versions.manifest(number).parent
        except CheckpointError:  # refused as a version
            return
        # numbers between a version and the one before it are claims of learners, and no versions
        skipped = range(max(0, history.latest) + 1, (before or 0) + 1)
        if skipped:
            self._inputs.metrics.passed_over.inc(len(skipped))
            gone = len(set(skipped).difference(self._inputs.versions.versions()))
            log.info("versions passed over", first=skipped[0], last=skipped[-1], pruned=gone)
