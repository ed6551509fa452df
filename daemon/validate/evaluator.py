"""Versions opened and measured: loaded, verified, in their serving form, and judged on the window. Evidence
for and against opened versions is gathered here, too, and added to what the ledger knows (`Weigher`).

With one model per key, each key with enough impressions in the window is judged on those alone, its own model
against version 0, with a margin that grows as impressions become fewer. A version stands for what it would
answer: where a key's verdict is `learned` its own model's measures count, elsewhere version 0's, weighted by
the key's impressions. So a version may be best as soon as one key is better off with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from checkpoints.manifest import Manifest
from checkpoints.store import Damaged, KeyMissing
from checkpoints.versions import Version, VersionStore
from daemon.config.schema import ServingConfig
from daemon.exits import EX_DATAERR, UserError
from daemon.validate.choosing import default_form, form_by_judgments
from daemon.validate.comparing import Measures, Scored, compare, order_bets, told_by_order, with_trained
from daemon.validate.decide import DecisionRule, is_finite, judge_by, why_not
from daemon.validate.evidence import (
    Bettor,
    Comparison,
    Conclusion,
    EvidenceRule,
    Positions,
    Standing,
    Weighed,
    is_inferior,
    weigh,
)
from daemon.validate.holdout import Holdout, Window
from daemon.validate.hops import two_clicks_away
from daemon.validate.judge import Judge
from daemon.validate.preferences import Preference, State, by_cluster
from daemon.validate.race import FORM, NO_BETS, OWN_SHARES, ArmShare, OrderBets
from daemon.validate.scorer import MappedObjects, NotFinite, Panel, Scorer
from daemon.validate.shown import Float, Mask, Scores
from daemon.validate.sources import counted_lists, only_counted
from daemon.versions.algorithms import map_of
from daemon.versions.contents import APPLIED, counted, records_of, watermark_of
from daemon.versions.forms import FormChoice, KeyedForm
from daemon.versions.key_verdicts import COSINE, LEARNED, KeyVerdict
from daemon.versions.order import arm_form, arm_settings
from daemon.versions.restore import ChoosesForm, choice_of, learner_of, serving_form
from daemon.versions.verdict import JudgedGain
from learners.block import Float32s
from learners.errors import LearnerError
from learners.forms.quadratic import DiagonalForm, IdentityForm, ServedForm, by_distance, folds
from learners.forms.serving import BackoffForm
from learners.pending import matrix_in
from learners.psd import symmetry_index
from learners.soml import DiagonalLearner
from learners.tether import untethered
from streams.catalog import Catalog
from streams.event import Impression, SpaceSpec


def is_identity(W: Float32s) -> bool:
    """Whether W is exactly I; reads it row by row, so that nothing of its size is made."""
    return all(row[place] == 1 and np.count_nonzero(row) == 1 for place, row in enumerate(W))


class CandidateRejected(Exception):
    """The version must never be best: damaged, not finite, not of these objects, or pruned meanwhile."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An opened version. keys: its form, with which each key's scorer is made, where there is one model per
    key; `scorer` is then version 0's. measures: of its weights alone, as far as it has them (OF_WEIGHTS).
    choice: of its form, None where it is as configured. arms: raw scores of each of its arms; given: of the
    user's own ranking as they are mixed with those, None without arms. gives_way: whether its form
    gives way to the user's own ranking.
    """

    manifest: Manifest
    scorer: Scorer
    objects: MappedObjects
    keys: KeyedForm | None = None
    measures: Mapping[str, float] = field(default_factory=dict)
    choice: FormChoice | None = None
    arms: Mapping[str, Scorer] = field(default_factory=dict)
    given: Scorer | None = None
    gives_way: bool = False

    @property
    def number(self) -> int:
        """Its number."""
        return self.manifest.number

    @property
    def state(self) -> State:
        """As lists that were made with it name it."""
        return self.number, records_of(self.manifest)

    @property
    def until_ms(self) -> int:
        """The newest event time that it has learned, ms; 0 without any."""
        return watermark_of(self.manifest) or 0

    @property
    def events(self) -> int:
        """Events applied up to it, rejected ones left out."""
        return counted(self.manifest.counters, *APPLIED)

    def scorer_of(self, key: str) -> Scorer | None:
        """Scores of one key's model, made now; None where it has none. Raises LearnerError."""
        model = None if self.keys is None else self.keys.model_of(key)
        return None if model is None else Scorer(model.form(), self.objects)


