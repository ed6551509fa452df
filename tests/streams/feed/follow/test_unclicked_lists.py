"""A list without clicks has the fate of its impression, which is not made for it."""

from __future__ import annotations

from streams.event import ObjectRef
from streams.feed import items as reasons
from streams.feed.decide import Decider
from streams.feed.follow.join import EventTimeJoin, JoinSettings
from streams.feed.items import Dropped, LateClick, UnclickedList
from streams.feed.mapping.window import Piece, Said
from streams.feed.options import FeedSettings, ListProof
from streams.feed.triplets import SeenCandidates
from streams.signed_lists import PREFIX
from tests.streams.feed.feed_builders import impression

TS = 1_000


def unclicked(
    name: str, *shown: str, ts: int = TS, query: str = "q", source: str | None = None, key: str | None = None
) -> UnclickedList:
    return UnclickedList(name, ts, query, shown, source, key)


def closed(*views: UnclickedList, chances: tuple[float, ...] = ()) -> list[object]:
    join = EventTimeJoin(JoinSettings())
    for one in views:
        said = Said(one.id, one.id, one.id, one.ts, one.query, one.source, one.key)
        join.shown_whole(said, list(one.shown), chances)
    join.finish()
    return [item for _, item in join.drained()]


def test_its_fate_and_what_it_leaves_behind_are_those_of_its_impression() -> None:
    lists = [
        unclicked("plain", "p0", "p1", "p2"),
        unclicked("plain", "p0"),  # a duplicate
        unclicked("plain", "p0", key="anna"),  # of another model: none
        unclicked("repeats", "p3", "p4", "p3", source="web"),
        unclicked("future", "p5", ts=TS + 1),
        unclicked("future", "p5"),  # was not remembered
        unclicked(f"{PREFIX}nobody-signed-this", "p6", "p7"),
        unclicked("half", "p8", "\ud800", "p9"),
        unclicked("half", "p9"),  # was not remembered
        *(unclicked(f"many{number}", *(f"m{number + at}" for at in range(9))) for number in range(60)),
    ]
    settings = FeedSettings(latest_ms=TS, proof=ListProof(b"0" * 32), random_negatives=3, holdout_share=0.0)
    candidates = SeenCandidates(size=20), SeenCandidates(size=20)
    short, whole = (Decider(settings, one) for one in candidates)
    fates = [short.decide(one) for one in lists]
    assert fates == [whole.decide(one.impression()) for one in lists]
    seen, expected = ([one.at(at) for at in range(len(one))] for one in candidates)
    assert seen == expected
    assert len(seen) == 20
    clicked = impression("clicked", 5, (3,))
    assert short.decide(clicked).training == whole.decide(clicked).training
    assert [one.reason for one in fates[:9]] == [
        reasons.NO_CLICK,
        reasons.DUPLICATE,
        reasons.NO_CLICK,
        reasons.NO_CLICK,
        reasons.IN_THE_FUTURE,
        reasons.NO_CLICK,
        reasons.BAD_SIGNATURE,
        reasons.NOT_UTF8,
        reasons.NO_CLICK,
    ]
    assert [fates[at].detail for at in (0, 3)] == ["3 shown", "2 shown"]


def test_the_join_closes_a_list_without_clicks_as_one() -> None:
    one = unclicked("i", "p0", "p1", source="web", key="anna")
    (found,) = closed(one)
    assert isinstance(found, UnclickedList)
    whole = found.impression()
    assert (whole.id, whole.ts, whole.query, whole.clicked) == ("i", TS, ObjectRef(id="q"), ())
    assert (whole.shown, whole.source, whole.key) == ((ObjectRef(id="p0"), ObjectRef(id="p1")), "web", "anna")


def test_what_is_wrong_with_a_list_is_told_without_clicks_too() -> None:
    told = [
        *closed(unclicked("i", "p0", "p1"), chances=(1.0, 2.0)),
        *closed(unclicked("j", "p0", query="")),
        *closed(unclicked("k")),
    ]
    assert [one.reason for one in told if isinstance(one, Dropped)] == [
        reasons.BAD_PROPENSITY,
        reasons.MISSING_FIELD,
        reasons.NO_SHOWN,
    ]


def test_objects_stand_by_their_positions() -> None:
    join = EventTimeJoin(JoinSettings())
    for name, at in (("p0", 2.0), ("p1", None), ("p2", 1.0)):
        join.shown(Said("i", "i", name, TS, "q", None, None), Piece([name], [at]))
    join.finish()
    ((_, found),) = join.drained()
    assert isinstance(found, UnclickedList)
    assert list(found.shown) == ["p2", "p0", "p1"]


def test_a_late_click_does_not_change_what_was_closed_before_it() -> None:
    join = EventTimeJoin(JoinSettings(window_ms=10))
    join.shown_whole(Said("i", "i", "view", TS, "q", None, None), ["p0", "p1"])
    join.advance(TS + 10)
    join.click("i", "late", "p1", TS + 1)
    (_, before), (_, late) = join.drained()
    assert isinstance(before, UnclickedList)
    assert before == UnclickedList("i", TS, "q", ["p0", "p1"], None, None)
    assert late == LateClick(before.impression(), 1)
