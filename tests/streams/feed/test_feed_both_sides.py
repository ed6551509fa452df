"""Pairs on both sides of a click: by default both are made, and who leaves out those below is given exactly
what the rule of the pairs above gives; who learns both sides is given pairs of the whole list, all alike."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from learners.arms import takes
from streams.codec import decode_event, decode_impression
from streams.event import (
    PAIR_ABOVE,
    PAIR_BELOW,
    PAIR_RANDOM,
    PAIR_SIDES,
    PAIR_UNKNOWN,
    Event,
    Impression,
    ObjectRef,
)
from streams.feed.decide import Decider
from streams.feed.items import LateClick
from streams.feed.options import FeedSettings
from streams.feed.position_weights import ExaminationCurve, PositionWeights
from streams.feed.triplets import CatalogCandidates
from tests.streams.feed.feed_builders import impression

CATALOG = [f"p{number}" for number in range(40)]
CURVE = ExaminationCurve((1.0, 0.7, 0.5, 0.4), (900.0,) * 4, (300.0, 200.0, 120.0, 90.0))


def decider(*, weighed: bool = False, **settings: Any) -> Decider:
    how = FeedSettings(**{"holdout_share": 0.0, "negative_falls_from": 40, **settings})
    if weighed:
        weights = PositionWeights.of(CURVE, how.rule, how.triplets_per_impression)
        how = replace(how, position_weights=weights)
    return Decider(how, CatalogCandidates(CATALOG), frozenset({*CATALOG[2:], "q"}))


def lists(count: int) -> list[Impression | LateClick]:
    """Lists of 1 to 40 objects, two of them unknown, with one to four clicks; some with a late one."""
    rng, made = Random(5), list[Impression | LateClick]()
    for number in range(count):
        shown = rng.sample(CATALOG, rng.randint(1, 40))
        ranks = rng.sample(range(len(shown)), min(len(shown), rng.randint(1, 5)))
        one = impression(f"i{number}", shown, sorted(ranks[1:] or ranks))
        made += [one, LateClick(one, ranks[0])] if ranks[1:] and number % 3 == 0 else [one]
    return made


def events(decider: Decider, items: list[Impression | LateClick]) -> list[Event]:
    return [decode_event(record.value) for item in items for record in decider.decide(item).training]


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("cap", [5, 2, 0])
def test_without_pairs_below_the_clicks_it_is_what_the_rule_of_pairs_above_gives(
    weighed: bool, cap: int
) -> None:
    given = lists(300)
    both = events(decider(weighed=weighed, triplets_per_impression=cap), given)
    above = events(decider(weighed=weighed, triplets_per_impression=cap, rule="skip_above"), given)
    for_above = [event for event in both if takes("above", np.array([event.pair], np.uint8))[0]]
    assert [replace(event, pair=event.pair & PAIR_SIDES) for event in for_above] == above
    assert len(above) + 300 < len(both)
    assert {event.pair for event in above} == {PAIR_ABOVE, PAIR_RANDOM}
    assert len({event.weight for event in above if event.pair == PAIR_RANDOM}) > 3


def test_each_event_says_on_which_side_its_skipped_object_stood_and_each_learner_has_its_cap() -> None:
    decision = decider().decide(impression("i", CATALOG[2:32], (7, 20)))
    sides: dict[int, list[Event]] = {kind: [] for kind in (PAIR_ABOVE, PAIR_BELOW, PAIR_RANDOM)}
    for event in decision.made.events:
        _, clicked, skipped = event.id.split("/")
        drawn, above = skipped.startswith("r"), not skipped.startswith("r") and int(skipped) < int(clicked)
        sides[PAIR_RANDOM if drawn else PAIR_ABOVE if above else PAIR_BELOW].append(event)
        assert event.pair & PAIR_SIDES == (PAIR_RANDOM if drawn else PAIR_ABOVE if above else PAIR_BELOW)
    kinds = np.array([event.pair for event in decision.made.events], np.uint8)
    assert takes("above", kinds, random=False).sum() == 5
    assert takes("above", kinds).sum() == decision.made.for_above
    assert takes("all", kinds, random=False).sum() == 10
    of_pairs = len(sides[PAIR_ABOVE]) + len(sides[PAIR_BELOW])
    assert 10 <= of_pairs < 15
    assert len(sides[PAIR_RANDOM]) == 2
    assert (decision.made.pairs, decision.made.capped_pairs) == (2 * 28, 2 * 28 - of_pairs)


@pytest.mark.parametrize("click", [0, 3, 14, 27, 29])
def test_who_learns_both_sides_is_given_pairs_of_the_whole_list_all_alike(click: int) -> None:
    """Of 300 lists of 30 objects each rank is compared with the click about as often as any other."""
    often = np.zeros(30)
    for number in range(300):
        decision = decider(random_negatives=0).decide(impression(f"i{number}", CATALOG[2:32], (click,)))
        kinds = np.array([event.pair for event in decision.made.events], np.uint8)
        both = takes("all", kinds)
        assert both.sum() == 10
        for event, taken in zip(decision.made.events, both, strict=True):
            often[int(event.id.rpartition("/")[2])] += taken
    wanted = 300 * 10 / 29
    others = np.delete(often, click)
    assert often[click] == 0
    assert abs(others - wanted).max() < 5 * np.sqrt(wanted * (1 - 10 / 29))


def test_a_click_at_the_top_teaches_by_what_stands_below_it() -> None:
    decision = decider(random_negatives=0).decide(impression("i", CATALOG[2:6], (0,)))
    assert decision.fate == "training"
    assert [(event.id, event.pair) for event in decision.made.events] == [
        (f"i/0/{rank}", PAIR_BELOW) for rank in (1, 2, 3)
    ]


def test_what_takes_a_step_back_has_the_side_of_that_step() -> None:
    late = decider(random_negatives=0).decide(LateClick(impression("i", CATALOG[2:7], (1, 4)), 2))
    found = {event.id: event.pair for event in late.made.events}
    assert found == {
        "i/2/0": PAIR_ABOVE, "i/2/3": PAIR_BELOW, "i/2/4": PAIR_ABOVE, "i/2/1": PAIR_BELOW
    }  # fmt: skip


@pytest.mark.parametrize(
    ("pair", "shown"), [(PAIR_UNKNOWN, ["s", "c"]), (PAIR_ABOVE, ["s", "c"]), (PAIR_BELOW, ["c", "s"])]
)
def test_a_triplet_that_is_held_out_is_a_list_in_which_its_objects_stand_as_it_says(
    pair: int, shown: list[str]
) -> None:
    triplet = Event("t", 1, *map(ObjectRef, "qcs"), pair=pair)
    held = Decider(FeedSettings(holdout_share=0.999999), CatalogCandidates(CATALOG)).decide(triplet)
    kept = decode_impression(held.holdout[0].value)
    assert [ref.id for ref in kept.shown] == shown
    assert [kept.shown[rank].id for rank in kept.clicked] == ["c"]
