"""In which form a version is judged and served: chosen by judged queries, or, where nothing is judged, by
held-out lists that no bet is made on any more.

**Predictable.** Bets on a version are made on lists that nothing was decided by. A form that was chosen on
the same lists would be bet on where it is already known to do well, and the error would be that of the best
of several. So a choice is made once, before a version's first bet, by the clicks of lists that earlier
versions were bet on. Where nothing is better, the differences that follow have mean 0 whatever was chosen.

**Careful.** Every form on offer gives way to the own ranking for queries unlike those that were clicked. The
form in use stays unless another is preferred by more than the error of the comparison, and none is taken that
users like less than their own ranking on the queries that have least in common with what was learned, nor one
that is below it on kinds of queries that are held out as a whole: only these tell of kinds that no click
covered. Lists that are nearer to a form than to the own ranking say nothing of that
(`daemon.validate.comparing`): what was allowed before stays in use.

**By judgments** the whole catalog is ranked, for queries of kinds that were clicked and of others. So what
has the highest average precision is taken, also a form that gives way for no query, unless those that have
least in common with what was learned are better off with the own ranking.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from daemon.validate.comparing import told_by_order
from daemon.validate.judge import Judge
from daemon.validate.preferences import NO_PREFERENCE, Preference, by_cluster, differences
from daemon.validate.scorer import Scorer
from daemon.validate.shown import Float, Mask
from daemon.versions.forms import FIRST, OFFERED, PLAIN, FormChoice
from daemon.versions.restore import FormByChoice
from learners.block import Block
from learners.forms.serving import FAMILIAR, BackoffForm, usual_ratio
from learners.maps.base import OwnRanking
from streams.event import Impression, ObjectRef

LEAST_LISTS = 100
"""Fewer earlier lists than this choose nothing."""
LEAST_FAR = 40
"""Fewer queries than this, of those least like what was clicked, forbid nothing."""
FAR = FAMILIAR
"""Of the usual ratio: below it a form gives way, as it does for one query in six of kinds that were clicked
and for most of other kinds."""
SURE = 2.0
"""By how many standard errors a form has to be preferred to the own ranking to be taken for that alone."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One form on the earlier lists. to_now: against the form in use. far: against the own ranking, on
    queries that have little in common with what was learned. unseen: against it on unseen kinds.
    """

    to_now: Preference
    far: Preference
    unseen: Preference = NO_PREFERENCE

    @property
    def is_below_far(self) -> bool:
        """Whether users like it less than their own ranking on queries unlike those that were clicked."""
        return self.far.queries >= LEAST_FAR and self.far.is_below

    @property
    def is_below_unseen(self) -> bool:
        """The same on kinds of queries of which nothing is learned."""
        return self.unseen.queries >= LEAST_FAR and self.unseen.is_below

    @property
    def welcome(self) -> bool:
        """Whether users surely prefer it to their own ranking where no click helped, and like it no less than
        the form in use on the whole."""
        is_sure = self.far.queries >= LEAST_FAR and self.far.mean > SURE * self.far.error
        return is_sure and not self.to_now.is_below

    @property
    def forbidden(self) -> bool:
        """Whether users like it less than their own ranking where no click helped."""
        return self.is_below_far or self.is_below_unseen

    @property
    def is_told(self) -> bool:
        """Whether any list says how it does where no click helped."""
        return bool(self.far.queries or self.unseen.queries)

    @property
    def is_tried(self) -> bool:
        """Whether there are queries enough that no click helped."""
        return max(self.far.queries, self.unseen.queries) >= LEAST_FAR


def choose(now: int, compared: Sequence[Compared]) -> int:
    """Which form to take, of those in the order of `OFFERED`; now: the one in use. Pure.

    One that is bolder than the first takes queries that no click helped and that do not speak against it;
    where those that have little in common with what was learned surely speak for it, it need not be preferred
    to the first. Where all are forbidden, the most careful one.
    """
    tried = [
        at >= FIRST or one.is_tried or (at == now and not one.is_told) for at, one in enumerate(compared)
    ]
    allowed = [at for at, one in enumerate(compared) if tried[at] and not one.forbidden]
    if not allowed:
        return len(compared) - 1
    preferred = [at for at in allowed if at != now and compared[at].to_now.is_above]
    if not preferred and now == FIRST:
        preferred = [at for at in allowed if at < FIRST and compared[at].welcome]
    if not preferred and now in allowed:
        return now
    return max(preferred or allowed, key=lambda at: compared[at].to_now.mean)


@dataclass(frozen=True, slots=True)
class FormChooser:
    """Chooses by the lists of a window that were bet on before. window: all its impressions, oldest first,
    whose queries tell what is usual; earlier: those that were bet on; judge: of the objects as mapped. kinds:
    lists of unseen kinds, which are never bet on.
    """

    judge: Judge
    window: Sequence[Impression]
    earlier: Sequence[Impression]
    kinds: Sequence[Impression] = ()

    def choose(
        self, number: int, now: FormChoice | None, learned: FormByChoice, own: OwnRanking
    ) -> FormChoice:
        """One of `OFFERED` for version `number`, with the reason. now: what was chosen last. learned: what
        was learned, one decomposition for each power; all are held meanwhile. own: the user's ranking.
        """
        place = _place(now, OFFERED, FIRST)
        lists = len(self.earlier)
        if lists < LEAST_LISTS:
            found = with_usual(OFFERED[place], learned, own, self._queries())
            why = f"{lists} held-out lists came before, and a choice takes {LEAST_LISTS}"
            return replace(found, why=f"{found.told}: {why}")
        queries = self._queries()
        offered = [with_usual(one, learned, own, queries) for one in OFFERED]
        compared = self._compared(offered, place, learned, own)
        taken = choose(place, compared)
        return replace(offered[taken], why=told_why(offered, place, taken, compared, lists))

    def _queries(self) -> Block:
        return block_of(self.judge, (one.query for one in self.window))

    def _compared(
        self, offered: Sequence[FormChoice], now: int, learned: FormByChoice, own: OwnRanking
    ) -> list[Compared]:
        panel, objects = self.judge.panel(self.earlier), self.judge.objects
        kinds = UnseenKinds(self.judge, self.kinds, Scorer(own.form(), objects))
        scores, unseen, far = [], [], np.zeros(len(panel), bool)
        for place, one in enumerate(offered):
            scorer = Scorer(one.beside(learned(one), own), objects)
            scores.append(self.judge.shown_scores(scorer, panel))
            unseen.append(kinds.compare(scorer))
            if place == FIRST:
                block, _ = objects.block(panel.queries)
                far = panel.in_time(unfamiliar(one, learned, own, block)[panel.group])
        zero = self.judge.shown_scores(Scorer(own.form(), objects), panel)
        lists, groups = panel.lists.in_order(panel.order), panel.in_time(panel.group).tolist()

        def preference(found: Float) -> Preference:
            return Preference.of(by_cluster(found, groups))

        return [
            Compared(
                preference(differences(one, scores[now], lists)),
                preference(told_by_order(one, zero, lists, far)),
                kind,
            )
            for one, kind in zip(scores, unseen, strict=True)
        ]


BY_JUDGMENTS = (*OFFERED, PLAIN, FormChoice(1.0, 0.0))
"""What judgments choose from: also what was learned alone, sharp, which is served as long as nothing was
chosen, and as it was learned, which is better where there was much to learn from."""
MOST_JUDGED = 200
"""Judged queries that a form is chosen by: the catalog is ranked for each of them in each form."""


@dataclass(frozen=True, slots=True)
class FormChooserByJudgments:
    """Chooses by judged queries. judge: of the objects as mapped, with judgments; window: impressions whose
    queries tell what is usual, and name judged queries that are no objects.
    """

    judge: Judge
    window: Sequence[Impression]

    def choose(
        self, number: int, now: FormChoice | None, learned: FormByChoice, own: OwnRanking
    ) -> FormChoice:
        """One of `BY_JUDGMENTS`, otherwise as `FormChooser.choose`."""
        place = _place(now, BY_JUDGMENTS, len(OFFERED))
        judged = self.judge.judged_queries(self.window, MOST_JUDGED)
        queries = block_of(self.judge, (one.query for one in self.window) if self.window else judged)
        offered = [with_usual(one, learned, own, queries) for one in BY_JUDGMENTS]
        if len(judged) < 2:
            return replace(offered[place], why=f"{offered[place].told}: there are no judged queries")
        compared = self._compared(offered, place, learned, own, judged)
        taken = choose_by_judgments(place, compared)
        return replace(offered[taken], why=told_of_judged(offered, place, taken, compared, len(judged)))

    def _compared(
        self,
        offered: Sequence[FormChoice],
        now: int,
        learned: FormByChoice,
        own: OwnRanking,
        judged: Sequence[ObjectRef],
    ) -> list[Compared]:
        objects = self.judge.objects
        precision = [
            self.judge.precision_of(Scorer(one.beside(learned(one), own), objects), judged) for one in offered
        ]
        zero = self.judge.precision_of(Scorer(own.form(), objects), judged)
        block, _ = objects.block(judged)
        far = unfamiliar(offered[FIRST], learned, own, block)
        return [
            Compared(
                Preference.of((one - precision[now]).tolist()), Preference.of((one - zero)[far].tolist())
            )
            for one in precision
        ]


def choose_by_judgments(now: int, compared: Sequence[Compared]) -> int:
    """Which form to take, of those in the order of `BY_JUDGMENTS`; now: the one in use. Pure.

    The highest of those that are surely above the one in use, which else stays unless it is below the own
    ranking where little is known. Where all are, the most careful one.
    """
    allowed = [at for at, one in enumerate(compared) if not one.is_below_far]
    preferred = [at for at in allowed if at != now and compared[at].to_now.is_above]
    if not allowed:
        return len(OFFERED) - 1
    if not preferred and now in allowed:
        return now
    return max(preferred or allowed, key=lambda at: compared[at].to_now.mean)


def told_of_judged(
    offered: Sequence[FormChoice], now: int, taken: int, compared: Sequence[Compared], queries: int
) -> str:
    """The choice and its reason, a sentence."""
    chosen, before = offered[taken].told, offered[now].told
    if taken == now:
        told = f"{chosen}: no other form is better on {queries:,} judged queries"
    else:
        gain = compared[taken].to_now
        much = f"{gain.mean:+.3f} mAP, error {gain.error:.3f}"
        told = f"{chosen}: better than {before} on {queries:,} judged queries ({much})"
    below = [one.told for one, of in zip(offered, compared, strict=True) if of.is_below_far]
    if below:
        unlike = f"{compared[taken].far.queries:,} of them that are unlike those that were clicked"
        told += f"; below your own ranking on {unlike}: {' and '.join(below)}"
    return told


def with_usual(choice: FormChoice, learned: FormByChoice, own: OwnRanking, queries: Block) -> FormChoice:
    """The choice with the usual ratio of some queries, which say nothing of what was clicked."""
    if not choice.gives_way:
        return choice
    form = learned(choice)
    found = replace(choice, usual=usual_ratio(form, own.metric, queries))
    if form.familiarity is None:
        return found
    return replace(found, usual_familiarity=usual_ratio(form.familiarity, own.metric, queries))


def unfamiliar(choice: FormChoice, learned: FormByChoice, own: OwnRanking, queries: Block) -> Mask:
    """Which queries have little in common with what was learned, bool [n]; choice: one that gives way."""
    form = choice.beside(learned(choice), own)
    assert isinstance(form, BackoffForm)
    return form.known(queries) < FAR


def block_of(judge: Judge, queries: Iterable[ObjectRef]) -> Block:
    """The features of distinct queries, mapped."""
    distinct = {one.id or str(at): one for at, one in enumerate(queries)}
    block, _ = judge.objects.block([*distinct.values()])
    return block


def _place(now: FormChoice | None, offered: Sequence[FormChoice], first: int) -> int:
    """Where among those offered what was chosen last stands; `first` where it is none of them."""
    if now is None:
        return first
    kinds = [(one.raw, one.power, one.own_share) for one in (*offered, now)]
    return kinds.index(kinds[-1]) if kinds[-1] in kinds[:-1] else first


def told_why(
    offered: Sequence[FormChoice], now: int, taken: int, compared: Sequence[Compared], lists: int
) -> str:
    """The choice and its reason, a sentence."""
    chosen, before = offered[taken].told, offered[now].told
    if taken == now:
        told = f"{chosen}: on {lists:,} held-out lists users prefer no other form"
    elif compared[now].forbidden:
        told = f"{chosen}, no longer {before}"
    elif not compared[taken].to_now.is_above:
        told = (
            f"{chosen}: on {lists:,} held-out lists users like it no less than {before}, and they prefer it "
            f"to your own ranking on {compared[taken].far.queries:,} queries unlike those that were clicked"
        )
    else:
        told = f"{chosen}: on {lists:,} held-out lists users prefer it to {before}"
    where = {
        f"{compared[taken].far.queries:,} queries unlike those that were clicked": [
            of.is_below_far for of in compared
        ],
        f"{compared[taken].unseen.queries:,} queries of kinds that are never learned": [
            of.is_below_unseen for of in compared
        ],
    }
    for queries, is_below in where.items():
        left_out = [one.told for one, below in zip(offered, is_below, strict=True) if below]
        if left_out:
            told += f"; below your own ranking on {queries}: {' and '.join(left_out)}"
    return told


class UnseenKinds:
    """Lists of kinds of queries of which nothing is learned (`streams.feed.kinds`), oldest first; own: scores
    of the user's own ranking.

    Of a query that is held out alone, others of its kind are learned. These lists are judged apart, by what
    users prefer, and no bets are made on them, so that all of them may tell which form to take. What is two
    clicks away, which guards versions elsewhere, says nothing here: queries of one kind lead to what the list
    maker put near to all of them, and every ranking that differs from the list maker's loses on it, also one
    that is better by labels (docs/decisions/044).
    """

    def __init__(self, judge: Judge, impressions: Sequence[Impression], own: Scorer) -> None:
        self._judge = judge
        self._panel = judge.panel(impressions) if impressions else None
        self._own = None if self._panel is None else judge.shown_scores(own, self._panel)

    def compare(self, scorer: Scorer) -> Preference:
        """How much users prefer it to their own; nothing where lists are nearer to it. Raises NotFinite."""
        panel = self._panel
        if panel is None or self._own is None:
            return NO_PREFERENCE
        lists, every = panel.lists.in_order(panel.order), np.ones(len(panel), bool)
        found = told_by_order(self._judge.shown_scores(scorer, panel), self._own, lists, every)
        return Preference.of(by_cluster(found, panel.in_time(panel.group).tolist()))


def to_measures(found: Preference) -> dict[str, float]:
    """As it stands among a version's measures; nothing for fewer than two queries."""
    if found.queries < 2:
        return {}
    return {
        "unseen_preference": found.mean,
        "unseen_error": found.error,
        "unseen_queries": float(found.queries),
    }
