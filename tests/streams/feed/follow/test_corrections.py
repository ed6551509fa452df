"""A click that came after its list was decided: the events that set right what was learned."""

from __future__ import annotations

from typing import Any

from streams.codec import decode_event, decode_impression
from streams.event import Event
from streams.feed import items as reasons
from streams.feed.decide import Decider, Decision
from streams.feed.items import LateClick
from streams.feed.options import FeedSettings
from streams.feed.position_weights import ExaminationCurve, PositionWeights
from streams.feed.triplets import SeenCandidates
from tests.streams.feed.feed_builders import impression


def decider(**settings: Any) -> Decider:
    given = {"holdout_share": 0.0, "random_negatives": 0, **settings}
    return Decider(FeedSettings(**given), SeenCandidates())


def events(decision: Decision) -> dict[str, tuple[Any, Any]]:
    found = [decode_event(record.value or b"") for record in decision.training]
    return {event.id: (event.clicked.id, event.skipped.id) for event in found if isinstance(event, Event)}


def test_pairs_of_the_late_click_and_the_passed_over_pair_turned_round() -> None:
    one, decide = impression("i", 5, (1, 4)), decider(rule="skip_above").decide
    assert events(decide(one)) == {
        "i/1/0": ("p1", "p0"),
        "i/4/0": ("p4", "p0"),
        "i/4/2": ("p4", "p2"),
        "i/4/3": ("p4", "p3"),
    }
    late = decide(LateClick(one, 2))
    assert late.fate == "correction"
    assert events(late) == {"i/2/0": ("p2", "p0"), "i/2/4": ("p2", "p4")}


def test_a_step_is_taken_back_with_the_weight_it_had() -> None:
    curve = ExaminationCurve((1.0, 0.5, 0.25, 0.2, 0.1), (100.0,) * 5, (40.0, 20.0, 10.0, 8.0, 4.0))
    weighing = decider(position_weights=PositionWeights.of(curve, "skip_above", 5))
    first, late = (
        {event.id: event.weight for record in one.training if (event := decode_event(record.value or b""))}
        for one in (
            weighing.decide(impression("i", 5, (4,))),
            weighing.decide(LateClick(impression("i", 5, (4,)), 2)),
        )
    )
    assert late["i/2/4"] == first["i/4/2"] != 1.0
    assert late["i/2/0"] != late["i/2/4"]


def test_all_that_was_learned_is_what_one_list_with_all_clicks_gives_and_the_pair_taken_back() -> None:
    early, late = decider(), decider()
    apart = events(late.decide(impression("i", 5, (4,)))) | events(
        late.decide(LateClick(impression("i", 5, (4,)), 2))
    )
    whole = events(early.decide(impression("i", 5, (2, 4))))
    assert apart == whole | {"i/4/2": ("p4", "p2"), "i/2/4": ("p2", "p4")}


def test_a_late_click_on_a_list_without_clicks_is_the_list_with_it() -> None:
    late, plain = decider(random_negatives=2), decider(random_negatives=2)
    assert late.decide(impression("i", 4, ())).reason == reasons.NO_CLICK
    again = late.decide(LateClick(impression("i", 4, ()), 2))
    assert again.fate == "training"
    plain.decide(impression("other", 4, ()))
    assert again.training == plain.decide(impression("i", 4, (2,))).training


def test_the_cap_holds_and_negatives_are_drawn_for_the_late_click_alone() -> None:
    one, both = impression("i", 30, (29,)), decider(random_negatives=1, triplets_per_impression=3)
    assert len(both.decide(one).training) == 2 * 3 + 1
    late = events(both.decide(LateClick(one, 20)))
    assert len([name for name in late if "/r" not in name]) <= 2 * 3 + 3 + 1
    assert [name for name in late if "/r" in name] == ["i/20/r0"]


def test_what_was_held_out_stays_as_it_was_and_is_held_out_with_its_first_click() -> None:
    held = decider(holdout_share=0.999999)
    assert held.decide(impression("i", 4, (1,))).fate == "holdout"
    late = held.decide(LateClick(impression("i", 4, (1,)), 2))
    assert (late.fate, late.reason) == ("ignored", reasons.LATE_HELD_OUT)
    first = held.decide(LateClick(impression("j", 4, ()), 2))
    assert first.fate == "holdout"
    assert decode_impression(first.holdout[0].value or b"").clicked == (2,)
