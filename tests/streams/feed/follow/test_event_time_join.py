"""The join in event time against a plain search, in any order; what is late; going on from a snapshot."""

from __future__ import annotations

import random

import msgpack
import pytest

from streams.event import Impression
from streams.feed import items as reasons
from streams.feed.follow.checkpoint import pack
from streams.feed.follow.join import (
    CLOSED_EARLY,
    LATE_CLICK,
    EventTimeJoin,
    JoinSettings,
    OpenDeadline,
    TimeQueue,
)
from streams.feed.items import Ignored, LateClick, PlacedOrLate, UnclickedList
from streams.feed.mapping.window import Said
from tests.streams.feed.test_join_window import WITHIN, Click, View, drawn, oracle

SETTINGS = JoinSettings(window_ms=WITHIN, within_ms=WITHIN, bucket_ms=1)
LATENESS = 100


def said(view: View) -> Said:
    return Said(view.id, (view.session, "q"), view.id, view.ts, "q", None, None)


def put(join: EventTimeJoin, one: View | Click) -> None:
    if isinstance(one, View):
        join.shown_whole(said(one), list(one.shown))
    else:
        join.click((one.session, "q"), f"c{one.ts}", one.object, one.ts)


def unordered(seed: int, records: list[View | Click]) -> list[View | Click]:
    """Records out of order, none later than the allowed lateness."""
    draw = random.Random(seed)
    return sorted(records, key=lambda one: one.ts + draw.random() * LATENESS)


def clicked(done: list[PlacedOrLate]) -> dict[str, set[str]]:
    return {one.id: {str(one.shown[rank].id) for rank in one.clicked} for one in lists(done)}


def lists(done: list[PlacedOrLate]) -> list[Impression]:
    items = [item.impression() if isinstance(item, UnclickedList) else item for _, item in done]
    return [item for item in items if isinstance(item, Impression)]


def joined(join: EventTimeJoin, records: list[View | Click]) -> list[PlacedOrLate]:
    newest = 0
    for one in records:
        put(join, one)
        newest = max(newest, one.ts)
        join.advance(newest - LATENESS)
    join.finish()
    return join.drained()


@pytest.mark.parametrize("seed", range(20))
def test_any_order_within_the_lateness_gives_each_click_to_its_list(seed: int) -> None:
    views, clicks = drawn(seed)
    done = joined(EventTimeJoin(SETTINGS), unordered(seed, [*views, *clicks]))
    assert clicked(done) == oracle(views, clicks)
    assert len(lists(done)) == len(views)
    assert not any(isinstance(item, LateClick) for _, item in done)


@pytest.mark.parametrize("seed", range(6))
def test_a_join_goes_on_from_its_snapshot_as_if_it_had_never_stopped(seed: int) -> None:
    records = unordered(seed, [*drawn(seed)[0], *drawn(seed)[1]])
    whole = joined(EventTimeJoin(SETTINGS), records)
    join, done, newest = EventTimeJoin(SETTINGS), [], 0
    for number, one in enumerate(records):
        put(join, one)
        newest = max(newest, one.ts)
        join.advance(newest - LATENESS)
        if number % 7 == 0:
            done += join.drained()
            packed = pack(join.snapshot())
            join = EventTimeJoin.restored(SETTINGS, msgpack.unpackb(packed))
    join.finish()
    assert done + join.drained() == whole


def test_a_click_after_its_list_was_closed_is_late_once() -> None:
    join = EventTimeJoin(SETTINGS)
    join.shown_whole(said(View("a", "s", 1_000, ("p0", "p1", "p2"))), ["p0", "p1", "p2"])
    join.click("a", "in time", "p1", 1_100)
    join.advance(1_000 + WITHIN)
    ((_, closed),) = join.drained()
    assert isinstance(closed, Impression)
    assert closed.clicked == (1,)
    for place in ("late", "again"):
        join.click("a", place, "p2", 1_250)
    (place, late), (_, again) = join.drained()
    assert (place, late) == ("late", LateClick(closed, 2))
    assert isinstance(again, Ignored)
    assert again.reason == reasons.REPEATED_CLICK
    assert join.counts[LATE_CLICK] == 1


def test_state_is_bounded_the_oldest_closes_early_and_is_told() -> None:
    join = EventTimeJoin(JoinSettings(window_ms=WITHIN, most_open=3, remembered=2))
    for ts in range(1_000, 1_010):
        join.shown_whole(said(View(f"i{ts}", "s", ts, ("p",))), ["p"])
        join.click("nothing", "c", f"p{ts}", ts)
    assert (join.open_lists, join.remembered_lists, join.waiting_clicks) == (3, 2, 3)
    assert join.counts[CLOSED_EARLY] == 7
    assert list(clicked(join.drained())) == [f"i{ts}" for ts in range(1_000, 1_007)]


def test_a_list_told_twice_is_one() -> None:
    join = EventTimeJoin(SETTINGS)
    for _ in range(2):
        join.shown_whole(said(View("a", "s", 1_000, ("p",))), ["p"])
    join.finish()
    ((_, repeat), (_, one)) = join.drained()
    assert isinstance(repeat, Ignored)
    assert repeat.reason == reasons.DUPLICATE
    assert isinstance(one, UnclickedList)


def test_what_finds_no_list_says_why() -> None:
    join = EventTimeJoin(SETTINGS)
    join.shown_whole(said(View("a", "s", 1_000, ("p",))), ["p"])
    join.click("b", "1", "p", 1_001)
    join.click("a", "2", "other", 1_001)
    join.finish()
    told = [item.reason for _, item in join.drained() if isinstance(item, Ignored)]
    assert told == [reasons.CLICK_WITHOUT_IMPRESSION, reasons.CLICK_NOT_SHOWN]


@pytest.mark.parametrize("spread", [0, 5, 1_000])
def test_what_waits_leaves_by_its_time_however_it_came(spread: int) -> None:
    draw = random.Random(spread)
    waiting, queue = [], TimeQueue[OpenDeadline]()
    for number in range(500):
        one = OpenDeadline(number + draw.randint(0, spread), number, f"i{number}")
        waiting.append(one)
        queue.add(one)
        if not number % 7:
            assert queue.pop() == min(waiting)
            waiting.remove(min(waiting))
        if not number % 50:
            assert list(queue) == sorted(waiting)
            due = [one for one in sorted(waiting) if one.ts <= number]
            assert list(queue.due(number)) == due
            waiting = [one for one in waiting if one.ts > number]
        assert len(queue) == len(waiting)