class CandidateCache:
    """Opens versions and keeps those in use open: version 0, the best, the anchor, the one being judged, the
    one that bets on lists that are learned from.

    Memory: the catalog as read and as mapped, and per open version its serving form (a matrix of the
    learner's dimension, 4 d^2 bytes; none for an untrained version 0) and one float32 per catalog object.
    keep_forms: whether forms that are made are kept beside their versions.
    """

    def __init__(
        self,
        versions: VersionStore,
        space: SpaceSpec,
        catalog: Catalog | None,
        serving: ServingConfig,
        *,
        keep_forms: bool = True,
    ) -> None:
        self._versions, self._space, self._catalog = versions, space, catalog
        self._serving, self._keep_forms = serving, keep_forms
        self._open: dict[int, Candidate] = {}
        self._objects: MappedObjects | None = None

    @property
    def objects(self) -> MappedObjects:
        """The objects under the map of the versions opened so far; open one first."""
        assert self._objects is not None
        return self._objects

    def open(self, number: int, chooser: ChoosesForm | None = None) -> Candidate:
        """The version, loaded and checked unless it is open already. chooser: gives its form where none is
        kept. Raises CandidateRejected, UserError.
        """
        if number not in self._open:
            try:
                self._open[number] = self._load(number, chooser)
            except (Damaged, KeyMissing, LearnerError) as error:
                raise CandidateRejected(str(error)) from error
        return self._open[number]

    def keep(self, *numbers: int | None) -> None:
        """Close every open version but these."""
        self._open = {number: one for number, one in self._open.items() if number in numbers}

    def _load(self, number: int, chooser: ChoosesForm | None) -> Candidate:
        version = self._versions.load(number)
        self._refuse_other_inputs(version.manifest)
        if self._objects is None or self._objects.fitted.id != version.manifest.map.get("id"):
            self._objects = MappedObjects(self._space, self._catalog, map_of(version))
        objects = self._objects
        form = self._form_of(version, chooser)
        if form.dim != objects.dim:
            raise CandidateRejected(f"the learner has {form.dim} dimensions, the map gives {objects.dim}")
        keys = form if isinstance(form, KeyedForm) else None
        W = version.arrays.get("W")  # of OASIS with a softmax the part that need not be symmetric
        symmetry = None if W is None or W.ndim != 2 else symmetry_index(matrix_in(version.arrays))
        choice = choice_of(self._versions, number)
        of_weights = {SYMMETRY: symmetry, SPARSITY: sparsity_of(version)}
        measures = {name: value for name, value in of_weights.items() if value is not None}
        arms, given = self._arms(version, objects)
        known, gives_way = (keys, measures, choice), isinstance(form, BackoffForm)
        return Candidate(version.manifest, Scorer(form, objects), objects, *known, arms, given, gives_way)

    def _arms(self, version: Version, objects: MappedObjects) -> tuple[dict[str, Scorer], Scorer | None]:
        names = arm_settings(version.manifest)
        if not names or (own := objects.fitted.own) is None:
            return {}, None
        arms = {name: Scorer(arm_form(version, own, name), objects) for name in names}
        return arms, Scorer(DiagonalForm(own.metric, True), objects)

    def _form_of(self, version: Version, chooser: ChoosesForm | None) -> ServedForm:
        """The version's serving form; version 0 stays open for good, so its W = I is not held."""
        form = serving_form(self._versions, version, self._serving, self._keep_forms, chooser)
        if isinstance(form, DiagonalForm):
            return form  # the user's own ranking, or a learner's: no matrix either way
        W, folded = version.arrays.get("W"), folds(form) and not by_distance(form)
        if folded and version.manifest.number == 0 and W is not None and W.ndim == 2 and is_identity(W):
            return IdentityForm(form.dim, form.normalised)
        return form

    def _refuse_other_inputs(self, manifest: Manifest) -> None:
        digest = None if self._catalog is None else self._catalog.digest
        if manifest.space != self._space.id or manifest.catalog_digest != digest:
            raise UserError(
                f"version {manifest.number} was learned in space {manifest.space!r} with catalog "
                f"{manifest.catalog_digest}; configured are {self._space.id!r} and {digest}",
                "put space.id and catalog.path back, or point checkpoints.path to the folder learned so",
                EX_DATAERR,
            )


