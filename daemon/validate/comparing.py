"""What the lists of a window say of one version against others: by the teams of those that two versions made
together, by the order of the rest. Pure, on NumPy arrays.

**Who made a list is not asked by its order.** What made a list has its objects in order, so that all it
knows is taken for an effect of the rank and subtracted (`daemon.validate.preferences.differences`). Any other
ranking that knows something of its own is then ahead, the worse one too. So no bet is placed by order on
lists that are nearer to a version than to what it is compared with: nothing could speak for the version
there. The other way round bets are placed. Against the version they count all the more, and for it they say
that it knows what users prefer beyond what the other's ranks tell.

How near a ranking is to lists is the share of their pairs that it has in the order that was shown
(`in_shown_order`), over all lists that are judged together: lists of two or three objects count by their one
to three pairs. It needs nothing in a log, and says nothing of clicks: a mean of 0 where clicks depend on the
rank alone stays 0 on any lists that are chosen so.

A list of two versions is never bet on by its order, which is half chance: it speaks of its two versions, by
its teams, and of no others.

Of a source with many lists some alone count (`daemon.validate.sources`), for every question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from daemon.validate.evidence import Comparison, Positions
from daemon.validate.preferences import (
    State,
    bets_of,
    credit,
    differences,
    in_shown_order,
    outcomes,
    standing_higher,
)
from daemon.validate.race import ArmShare, OrderBets
from daemon.validate.scorer import Panel
from daemon.validate.shown import Float, Mask, Scores, ShownLists
from daemon.validate.sources import counted_lists, only_counted

Measures: TypeAlias = dict[str, float]

MADE = 0.75
"""Share of the pairs that a ranking has in the order that was shown where it can have made the lists: what
learned a few versions more than what made them still has .8 or more."""
NEARER = 0.03
"""By how much more of the pairs a ranking has to have in the order that was shown to count as nearer."""


@dataclass(frozen=True, slots=True)
class Scored:
    """What one look of a version at a panel gives: its measures; its scores of the lists in the order of
    time, float32 [n, L]; average precision of each judged query.
    """

    measures: Measures
    scores: Scores
    precision: Float = field(default_factory=lambda: np.zeros(0))


def are_nearer(one: Scores, other: Scores, lists: ShownLists) -> bool:
    """Whether the lists are nearer to the first ranking than to the other. scores [n, L]."""
    return is_nearer(in_shown_order(one, lists), in_shown_order(other, lists))


def is_nearer(one: float, other: float) -> bool:
    """Whether the first of two rankings can have made the lists (`MADE`), and they are nearer to it than to
    the other, by `NEARER`; given are their shares of pairs in the order that was shown."""
    return one > MADE and one > other + NEARER


def told_by_order(
    own: Scores, other: Scores, lists: ShownLists, where: Mask, like: Mask | None = None
) -> Float:
    """`differences` of the lists at `where`, bool[n], NaN at the others; NaN at all where those lists are
    nearer to `own`. like: see `differences`.
    """
    if not where.any() or are_nearer(own[where], other[where], lists.at(where)):
        return np.full(len(where), np.nan)
    return np.where(where, differences(own, other, lists, like), np.nan)


def compare(
    panel: Panel,
    versions: Sequence[Scored],
    states: Sequence[State],
    fresh: Mask,
    through: Positions,
    *,
    alike: bool = True,
) -> Comparison:
    """A version on a panel, against version 0, the best version and the anchor.

    versions: these four; states: which states of the learner they are. fresh: bool[n], the lists that were
    not bet on before, in the order of time; with them positions are taken up to `through`. alike: whether the
    others say as well by how much the rankings usually differ.
    """
    own, zero, best, anchor = versions
    _, at_zero, at_best, at_anchor = states
    clusters, impressions = panel.in_time(panel.group).tolist(), panel.impressions_by_time
    counted, strongest = counted_lists(impressions)
    lists = only_counted(panel.by_time, counted)
    plain, nothing = panel.plain & counted, np.full(len(panel), np.nan)
    against_zero, against_anchor = outcomes(impressions, at_zero), outcomes(impressions, at_anchor)
    follows = best is not zero and best is not anchor
    lead = outcomes(impressions, at_best) if follows and own is not best else nothing

    def bets(one: Scored, other: Scored, teams: Float, where: Mask) -> list[float]:
        if one is other:
            return []
        asked = where & plain
        ordered = told_by_order(one.scores, other.scores, lists, asked, None if alike else asked)
        return clustered(np.where(np.isnan(teams), ordered, teams), where)

    def clustered(values: Float, where: Mask) -> list[float]:
        return bets_of(np.where(where & counted, values, np.nan), clusters)

    def higher(one: Scored, teams: Float) -> float | None:
        known = np.where(counted, teams, np.nan)
        return share_higher(one.scores[plain], zero.scores[plain], lists.at(plain), known)

    served = own if best is zero else best
    by_teams = fresh & counted & ~np.isnan(np.stack([against_zero, against_anchor, lead]))
    silent = fresh & plain
    parts = (served.scores[silent], zero.scores[silent], lists.at(silent))
    if by_teams[0].any() or (silent.any() and not are_nearer(*parts)):
        silent = np.zeros_like(silent)
    against = bets(own, zero, against_zero, fresh)
    return Comparison(
        fresh=against,
        fresh_anchor=against if anchor is zero else bets(own, anchor, against_anchor, fresh),
        fresh_best=bets(best, zero, outcomes(impressions, at_zero, at_best), fresh),
        fresh_lead=clustered(lead, fresh),
        window_best=bets(own, best, outcomes(impressions, at_best), np.ones(len(panel), bool))
        if best is not zero
        else [],
        lists=int(fresh.sum()),
        interleaved=int(by_teams.any(axis=0).sum()),
        silent=int(silent.sum()),
        through=through,
        higher=higher(own, against_zero),
        higher_best=None if best is zero else higher(best, outcomes(impressions, at_zero, at_best)),
        strongest=strongest,
    )


def share_higher(own: Scores, zero: Scores, lists: ShownLists, teams: Float | None = None) -> float | None:
    """Share of the lists that tell in which clicked objects stand higher under `own` than under `zero`, by
    their order, and by the teams of lists that both made; None where no list tells. scores [n, L]."""
    told = np.zeros((2, 0))
    if len(own) and not are_nearer(own, zero, lists):
        told = np.stack(standing_higher(own, zero, lists))
    drafted = np.zeros(0) if teams is None else teams[~np.isnan(teams)]
    won, weights = np.append(told, [drafted > 0, np.abs(drafted)], axis=1)
    return float(np.average(won, weights=weights)) if weights.sum() > 0 else None


def with_trained(held: Comparison, trained: Comparison) -> Comparison:
    """A comparison by held-out lists, after the bets on lists that were learned from later."""
    bets = ("fresh", "fresh_anchor", "fresh_best", "fresh_lead")
    both: dict[str, Any] = {name: [*getattr(trained, name), *getattr(held, name)] for name in bets}
    both |= {name: getattr(trained, name) + getattr(held, name) for name in ("lists", "interleaved")}
    sources = (one.strongest for one in (held, trained) if one.strongest is not None)
    both["strongest"] = max(sources, key=lambda one: one.share, default=None)
    return replace(held, trained=trained.lists, order=held.order.after(trained.order), **both)


def order_bets(
    panel: Panel,
    arms: Mapping[ArmShare, Scores],
    zero: Scores,
    fresh: Mask,
    leader: ArmShare | None,
    *,
    before: bool = False,
    top: Callable[[Mask], int | None] = lambda _: None,
) -> OrderBets:
    """What the lists that were not bet on before say of all candidates for their order; an empty sequence for
    each where none tells.

    arms: scores of each candidate, zero: of the user's own ranking, float32 [n, L] in the order of time, as
    fresh, bool[n]. leader: the candidate that leads. before: whether the arms are those from before the lists
    were learned: else lists that arms learn say nothing of them. top: see `OrderChoice`, by lists of the
    panel, bool[n]; as many as they have objects in the median where it gives None, and where the lists that
    are bet on are in the order of the user's own ranking: it made them, by a filter maybe.
    """
    impressions = panel.impressions_by_time
    counted = counted_lists(impressions)[0]
    lists, plain = only_counted(panel.by_time, counted), panel.plain & counted
    tells = plain & np.array([before or not one.for_arms for one in impressions], bool)
    where, clusters = fresh & tells, panel.in_time(panel.group).tolist()
    shares = {
        name: share_higher(arms[name][tells], zero[tells], lists.at(tells))
        for name in ([leader] if leader in arms else arms)
        if name is not None
    }
    higher = {name: share for name, share in shares.items() if share is not None}
    if not where.any():
        return OrderBets(dict.fromkeys(arms, ()), higher=higher)

    def read(one: Scores) -> tuple[float, Float]:
        return in_shown_order(one[where], lists.at(where)), credit(one, lists)

    of_zero, of_arms = read(zero), {name: read(one) for name, one in arms.items()}

    def bets(candidate: ArmShare, other: tuple[float, Float]) -> list[float]:
        shown, own = of_arms[candidate]
        told = np.where(where, own - other[1], np.nan)
        return [] if is_nearer(shown, other[0]) else bets_of(told, clusters)

    led = None if leader is None else of_arms.get(leader)
    lead = {} if led is None else {name: bets(name, led) for name in arms if name != leader}
    first = None if of_zero[0] > MADE else top(plain)
    first = first or int(np.median(lists.valid[where].sum(axis=1)))
    return OrderBets({name: bets(name, of_zero) for name in arms}, lead, first, higher)
