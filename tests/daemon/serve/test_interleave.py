"""Team draft and explored places: what a list holds, whom it credits, and that chance is fair."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.serve.interleave import EITHER, FIRST, SECOND, Place, team_draft, with_explored
from daemon.serve.query import ScoredId

rankings = st.lists(st.integers(0, 12), unique=True, max_size=9)


def ranked(names: Sequence[object]) -> list[ScoredId]:
    return [ScoredId(str(name), float(-place)) for place, name in enumerate(names)]


def names(places: Sequence[Place]) -> str:
    return "".join(place.hit.id for place in places)


def tossed(*sides: bool) -> Callable[[], bool]:
    return iter([*sides, *[False] * 20]).__next__


def test_the_coin_says_who_stands_first_and_each_place_has_its_team() -> None:
    heads = team_draft(ranked("abcd"), ranked("badc"), 4, tossed(False, False))
    assert names(heads) == "abcd"
    assert [place.team for place in heads] == [FIRST, SECOND, FIRST, SECOND]
    tails = team_draft(ranked("abcd"), ranked("badc"), 4, tossed(True, True))
    assert names(tails) == "badc"
    assert [place.team for place in tails] == [SECOND, FIRST, SECOND, FIRST]


def test_what_both_have_next_is_of_neither_team() -> None:
    places = team_draft(ranked("abcd"), ranked("abdc"), 4, tossed())
    assert [(place.hit.id, place.team) for place in places] == [
        ("a", EITHER),
        ("b", EITHER),
        ("c", FIRST),
        ("d", SECOND),
    ]


def test_the_score_is_that_of_the_team() -> None:
    first, second = [ScoredId("a", 0.9), ScoredId("b", 0.8)], [ScoredId("b", 7.0), ScoredId("a", 6.0)]
    places = team_draft(first, second, 2, tossed())
    assert [place.hit.score for place in places] == [0.9, 7.0]


def test_two_rankings_that_agree_have_no_teams() -> None:
    assert {place.team for place in team_draft(ranked("abcdef"), ranked("abcdef"), 6, tossed())} == {EITHER}


def test_a_last_round_with_one_place_shows_either() -> None:
    assert names(team_draft(ranked("ab"), ranked("xy"), 3, tossed(False, False))) == "axb"
    assert names(team_draft(ranked("ab"), ranked("xy"), 3, tossed(False, True))) == "axy"


def test_a_ranking_that_ends_early_leaves_the_rest_without_a_team() -> None:
    places = team_draft(ranked("a"), ranked("xyz"), 4, tossed())
    assert [(place.hit.id, place.team) for place in places] == [
        ("a", FIRST),
        ("x", SECOND),
        ("y", EITHER),
        ("z", EITHER),
    ]
    assert names(team_draft([], ranked("xy"), 4, tossed())) == "xy"
    assert team_draft([], [], 4, tossed()) == []


@given(rankings, rankings, st.integers(1, 12), st.randoms())
def test_no_object_twice_as_many_as_there_are_and_every_team_from_its_ranking(
    one: list[int], other: list[int], k: int, draw: random.Random
) -> None:
    places = team_draft(ranked(one), ranked(other), k, lambda: draw.random() < 0.5)
    found = [place.hit.id for place in places]
    assert len(set(found)) == len(found) == min(k, len({*one, *other}))
    for place in places:
        assert place.team != FIRST or int(place.hit.id) in one
        assert place.team != SECOND or int(place.hit.id) in other


@given(rankings, rankings, st.integers(1, 9))
def test_over_all_coins_both_teams_stand_in_every_place_equally_often(
    one: list[int], other: list[int], k: int
) -> None:
    """So any user who clicks by place alone credits both alike: the sum over the coins is exactly 0."""
    credit: Counter[int] = Counter()
    for sides in product((False, True), repeat=k):
        for rank, place in enumerate(team_draft(ranked(one), ranked(other), k, iter(sides).__next__)):
            credit[rank] += {EITHER: 0, FIRST: -1, SECOND: 1}[place.team]
    assert not any(credit.values())


def test_a_random_object_takes_the_place_of_one_and_probabilities_are_told() -> None:
    places = with_explored([Place(hit, FIRST) for hit in ranked("abcd")], 2, ScoredId("r", 0.1), 50)
    assert names(places) == "abrd"
    assert [place.team for place in places] == [FIRST, FIRST, EITHER, FIRST]
    assert [place.explored for place in places] == [False, False, True, False]
    assert [place.chance for place in places] == pytest.approx([0.75, 0.75, 1 / 200, 0.75])