SYMMETRY, SPARSITY = "symmetry_index", "sparsity"
OF_WEIGHTS = (SYMMETRY, SPARSITY)
"""The measures that need no window: how symmetric a W is by itself, which share of a diagonal metric is 0."""


def sparsity_of(version: Version) -> float | None:
    """Of the weights of a version with a diagonal metric, None for any other. Raises StateError."""
    if not {"G", "w"} & set(version.arrays):
        return None
    learner = untethered(learner_of(version))
    return learner.sparsity() if isinstance(learner, DiagonalLearner) else None


class Evaluator:
    """One judge, the panel of the window it judges on, and the measures there of the versions asked for.

    The fixed judged queries are ranked once per version; measures on a window are kept until it moves, or the
    version is closed. Memory per open version: two float64 per fixed query, one float32 per object shown in
    the window.
    """

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._seen: tuple[dict[int, int], int] | None = None
        self._panel: Panel | None = None
        self._looks: WeakKeyDictionary[Scorer, Scored] = WeakKeyDictionary()

    @property
    def objects(self) -> MappedObjects:
        """The objects that it judges by."""
        return self._judge.objects

    def verdicts(self, candidate: Candidate) -> None:
        """None: there is one model for all."""

    def losses(self, candidate: Candidate, impressions: Sequence[Impression]) -> Float:
        """Holdout loss of each impression, float64[n]. Raises NotFinite."""
        return self._judge.losses(candidate.scorer, impressions)

    def measures(self, candidate: Candidate, window: Window) -> Measures:
        """The version's measures on the window. Raises NotFinite."""
        return self._look(candidate, window).measures

    def compare(
        self,
        versions: Sequence[Candidate],
        window: Window,
        after: Positions,
        leader: ArmShare | None = None,
    ) -> Comparison:
        """A version against version 0, the best version and the anchor, given in this order, on the window.
        Raises NotFinite.

        after: positions up to which lists were bet on before. leader: of the candidates for the order.
        """
        seen, fresh, panel = self.bets(versions, window, after), _fresh(window, after), self._panel_of(window)
        order = self._order(versions[0], self._look(versions[0], window).scores, panel, fresh, leader)
        return replace(seen, order=order, away=self._away(versions[0], versions[1], panel))

    def bets(self, versions: Sequence[Candidate], window: Window, after: Positions) -> Comparison:
        """As `compare`, of the serving forms alone: nothing of arms, and nothing of guards."""
        looks, states = [self._look(one, window) for one in versions], [one.state for one in versions]
        return compare(self._panel_of(window), looks, states, _fresh(window, after), window.positions)

    def _away(self, version: Candidate, zero: Candidate, panel: Panel) -> list[float]:
        """What is two clicks away, against version 0; nothing where that is no guard."""
        if version.gives_way or self.objects.catalog is None:
            return []
        scorers, most = (version.scorer, zero.scorer), self._judge.max_queries
        own, base = two_clicks_away(scorers, panel, len(self.objects.catalog), most)
        return list((own - base)[~np.isnan(own - base)].tolist())

    def _order(  # noqa: PLR0917
        self,
        version: Candidate,
        form: Scores,
        panel: Panel,
        fresh: Mask,
        leader: ArmShare | None,
        before: bool = False,
    ) -> OrderBets:
        """What lists say of the order of a version's arms, and of its form. Raises NotFinite."""
        if version.given is None:
            return NO_BETS
        given, *arms = self._judge.shown_scores([version.given, *version.arms.values()], panel)
        scores: dict[ArmShare, Scores] = {
            (name, share): raw + np.float32(share) * given
            for name, raw in zip(version.arms, arms, strict=True)
            for share in OWN_SHARES
        }
        top = partial(self._judge.order_top, version.given, panel)
        return order_bets(panel, scores | {FORM: form}, given, fresh, leader, before=before, top=top)

    def compare_before(
        self,
        versions: Sequence[Candidate],
        window: Window,
        times_ms: tuple[int, int],
        leader: ArmShare | None = None,
    ) -> Comparison:
        """The same on the lists after the first and up to the second of these times, which were learned from
        after the first of the versions; on those that arms alone learn, of the order. Raises NotFinite.

        What it has learned is ordered otherwise than what it has not, and tells nothing of how far the
        rankings usually differ there: where clicks happened to lie in what was learned, all that came after
        would seem to be preferred or not.
        """
        lists = [held.impression for held in window.learned(*times_ms)]
        panel, trained = self._judge.panel(lists), np.array([one.trained for one in lists], bool)
        fresh = np.array([times_ms[0] < one.ts <= times_ms[1] for one in lists], bool)
        distinct = {one.number: one.scorer for one in versions}
        scores = self._judge.shown_scores([*distinct.values()], panel)
        looks = {number: Scored({}, found) for number, found in zip(distinct, scores, strict=True)}
        scored, states = [looks[one.number] for one in versions], [one.state for one in versions]
        seen = compare(panel, scored, states, fresh & trained, {}, alike=False)
        order = self._order(versions[0], scored[0].scores, panel, fresh, leader, before=True)
        return replace(seen, order=order)

    def unseen(self, candidate: Candidate, zero: Candidate, window: Window) -> Measures:
        """How much users prefer a version to version 0 on kinds of queries of which nothing is learned
        (`streams.feed.kinds`): of a query that is held out alone, others of its kind are learned. Empty where
        fewer than two such queries tell. No bet is made on these lists. Raises NotFinite.
        """
        panel = self._judge.panel([held.impression for held in window.of_kinds()])
        own, base = self._judge.shown_scores([candidate.scorer, zero.scorer], panel)
        where, _ = counted_lists(panel.impressions_by_time)
        told = told_by_order(own, base, only_counted(panel.by_time, where), where)
        found = Preference.of(by_cluster(told, panel.in_time(panel.group).tolist()))
        if found.queries < 2:
            return {}
        names = "unseen_preference", "unseen_error", "unseen_queries"
        return dict(zip(names, (found.mean, found.error, float(found.queries)), strict=True))

    def judged_gain(
        self, candidate: Candidate, zero: Candidate, window: Window, least: float
    ) -> JudgedGain | None:
        """What judged queries say of a version against version 0, None without them; least: what counts as a
        gain. Raises NotFinite.
        """
        own, base = (self._look(one, window).precision for one in (candidate, zero))
        known = ~np.isnan(own - base)
        found = Preference.of((own - base)[known])
        if not candidate.number or found.queries < 2:
            return None
        return JudgedGain(
            float(own[known].mean()), float(base[known].mean()), found.error, found.queries, least
        )

    def _look(self, candidate: Candidate, window: Window) -> Scored:
        panel, scorer = self._panel_of(window), candidate.scorer
        if scorer not in self._looks:
            self._looks[scorer] = self._judge.look(scorer, panel)
            self._looks[scorer].measures.update(candidate.measures)
        return self._looks[scorer]

    def chooser(self, window: Window, by_judgments: bool) -> ChoosesForm:
        """Gives forms: by judged queries, or all the same."""
        lists = [held.impression for held in window]
        return (form_by_judgments if by_judgments else default_form)(self._judge, lists)

    def _panel_of(self, window: Window) -> Panel:
        # The length too: a rewound window stands at its old positions before it is read again.
        seen = (window.positions, len(window))
        if self._panel is None or seen != self._seen:
            self._seen, self._looks = seen, WeakKeyDictionary()
            self._panel = self._judge.panel([held.impression for held in window])
        return self._panel


