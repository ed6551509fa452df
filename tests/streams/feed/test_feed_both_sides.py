"""Pairs on both sides of a click: by default both are made, and who leaves out those below is given exactly
what the rule of the pairs above gives."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from streams.codec import decode_event, decode_impression
from streams.event import PAIR_ABOVE, PAIR_BELOW, PAIR_RANDOM, PAIR_UNKNOWN, Event, Impression, ObjectRef
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
    return [decode_event(record.value) for item in items for record in decider.decide(item).records]


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("cap", [5, 2, 0])
def test_without_pairs_below_the_clicks_it_is_what_the_rule_of_pairs_above_gives(
    weighed: bool, cap: int
) -> None:
    given = lists(300)
    both = events(decider(weighed=weighed, triplets_per_impression=cap), given)
    above = events(decider(weighed=weighed, triplets_per_impression=cap, rule="skip_above"), given)
    assert [event for event in both if event.pair != PAIR_BELOW] == above
    assert len(above) + 300 < len(both)
    assert {event.pair for event in above} == {PAIR_ABOVE, PAIR_RANDOM}
    assert len({event.weight for event in above if event.pair == PAIR_RANDOM}) > 3


def test_each_event_says_on_which_side_its_skipped_object_stood_and_each_side_has_its_cap() -> None:
    decision = decider().decide(impression("i", CATALOG[2:32], (7, 20)))
    sides: dict[int, list[Event]] = {kind: [] for kind in (PAIR_ABOVE, PAIR_BELOW, PAIR_RANDOM)}
    for event in decision.made.events:
        _, clicked, skipped = event.id.split("/")
        drawn, above = skipped.startswith("r"), not skipped.startswith("r") and int(skipped) < int(clicked)
        sides[PAIR_RANDOM if drawn else PAIR_ABOVE if above else PAIR_BELOW].append(event)
        assert event.pair == (PAIR_RANDOM if drawn else PAIR_ABOVE if above else PAIR_BELOW)
    assert [len(one) for one in sides.values()] == [5, 5, 2]
    assert (decision.made.pairs, decision.made.capped_pairs) == (2 * 28, 2 * 28 - 10)


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
    kept = decode_impression(held.records[0].value)
    assert [ref.id for ref in kept.shown] == shown
    assert [kept.shown[rank].id for rank in kept.clicked] == ["c"]
