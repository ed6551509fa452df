"""Examination by rank out of simulated users: what the estimate is near, by what, and when it refuses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from streams.event import EITHER, FIRST, SECOND, Draft, DraftModel, Impression, ObjectRef
from streams.feed.position_bias import ComparedPlaces, estimate
from streams.feed.shown_places import PositionBias, ShownPlaces, rounds_of

RANKS = 8
MODELS: tuple[DraftModel, ...] = ()
Float = npt.NDArray[np.float64]


def examined(power: float) -> Float:
    """1 / rank ** power."""
    return np.arange(1, RANKS + 1, dtype=np.float64) ** -power


@dataclass
class Users:
    """Who ask for queries of which each has 12 objects of unequal relevance, and click by place."""

    power: float
    queries: int
    lists: int
    cascade: bool = False
    seed: int = 7

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.relevance = np.clip(self.rng.beta(0.6, 1.5, (self.queries, 12)), 0.02, 0.9)
        self.looked = np.zeros(RANKS)

    def ranking(self, noise: float) -> npt.NDArray[np.int64]:
        """For each query its objects, better ones first, but for noise."""
        return np.argsort(-self.relevance - noise * self.rng.standard_normal(self.relevance.shape), axis=1)

    def ask(self, rankings: list[npt.NDArray[np.int64]] | None) -> list[Impression]:
        """Lists by one of the rankings, or shuffled, with what the users clicked."""
        made = []
        for number in range(self.lists):
            query = int(self.rng.integers(self.queries))
            if rankings is None:
                order = self.rng.permutation(12)[:RANKS]
            else:
                order = rankings[int(self.rng.integers(len(rankings)))][query][:RANKS]
            made.append(self.shown(number, query, order, "shuffled" if rankings is None else "shop"))
        return made

    def shown(self, number: int, query: int, order: npt.NDArray[np.int64], source: str) -> Impression:
        """One list, and the clicks of its user."""
        attracts = self.rng.random(RANKS) < self.relevance[query, order]
        if self.cascade:
            first = int(np.argmax(attracts)) if attracts.any() else RANKS - 1
            looks = np.arange(RANKS) <= first
        else:
            looks = self.rng.random(RANKS) < examined(self.power)
        self.looked += looks
        refs = tuple(ObjectRef(id=f"q{query}-{one}") for one in order)
        clicked = tuple(np.flatnonzero(looks & attracts).tolist())
        return Impression(f"i{number}", 1000, ObjectRef(id=f"q{query}"), refs, clicked, source=source)


@cache
def two_rankings(power: float, queries: int) -> list[Impression]:
    """12,000 lists, each by one of two rankings."""
    users = Users(power, queries, lists=12_000)
    return users.ask([users.ranking(0.3), users.ranking(0.3)])


def found(lists: list[Impression], shuffled: tuple[str, ...] = ("shuffled",)) -> PositionBias:
    """What the lists say."""
    places = ShownPlaces(RANKS, shuffled)
    for one in lists:
        places.add(one)
    return places.result()


def assert_near(bias: PositionBias, truth: Float, relative: float) -> None:
    """The curve that is taken is that near, no further than its own errors say, which are not made up."""
    taken = bias.taken
    assert taken is not None, bias.refused
    assert np.abs(taken.curve / truth - 1).max() < relative
    away = (taken.curve - truth)[1:] / taken.error[1:]
    assert np.abs(away).max() < 4
    assert (taken.error[1:] < relative * truth[1:]).all()


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_shuffled_lists_give_the_curve(power: float) -> None:
    users = Users(power, queries=300, lists=8_000)
    bias = found(users.ask(None))
    assert (bias.method, bias.shuffled, bias.by_chance) == ("chance", 8_000, 8_000 * RANKS)
    assert_near(bias, examined(power), 0.15)


@pytest.mark.parametrize("power", [0.5, 1.0])
@pytest.mark.parametrize("queries", [200, 4_000])
def test_two_rankings_give_the_curve_where_click_rates_do_not(power: float, queries: int) -> None:
    """Also where each query was asked three times only."""
    bias = found(two_rankings(power, queries))
    assert bias.method == "moves"
    assert 0.2 < bias.moved_share < 1 or queries == 200
    assert_near(bias, examined(power), 0.25)
    rates = bias.clicks / bias.shown
    assert rates[-1] / rates[0] < 0.75 * examined(power)[-1]  # better objects stand higher: far too steep


@pytest.mark.parametrize(("queries", "least", "most"), [(4_000, 0.2, 1.0), (200, 0.0, 0.05)])
def test_clicks_compared_within_pairs_against_regression_em(queries: int, least: float, most: float) -> None:
    """Where each query was asked three times, and features are not at hand, EM finds relevance in places;
    where each was asked often they are alike."""
    lists = two_rankings(0.5, queries)
    taken = found(lists).taken
    assert taken is not None
    truth = examined(0.5)
    ours = np.abs(taken.curve / truth - 1).mean()
    em = min(np.abs(regression_em(lists, prior) / truth - 1).mean() for prior in (0.0, 1.0, 5.0))
    assert ours < 0.05
    assert least < em < most


def regression_em(lists: list[Impression], prior: float) -> Float:
    """The EM of Wang et al. (WSDM 2018, section 4.2), relevance pooled by pair, with `prior` places of the
    mean relevance."""
    pairs: dict[tuple[str | None, str | None], int] = {}
    pair = np.array(
        [pairs.setdefault((one.query.id, ref.id), len(pairs)) for one in lists for ref in one.shown]
    )
    rank = np.tile(np.arange(RANKS), len(lists))
    clicked = np.array([at in one.clicked for one in lists for at in range(RANKS)])
    shown = np.bincount(pair)
    theta, gamma = 1.0 / np.arange(1, RANKS + 1) ** 0.3, np.full(len(pairs), clicked.mean())
    for _ in range(100):
        t, g = theta[rank], gamma[pair]
        missed = np.maximum(1 - t * g, 1e-12)
        theta = np.bincount(rank, np.where(clicked, 1, t * (1 - g) / missed)) / np.bincount(rank)
        relevant = np.bincount(pair, np.where(clicked, 1, g * (1 - t) / missed))
        gamma = (relevant + prior * relevant.sum() / shown.sum()) / (shown + prior)
    return np.asarray(theta / theta[0])


def test_errors_are_as_large_as_they_say() -> None:
    """Over 40 logs the estimates vary by what the standard errors tell."""
    logs = [found(Users(0.5, 100, 800, seed=seed).ask(None)).chance for seed in range(40)]
    spread = np.std([one.curve[1:] for one in logs], axis=0, ddof=1)
    said = np.mean([one.error[1:] for one in logs], axis=0)
    assert (np.abs(np.log(spread / said)) < 0.35).all()  # a spread of 40 is known to within some 11 %


def test_users_who_stop_at_the_first_click() -> None:
    """A cascade has no curve of its own; shuffled lists tell how often each rank was looked at on average."""
    users = Users(0.0, queries=300, lists=12_000, cascade=True)
    bias = found(users.ask(None))
    assert_near(bias, users.looked / users.looked[0], 0.2)


def test_of_users_who_stop_two_rankings_tell_about_as_much() -> None:
    """Not more: what stands above an object moves with it."""
    users = Users(0.0, queries=300, lists=12_000, cascade=True)
    bias = found(users.ask([users.ranking(0.3), users.ranking(0.3)]))
    assert bias.taken is not None
    looked = users.looked / users.looked[0]
    assert np.abs(bias.taken.curve / looked - 1).mean() < 0.2


def test_explored_places_give_the_curve() -> None:
    """A random object in a random place, in lists whose other places say nothing."""
    users = Users(0.5, queries=300, lists=15_000)
    ranking, lists = users.ranking(1.0), []
    for number in range(users.lists):
        query, slot, drawn = (int(users.rng.integers(limit)) for limit in (300, RANKS, 12 - RANKS))
        order = ranking[query][:RANKS].copy()
        order[slot] = ranking[query][RANKS + drawn]
        draft = Draft(MODELS, (EITHER,) * RANKS, slot, 1 / (RANKS * (12 - RANKS)))
        lists.append(replace(users.shown(number, query, order, "shop"), draft=draft))
    bias = found(lists)
    assert (bias.method, bias.explored, bias.by_chance) == ("chance", 15_000, 15_000)
    assert_near(bias, examined(0.5), 0.35)


def test_rounds_of_a_draft_give_the_curve() -> None:
    """A coin orders two objects; rounds begin at every rank, since some of the lists begin with a tie."""
    users = Users(1.0, queries=300, lists=20_000)
    ranking, lists = users.ranking(0.0), []
    for number in range(users.lists):
        query, ties = (int(users.rng.integers(limit)) for limit in (300, 2))
        order, teams = ranking[query][:RANKS].copy(), [EITHER] * RANKS
        for at in range(ties, RANKS - 1, 2):
            coin = bool(users.rng.integers(2))
            teams[at : at + 2] = [SECOND, FIRST] if coin else [FIRST, SECOND]
            if coin:
                order[[at, at + 1]] = order[[at + 1, at]]
        lists.append(replace(users.shown(number, query, order, "shop"), draft=Draft(MODELS, tuple(teams))))
    bias = found(lists)
    assert (bias.method, bias.drafted) == ("chance", 20_000)
    assert_near(bias, examined(1.0), 0.35)


def test_rounds_are_read_down_to_a_random_object() -> None:
    assert rounds_of((FIRST, SECOND, EITHER, SECOND, FIRST, FIRST), 6) == [0, 3]
    assert rounds_of((FIRST, SECOND, FIRST, SECOND, FIRST), 5) == [0, 2]
    assert rounds_of((FIRST, EITHER, SECOND, FIRST), 1) == []  # (FIRST, random), then a round, or another
    assert rounds_of((), 0) == rounds_of((FIRST,), 1) == []


def test_lists_that_never_vary_are_refused() -> None:
    users = Users(0.5, queries=200, lists=4_000)
    bias = found(users.ask([users.ranking(0.0)]))
    assert (bias.method, bias.taken, bias.moved, bias.moved_share) == (None, None, 0, 0.0)
    assert "by chance: 0 clicks compare ranks with the first; 100 are needed" in bias.refused
    assert np.isnan(bias.moves.curve).all()


def test_a_log_of_which_a_hundredth_moved_is_refused() -> None:
    moving, fixed = Users(0.5, 40, 140, seed=1), Users(0.5, 200, 12_000, seed=2)
    lists = fixed.ask([fixed.ranking(0.0)])
    lists += [replace(one, key="other") for one in moving.ask([moving.ranking(0.2), moving.ranking(0.2)])]
    bias = found(lists)
    assert bias.moves.known > 1
    assert 0 < bias.moved_share < 0.01
    assert (bias.method, bias.taken) == (None, None)
    assert "% of the clicks are on pairs that were shown at several ranks" in bias.refused


def test_ranks_that_nothing_ties_to_the_first_are_not_told() -> None:
    """Objects move between ranks 1 and 2, and between 3 and 4: nothing compares 3 with 1."""
    rng = np.random.default_rng(0)
    group, rank, listed = np.repeat([0, 0, 1, 1], 500), np.repeat([0, 1, 2, 3], 500), np.arange(2_000)
    seen = estimate(ComparedPlaces(group, rank, listed, rng.random(2_000) < 0.4), 4)
    assert np.isfinite(seen.curve).tolist() == [True, True, False, False]
    alone = estimate(ComparedPlaces(group[1000:], rank[1000:], listed[1000:], rng.random(1_000) < 0.4), 4)
    assert alone.known == 0
    assert alone.refused