def _fresh(window: Window, after: Positions) -> Mask:
    """Which lists of the window lie behind these positions, bool [n]."""
    return np.array([held.offset >= after.get(held.partition, 0) for held in window], bool)


NO_MODEL = "no model of its own"
NOT_SCORED = "its model gives scores that are not finite"


class KeyedEvaluator:
    """As `Evaluator`, for versions with one model per key; keys with fewer than `least` impressions in the
    window are not judged. `rule`: of one model.
    """

    def __init__(self, judge: Judge, rule: DecisionRule, least: int) -> None:
        self._judge, self._rule, self._least = judge, rule, least
        self._seen: tuple[dict[int, int], int] | None = None
        self._panels: dict[str, Panel] = {}
        self._zero: dict[str, Measures] = {}
        self._judged: WeakKeyDictionary[Scorer, tuple[Measures, dict[str, KeyVerdict]]]

    @property
    def objects(self) -> MappedObjects:
        """The objects that it judges by."""
        return self._judge.objects

    def measures(self, candidate: Candidate, window: Window) -> Measures:
        """What the version would answer, measured on the window; empty where no key can be judged. Raises
        NotFinite where version 0's scores are not."""
        self._look_at(window, candidate.scorer)
        if candidate.scorer not in self._judged:
            judged = {key: self._judge_key(candidate, key) for key in self._zero}
            counted = [
                (own if verdict.learned else self._zero[key], verdict.impressions)
                for key, (own, verdict) in judged.items()
            ]
            verdicts = {key: verdict for key, (_, verdict) in judged.items()}
            self._judged[candidate.scorer] = weighted(counted), verdicts
        return self._judged[candidate.scorer][0]

    def chooser(self, window: Window, by_judgments: bool) -> None:
        """None: what all queries tell is no choice for a key."""

    def verdicts(self, candidate: Candidate) -> Mapping[str, KeyVerdict] | None:
        """Of each judged key, for a version that was measured."""
        return self._judged[candidate.scorer][1]

    def losses(self, candidate: Candidate, impressions: Sequence[Impression]) -> Float:
        """Holdout loss of each impression under its key's model, under version 0 where there is none."""
        out = np.zeros(len(impressions))
        for key, places in _by_key(impressions).items():
            scorer = candidate.scorer_of(key) or candidate.scorer
            out[places] = self._judge.losses(scorer, [impressions[place] for place in places])
        return out

    def _look_at(self, window: Window, zero: Scorer) -> None:
        """The panel of each key that has enough impressions, and version 0's measures there."""
        seen = (window.positions, len(window))
        if seen == self._seen:
            return
        impressions = [held.impression for held in window]
        panels = {
            key: self._judge.panel([impressions[place] for place in places])
            for key, places in sorted(_by_key(impressions).items())
            if len(places) >= self._least
        }
        measured = {key: self._judge.look(zero, panel).measures for key, panel in panels.items()}
        self._zero = {key: one for key, one in measured.items() if is_finite(one, self._rule)}
        self._panels, self._seen, self._judged = panels, seen, WeakKeyDictionary()

    def _judge_key(self, candidate: Candidate, key: str) -> tuple[Measures, KeyVerdict]:
        """One key's own measures (version 0's where it has none) and its verdict."""
        panel, zero = self._panels[key], self._zero[key]
        base = zero[self._rule.measure]
        try:
            scorer = candidate.scorer_of(key)
            own = None if scorer is None else self._judge.look(scorer, panel).measures
        except (NotFinite, LearnerError, np.linalg.LinAlgError):
            own = {}
        if own is None or not is_finite(own, self._rule):
            why = NO_MODEL if own is None else NOT_SCORED
            return zero, KeyVerdict(len(panel), base, base, COSINE, why)
        known = {**own, "impressions": len(panel)}
        judged = judge_by(self._rule, candidate.number, known, zero)
        why = "" if judged.eligible else why_not(self._rule, judged)
        verdict = LEARNED if judged.eligible else COSINE
        return own, KeyVerdict(len(panel), judged.value, judged.reference, verdict, why)


