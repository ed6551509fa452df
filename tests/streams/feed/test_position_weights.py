"""Weights of pairs by the examination of their ranks: what they are, and that their mean is one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from streams.event import PAIR_BELOW
from streams.feed.options import RULES, FeedSettings
from streams.feed.position_weights import MOST, ExaminationCurve, PositionWeights
from streams.feed.triplets import CatalogCandidates, is_drawn, make_events
from tests.streams.feed.feed_builders import impression

RANKS = 10
NAN = float("nan")


def curve(*examination: float, rate: float = 0.3) -> ExaminationCurve:
    """Of a log in which objects are alike: click rates follow the curve."""
    seen = [one if one == one else 0.5 for one in examination]
    return ExaminationCurve(examination, (10_000.0,) * len(seen), tuple(10_000 * rate * one for one in seen))


ROOT = curve(*(1 / math.sqrt(rank) for rank in range(1, RANKS + 1)))


@pytest.mark.parametrize("rule", [name for name in RULES if name != "clicked_vs_random"])
@pytest.mark.parametrize("cap", [0, 5])
def test_the_mean_is_one_over_simulated_users(rule: str, cap: int) -> None:
    weights = PositionWeights.of(ROOT, rule, cap)
    settings = FeedSettings(rule=rule, triplets_per_impression=cap, position_weights=weights)
    candidates, draw = CatalogCandidates([f"o{n}" for n in range(50)]), np.random.default_rng(0)
    pairs, drawn = [], []
    for number in range(4_000):
        clicked = np.flatnonzero(draw.random(RANKS) < 0.3 * np.array(ROOT.examination))
        shown = impression(f"i{number}", RANKS, tuple(clicked.tolist()))
        for event in make_events(shown, frozenset(), candidates, settings).events:
            if event.pair != PAIR_BELOW or rule == "skip_next":
                (drawn if is_drawn(event) else pairs).append(event.weight)
    assert np.mean(pairs) == pytest.approx(1, abs=0.05)
    assert np.mean(drawn) == pytest.approx(1, abs=0.03)
    assert np.std(pairs) > 0.05


def test_a_pair_weighs_by_the_skipped_over_the_clicked_rank() -> None:
    weights = PositionWeights.of(ROOT, "skip_above", 0)
    base = weights.of_pair(1, 0)
    for clicked, skipped in ((4, 0), (9, 3), (2, 1)):
        seen = ROOT.examination
        wanted = seen[skipped] / seen[clicked] / (seen[0] / seen[1])
        assert weights.of_pair(clicked, skipped) / base == pytest.approx(wanted, rel=1e-3)
        drawn = weights.of_drawn(clicked) / weights.of_drawn(0)
        assert drawn == pytest.approx(1 / seen[clicked], rel=1e-3)
    assert weights.of_pair(30, 0) == weights.of_pair(9, 0)
    assert weights.of_drawn(30) == weights.of_drawn(9)


def test_weights_are_bounded() -> None:
    weights = PositionWeights.of(curve(1.0, 0.5, 1e-6), "all_skipped", 0)
    flat = [one for row in weights.pairs for one in row]
    assert max(flat) / min(flat) == pytest.approx(MOST**2, rel=1e-2)
    assert max(weights.drawn) / min(weights.drawn) == pytest.approx(MOST, rel=1e-2)


def test_a_rank_that_is_not_known_is_as_the_one_above_it() -> None:
    weights = PositionWeights.of(curve(1.0, 0.5, NAN, 0.25), "skip_above", 0)
    assert weights.of_pair(2, 0) == weights.of_pair(1, 0) < weights.of_pair(3, 0)


def test_without_them_all_pairs_weigh_alike() -> None:
    made = make_events(impression("i", 4, (2,)), frozenset(), CatalogCandidates(["x"]), FeedSettings())
    assert {event.weight for event in made.events} == {1.0}


def test_what_is_written_is_read_again() -> None:
    given = curve(1.0, 0.5, NAN, 0.25)
    text = given.write({"method": "chance", "lists": 12})
    found = ExaminationCurve.parse(text)
    np.testing.assert_array_equal(found.examination, given.examination)
    assert (found.shown, found.clicks) == (given.shown, given.clicks)
    assert 'method = "chance"\nlists = 12' in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "examination: expected a list"),
        ('examination = [1.0, "x"]', "examination: expected a list"),
        ("examination = [1.0, 0.5]\nshown = [5, 5]\nclicks = [1]", "as many ranks each"),
        ("examination = [1.0]\nshown = [5]\nclicks = [1]", "at least two"),
        ("examination = [nan, 0.5]\nshown = [5, 5]\nclicks = [1, 1]", "numbers above 0"),
        ("examination = [1.0, 0.0]\nshown = [5, 5]\nclicks = [1, 1]", "numbers above 0"),
        ("examination = [1.0, inf]\nshown = [5, 5]\nclicks = [1, 1]", "numbers above 0"),
        ("examination = [1.0, 0.5]\nshown = [5, 5]\nclicks = [6, 1]", "no more than shown"),
        ("examination = [1.0, 0.5]\nshown = [5, 5]\nclicks = [nan, 1]", "no more than shown"),
        ("examination = [1.0, 0.5]\nshown = [5, 5]\nclicks = [0, 0]", "at least one"),
        ("examination = ", "Invalid value"),
    ],
)
def test_what_is_no_curve_says_where(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ExaminationCurve.parse(text)
