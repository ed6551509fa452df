"""In which form a version is judged and served.

**One for all** (`DEFAULT_FORM`), with what is usual among the queries of the window: no click is asked.

**Where queries are judged** the whole catalog is ranked for them, of kinds that were clicked and of others:
what has the highest average precision is taken, also a form that gives way for no query, unless queries that
have least in common with what was learned are better off with the own ranking.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from daemon.validate.judge import Judge
from daemon.validate.preferences import Preference
from daemon.validate.scorer import Scorer
from daemon.versions.forms import DEFAULT_FORM, FormByChoice, FormChoice
from daemon.versions.restore import ChoosesForm
from learners.block import Block
from learners.forms.serving import BackoffForm
from learners.maps.base import OwnRanking
from streams.event import Impression, ObjectRef

PLAIN = FormChoice(1.5, 0.0)
"""Sharp, with nothing beside: the best where much was taught, and below the own ranking where nothing was."""
CAREFUL = FormChoice(1.5, 0.3)
OFFERED = (DEFAULT_FORM, FormChoice(1.0, 0.3), CAREFUL, PLAIN, FormChoice(1.0, 0.0))
"""What judgments choose from. The last is as it was learned, which is better where there was much to learn
from. Raw scores are not among them: an arm has their order (docs/decisions/085)."""
MOST_JUDGED = 200
"""Judged queries that a form is chosen by: the catalog is ranked for each of them in each form."""
LEAST_FAR = 40
"""Fewer queries than this, of those least like what was clicked, forbid nothing."""
FAR = 0.85
"""Of the usual ratio: below it a query has little in common with what was learned, as have one in six of
those of kinds that were clicked, and most others."""


def default_form(judge: Judge, window: Sequence[Impression]) -> ChoosesForm:
    """Gives every version `DEFAULT_FORM`, whatever was chosen before. judge: of the objects as mapped;
    window: impressions whose queries tell what is usual."""

    def choose(now: FormChoice | None, learned: FormByChoice, own: OwnRanking) -> FormChoice:
        queries = block_of(judge, (one.query for one in window))
        return replace(DEFAULT_FORM, why=DEFAULT_FORM.told).with_usual(learned(DEFAULT_FORM), own, queries)

    return choose


@dataclass(frozen=True, slots=True)
class Compared:
    """One form on judged queries. to_now: against the form in use. far: against the own ranking, on those
    that have little in common with what was learned."""

    to_now: Preference
    far: Preference

    @property
    def is_below_far(self) -> bool:
        """Whether it is below the own ranking on queries unlike those that were clicked."""
        return self.far.queries >= LEAST_FAR and self.far.is_below


def form_by_judgments(judge: Judge, window: Sequence[Impression]) -> ChoosesForm:
    """Gives one of `OFFERED`, with the reason: what was chosen last, `PLAIN` where that is none of them, or
    what is better on judged queries. One decomposition for each power; all are held meanwhile. judge: with
    judgments; window: see `default_form`, and it names judged queries that are no objects.
    """

    def choose(now: FormChoice | None, learned: FormByChoice, own: OwnRanking) -> FormChoice:
        place = _place(now)
        judged = judge.judged_queries(window, MOST_JUDGED)
        queries = block_of(judge, (one.query for one in window) if window else judged)
        offered = [one.with_usual(learned(one), own, queries) for one in OFFERED]
        if len(judged) < 2:
            return replace(offered[place], why=f"{offered[place].told}: there are no judged queries")
        forms = [one.beside(learned(one), own) for one in offered]
        scorers = (Scorer(form, judge.objects) for form in (*forms, own.form()))
        *precision, zero = (judge.precision_of(one, judged) for one in scorers)
        careful = forms[OFFERED.index(CAREFUL)]
        assert isinstance(careful, BackoffForm)
        far = careful.known(judge.objects.block(judged)[0]) < FAR
        compared = [
            Compared(Preference.of(one - precision[place]), Preference.of((one - zero)[far]))
            for one in precision
        ]
        taken = choose_by_judgments(place, compared)
        return replace(offered[taken], why=told_of_judged(offered, place, taken, compared, len(judged)))

    return choose


def choose_by_judgments(now: int, compared: Sequence[Compared]) -> int:
    """Which form to take, of those in the order of `OFFERED`; now: the one in use. Pure.

    The highest of those that are surely above the one in use, which else stays unless it is below the own
    ranking where little is known. Where all are, the most careful one.
    """
    allowed = [at for at, one in enumerate(compared) if not one.is_below_far]
    preferred = [at for at in allowed if at != now and compared[at].to_now.is_above]
    if not allowed:
        return OFFERED.index(CAREFUL)
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
        much = f"on {queries:,} judged queries ({gain.mean:+.3f} mAP, error {gain.error:.3f})"
        told = f"{chosen}: {'better than' if gain.is_above else 'in place of'} {before} {much}"
    below = [one.told for one, of in zip(offered, compared, strict=True) if of.is_below_far]
    if below:
        unlike = f"{compared[taken].far.queries:,} of them that are unlike those that were clicked"
        told += f"; below your own ranking on {unlike}: {' and '.join(below)}"
    return told


def block_of(judge: Judge, queries: Iterable[ObjectRef]) -> Block:
    """The features of distinct queries, mapped."""
    distinct = {one.id or str(at): one for at, one in enumerate(queries)}
    block, _ = judge.objects.block([*distinct.values()])
    return block


def _place(now: FormChoice | None) -> int:
    """Where in `OFFERED` what was chosen last stands; that of `PLAIN` where it is none of them. How it gives
    way says nothing: earlier releases did it in another way."""
    kinds = [(one.raw, one.power, one.own_share) for one in OFFERED]
    last = None if now is None else (now.raw, now.power, now.own_share)
    return kinds.index(last) if last in kinds else OFFERED.index(PLAIN)