def weighted(counted: Sequence[tuple[Measures, int]]) -> Measures:
    """The mean of each measure that all have, by impressions; empty without any."""
    if not counted:
        return {}
    names = set.intersection(*(set(measures) for measures, _ in counted))
    weights = [count for _, count in counted]
    return {
        name: float(np.average([measures[name] for measures, _ in counted], weights=weights))
        for name in sorted(names)
    }


def _by_key(impressions: Sequence[Impression]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for place, impression in enumerate(impressions):
        found.setdefault(impression.key or "", []).append(place)  # no key is empty
    return found


AnyEvaluator: TypeAlias = Evaluator | KeyedEvaluator


LEAST_TRAINED = 50
"""Lists that are learned from are bet on so many at a time, or more: by how much two rankings usually differ
there, they alone say."""
AGAIN_SHARE = 10
"""A version is judged again when this part of a window has come since: lists go on to tell."""


class Weigher:
    """Compares versions by clicks of a holdout."""

    def __init__(self, candidates: CandidateCache, holdout: Holdout, evidence: EvidenceRule) -> None:
        self._candidates, self._holdout, self._evidence = candidates, holdout, evidence

    def weigh(
        self, evaluator: Evaluator, version: Candidate, against: tuple[Candidate, Candidate], known: Standing
    ) -> Weighed:
        """A version against version 0 and the best one. Raises NotFinite."""
        zero, best = against
        number, best = best.number, best if known.anchor else zero  # what only orders bets by its arms
        try:
            anchor = self._candidates.open(known.anchor)
        except CandidateRejected:  # it is gone
            anchor, known = best, known.anchored(best.number)
        window, leader = self._holdout.window, known.race.leader
        seen = evaluator.compare((version, zero, best, anchor), window, known.through, leader)
        seen = self._with_trained(evaluator, seen, version, (zero, best, anchor), known)
        standing, outcome = weigh(known, self._evidence, version.number, number, seen)
        return Weighed(version.number, number, standing, outcome, self._evidence, seen)

    def carry(self, evaluator: Evaluator, best: Candidate, zero: Candidate, known: Standing) -> Weighed:
        """The best version after further learning: it stays best unless the window says that it is worse.

        Raises NotFinite.
        """
        if not known.anchor:
            leads = known.race.choice is not None
            outcome = Conclusion("not yet", promoted=leads, fell=not leads, reach=False)
            return Weighed(best.number, 0 if leads else best.number, known, outcome, self._evidence)
        worse = self.is_worse(evaluator, best, zero)
        outcome = Conclusion("inferior" if worse else "not yet", promoted=not worse, fell=worse)
        standing = known.anchored(0 if worse else best.number)
        return Weighed(best.number, best.number if worse else 0, standing, outcome, self._evidence)

    def is_worse(self, evaluator: Evaluator, version: Candidate, zero: Candidate) -> bool:
        """Whether users surely prefer version 0 on the window as a whole. Raises NotFinite."""
        seen = evaluator.bets((version, zero, zero, zero), self._holdout.window, {})
        return is_inferior(seen.fresh, self._evidence)

    def is_worth_another(self, known: Standing, least: int) -> bool:
        """Whether enough lists have come since the last judgement for one more of the same version."""
        fresh = int(_fresh(self._holdout.window, known.through).sum())
        return fresh >= max(least, self._evidence.horizon // AGAIN_SHARE)

    def _with_trained(
        self,
        evaluator: Evaluator,
        seen: Comparison,
        version: Candidate,
        against: tuple[Candidate, Candidate, Candidate],
        known: Standing,
    ) -> Comparison:
        """With the bets on lists that `version` may have learned from, by the one that bets on such lists;
        `version` is the next to do so, once no more of them wait for room. Few lists wait for more.
        """
        window, bettor = self._holdout.window, known.bettor
        next_one = Bettor(version.number, version.until_ms)
        if next_one.until_ms <= bettor.until_ms:
            return seen
        if self._holdout.leaves(next_one.until_ms):
            reached = max((one.impression.ts for one in window.learned(0, next_one.until_ms)), default=0)
            next_one = Bettor(bettor.version, max(bettor.until_ms, min(next_one.until_ms, reached)))
        times = bettor.until_ms, next_one.until_ms
        came = [one for one in window.learned(*times) if times[0] < one.impression.ts <= times[1]]
        trained = sum(one.impression.trained for one in came)
        if bettor.version and (len(came) < LEAST_TRAINED or 0 < trained < LEAST_TRAINED):
            return seen
        seen = replace(seen, bettor=next_one)
        if not bettor.version or not came:
            return seen
        try:
            before = self._candidates.open(bettor.version)
            versions = (before, *against)
            return with_trained(seen, evaluator.compare_before(versions, window, times, known.race.leader))
        except (CandidateRejected, NotFinite):  # pruned, say: what came meanwhile is bet on by nobody
            return seen
