"""Lists that are learned from are written as lists, too, before their triplets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from streams.codec import decode_event, decode_impression
from streams.errors import StreamUnavailable
from streams.event import ONLY_ARMS, Event, Impression, ObjectRef
from streams.feed.decide import Decider, Decision
from streams.feed.options import LEAST_APART, FeedSettings
from streams.feed.run import FeedRun, SinkOutlet
from streams.feed.triplets import CatalogCandidates
from streams.limits import MAX_SHOWN
from streams.partitions import is_holdout
from streams.source import OutRecord
from tests.streams.feed.feed_builders import Kept, impression, placed

CATALOG = [f"p{number}" for number in range(12)]
UNTIMED = 5_000


def decider(holdout_share: float = 0.0, prequential: bool = True, **more: int) -> Decider:
    how = FeedSettings(
        holdout_share=holdout_share, prequential=prequential, untimed_ms=UNTIMED, seed=1, **more
    )
    return Decider(how, CatalogCandidates(CATALOG), frozenset(CATALOG) | {"q"})


def listed(decision: Decision) -> Impression:
    (record,) = decision.holdout
    return decode_impression(record.value)


def test_a_list_goes_ahead_of_its_triplets_to_the_holdout_topic_marked() -> None:
    kept = Kept()
    log = [impression(f"i{number}", query=f"p{number % 6}") for number in range(60)]
    account = FeedRun(decider(0.3), kept).run(placed(log))
    found = [decode_impression(record.value) for record in kept.holdout]
    events = [decode_event(record.value) for record in kept.training]
    trained, held = ([one.id for one in found if one.trained is is_trained] for is_trained in (True, False))
    assert list(dict.fromkeys(event.impression for event in events)) == trained
    assert set(trained).isdisjoint(held)
    assert (len(trained), len(held), len(events)) == (account.training, account.holdout, account.triplets)
    assert min(len(trained), len(held)) > 5
    assert all(event.ts >= log[int((event.impression or "")[1:])].ts for event in events)
    assert all(replace(one, trained=False) == log[int(one.id[1:])] for one in found)
    assert {record.partition for record in kept.holdout} == {None}


def test_without_it_nothing_goes_ahead() -> None:
    assert decider(prequential=False).decide(impression("i")).holdout == ()


def test_no_list_says_by_itself_that_it_is_learned_from() -> None:
    said = replace(impression("i"), trained=True)
    held = decider(0.999999).decide(said)
    assert not decode_impression(held.holdout[0].value).trained
    assert held.training == ()


def test_arms_learn_what_is_held_out_but_for_a_tenth_of_the_queries() -> None:
    kept = Kept()
    names = [f"p{number}" for number in range(12)]
    log = [impression(f"i{number}", query=f"p{number % 12}") for number in range(120)]
    account = FeedRun(decider(0.6, for_arms=True), kept).run(placed(log))
    lists = [decode_impression(record.value) for record in kept.holdout]
    events = [decode_event(record.value) for record in kept.training]
    held = {name for name in names if is_holdout(name.encode(), 0.6, 1)}
    apart = {name for name in names if is_holdout(name.encode(), LEAST_APART, 1)}
    of = {name: "apart" if name in apart else "arms" if name in held else "all" for name in names}
    assert set(of.values()) == {"apart", "arms", "all"}
    for one in lists:
        who = of[one.query.id or ""]
        assert (one.trained, one.for_arms) == (who == "all", who == "arms")
    for event in events:
        assert of[event.query.id or ""] == ("arms" if event.pair & ONLY_ARMS else "all")
    alone = [event for event in events if event.pair & ONLY_ARMS]
    learned = {one.id for one in lists if one.is_learned}
    assert {event.impression for event in events} == learned
    assert (account.for_arms, account.triplets) == (len(alone), len(events))
    assert account.holdout == sum(not one.trained for one in lists)
    of_arms = [replace(event, pair=event.pair ^ ONLY_ARMS) for event in alone]
    by_all = decider(0.0)
    plain = {
        event.id: event
        for one in log
        for record in by_all.decide(one).training
        for event in (decode_event(record.value),)
    }
    assert of_arms
    assert all(plain[event.id] == event for event in of_arms)


def test_held_out_lists_without_a_time_or_of_a_kind_or_a_triplet_arms_do_not_learn() -> None:
    for_arms = decider(0.999999, for_arms=True)
    one, untimed = impression("i", query="p7"), replace(impression("j", query="p7"), ts=UNTIMED)
    assert for_arms.decide(one).training
    assert for_arms.decide(untimed).training == ()
    assert for_arms.decide(Event("t", 1, *map(ObjectRef, ("p7", "p1", "p2")))).training == ()
    assert decider(0.999999).decide(one).training == ()


def test_what_arms_alone_learn_does_not_count_for_negatives() -> None:
    for_arms = decider(0.999999, for_arms=True)
    assert for_arms.decide(impression("i", query="p7")).training
    assert for_arms.fed == 0


def test_what_tells_nothing_stays_away() -> None:
    """Without an object that was not clicked nothing is compared; with a time of its own at each feeding
    nobody knows what a version has learned from.
    """
    whole = decider().decide(impression("i", 2, (0, 1)))
    untimed = decider().decide(replace(impression("i"), ts=UNTIMED))
    for one in (whole, untimed):
        assert one.fate == "training"
        assert one.holdout == ()


def test_unknown_objects_are_left_out_of_it() -> None:
    one = listed(decider().decide(impression("i", ["p1", "gone", "p2"], (2,))))
    assert ([ref.id for ref in one.shown], one.clicked) == (["p1", "p2"], (1,))


def test_a_list_that_is_no_record_costs_nothing_but_itself() -> None:
    """Its triplets are small, and its objects bring their vectors."""
    for size, is_written in ((1, True), (5_000, False)):
        refs = tuple(ObjectRef(id=f"p{n}", x=np.ones(size, np.float32)) for n in range(MAX_SHOWN))
        found = decider(triplets_per_impression=2).decide(replace(impression("i"), shown=refs, clicked=(1,)))
        assert found.fate == "training"
        assert bool(found.holdout) is is_written


class Topic:
    """A sink in memory that fails once, after some of what it was given."""

    max_record_bytes = 1 << 20

    def __init__(self, fails_after: int | None = None) -> None:
        self.records: list[OutRecord] = []
        self._fails_after = fails_after

    def send(self, records: list[OutRecord]) -> None:
        after, self._fails_after = self._fails_after, None
        self.records += records if after is None else records[:after]
        if after is not None:
            raise StreamUnavailable("gone")


@pytest.mark.parametrize("after", [0, 7])
def test_a_feed_that_dies_between_lists_and_triplets_has_shown_every_list_that_can_be_learned_from(
    tmp_path: Path, after: int
) -> None:
    training, holdout = Topic(after), Topic()
    log = [impression(f"i{number}", query=f"p{number % 6}") for number in range(40)]
    with pytest.raises(StreamUnavailable):
        FeedRun(decider(0.3), SinkOutlet(training, holdout)).run(placed(log))  # type: ignore[arg-type]
    seen = {one.id for one in (decode_impression(record.value) for record in holdout.records) if one.trained}
    assert len(training.records) == after
    assert {decode_event(record.value).impression for record in training.records} <= seen
    FeedRun(decider(0.3), SinkOutlet(training, holdout)).run(placed(log))  # type: ignore[arg-type]
    twice = [decode_impression(record.value) for record in holdout.records]
    assert twice[: len(twice) // 2] == twice[len(twice) // 2 :], "the same lists, with the same times"
