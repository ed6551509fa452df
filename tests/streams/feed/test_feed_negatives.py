"""Random negatives: fixed by the seed, never what is excluded, uniform; and the sample of what was seen."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from streams.event import ObjectRef
from streams.feed.decide import Decider
from streams.feed.options import FeedSettings
from streams.feed.triplets import CatalogCandidates, SeenCandidates, draw, is_drawn, make_events

from .feed_builders import impression

IDS = [f"p{number}" for number in range(20)]


def test_a_draw_depends_on_seed_and_purpose_alone() -> None:
    catalog = CatalogCandidates(IDS)
    drawn = [draw(catalog, frozenset(), f"i{number}/0/0", 5) for number in range(50)]
    assert drawn == [draw(catalog, frozenset(), f"i{number}/0/0", 5) for number in range(50)]
    assert drawn != [draw(catalog, frozenset(), f"i{number}/0/0", 6) for number in range(50)]


def test_draws_are_uniform_over_what_is_not_excluded() -> None:
    catalog = CatalogCandidates(IDS)
    excluded = frozenset(name.encode() for name in IDS[:10])
    counts = Counter(draw(catalog, excluded, f"i{number}", 0).id for number in range(10_000))
    assert set(counts) == set(IDS[10:])
    assert max(counts.values()) < 1200
    assert min(counts.values()) > 800


def test_nothing_eligible_gives_nothing() -> None:
    assert draw(CatalogCandidates([]), frozenset(), "i", 0) is None
    assert draw(CatalogCandidates(["a"]), frozenset({b"a"}), "i", 0) is None


def test_an_event_never_has_the_query_or_a_clicked_object_as_random_negative() -> None:
    settings = FeedSettings(rule="clicked_vs_random", random_negatives=3)
    catalog = CatalogCandidates(["p0", "p1", "p2", "p3", "other"])
    for number in range(100):
        made = make_events(impression(f"i{number}", 4, (0, 2), query="p1"), frozenset(), catalog, settings)
        assert made.negatives == len(made.events) == 6
        assert {event.skipped.id for event in made.events} <= {"p3", "other"}
        assert [event.clicked.id for event in made.events] == ["p0"] * 3 + ["p2"] * 3


def drawn_weights(settings: FeedSettings, lists: int, fed: int = 0) -> list[float]:
    """Of the random negatives of so many lists, in order, as a decider makes them."""
    decider = Decider(settings, CatalogCandidates(IDS), fed=fed)
    decided = [decider.decide(impression(f"i{number}", 4, (1, 3))) for number in range(lists)]
    events = [event for one in decided for event in one.made.events]
    assert {event.weight for event in events if not is_drawn(event)} == {1.0}
    return [event.weight for event in events if is_drawn(event)]


def test_random_negatives_weigh_less_the_more_events_there_are_down_to_a_least_share() -> None:
    settings = FeedSettings(holdout_share=0.0, negative_weight=0.8, negative_falls_from=100)
    weights = drawn_weights(settings, 1_000)
    assert weights[:30] == [0.8] * 30  # five events of each list, two of them drawn
    assert weights == sorted(weights, reverse=True)
    assert weights[2 * 80] == pytest.approx(0.8 * np.sqrt(100 / 401))
    assert weights[-1] == pytest.approx(0.8 * 0.15)
    assert drawn_weights(settings, 20, fed=400) == weights[160:200]  # a stream that holds events already
    assert set(drawn_weights(FeedSettings(holdout_share=0.0), 400)) == {1.0}


def test_negatives_that_cannot_be_found_are_counted() -> None:
    settings = FeedSettings(random_negatives=2)
    made = make_events(impression("i", 2, (1,)), frozenset(), CatalogCandidates(["p1"]), settings)
    assert (len(made.events), made.negatives, made.no_negative) == (1, 0, 2)


def test_seen_objects_are_all_kept_while_there_is_room() -> None:
    seen = SeenCandidates(size=10)
    seen.see([ObjectRef(id=name) for name in ("a", "b", "a")])
    seen.see([ObjectRef(x=np.ones(2, np.float32)), ObjectRef(x=np.ones(2, np.float32))])
    assert len(seen) == 3


@pytest.mark.parametrize("popularity", [1, 50])
def test_the_sample_of_seen_objects_ignores_how_often_one_is_shown(popularity: int) -> None:
    kept = 0
    for seed in range(200):
        seen = SeenCandidates(size=5, seed=seed)
        for _ in range(popularity):
            seen.see([ObjectRef(id="popular")])
        seen.see([ObjectRef(id=name) for name in IDS[:19]])
        for _ in range(popularity):
            seen.see([ObjectRef(id="popular")])
        assert len(seen) == 5
        kept += any(seen.at(index).id == "popular" for index in range(5))
    assert 25 < kept < 80  # 5 of 20 objects: 50 of 200 expected
