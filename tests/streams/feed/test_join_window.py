"""The window of the join against a plain search through everything, in any order and any size of window."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import pytest

from streams.event import Impression
from streams.feed import items as reasons
from streams.feed.items import Ignored
from streams.feed.mapping.window import JoinWindow, ObjectRefs, Piece, Said

WITHIN = 300


@dataclass(frozen=True)
class View:
    id: str
    session: str
    ts: int
    shown: tuple[str, ...]


@dataclass(frozen=True)
class Click:
    session: str
    ts: int
    object: str


def drawn(seed: int, views: int = 60, clicks: int = 120) -> tuple[list[View], list[Click]]:
    draw = random.Random(seed)
    times = draw.sample(range(1_000), views)
    objects = [f"p{number}" for number in range(8)]
    return (
        [
            View(f"i{ts}", f"s{draw.randrange(4)}", ts, tuple(draw.sample(objects, draw.randrange(1, 6))))
            for ts in times
        ],
        [Click(f"s{draw.randrange(5)}", draw.randrange(1_200), draw.choice(objects)) for _ in range(clicks)],
    )


def oracle(views: list[View], clicks: list[Click]) -> dict[str, set[str]]:
    """The clicked objects of each impression: each click goes to the latest that showed it in time."""
    found: dict[str, set[str]] = {view.id: set() for view in views}
    for click in clicks:
        fits = [
            view
            for view in views
            if view.session == click.session
            and view.ts <= click.ts <= view.ts + WITHIN
            and click.object in view.shown
        ]
        if fits:
            found[max(fits, key=lambda view: view.ts).id].add(click.object)
    return found


def joined(rows: list[View | Click], size: int) -> tuple[dict[str, set[str]], Counter[str]]:
    """What the window makes of rows in this order, and what it told of the others."""
    window = JoinWindow(size, WITHIN, ObjectRefs())
    for number, row in enumerate(rows):
        if isinstance(row, View):
            said = Said(row.id, row.session, f"row {number}", row.ts, "q", None, None)
            window.shown(said, Piece(list(row.shown)))
        else:
            window.click(row.session, f"row {number}", row.object, row.ts)
    window.finish()
    items = [item for _, item in window.done]
    found = {
        item.id: {str(item.shown[rank].id) for rank in item.clicked}
        for item in items
        if isinstance(item, Impression)
    }
    return found, Counter(item.reason for item in items if isinstance(item, Ignored))


def accounted(found: dict[str, set[str]], told: Counter[str]) -> int:
    return sum(map(len, found.values())) + sum(told.values())


@pytest.mark.parametrize("seed", range(15))
def test_in_any_order_where_there_is_room(seed: int) -> None:
    views, clicks = drawn(seed)
    rows: list[View | Click] = [*views, *clicks]
    random.Random(seed).shuffle(rows)
    found, told = joined(rows, len(rows))
    assert found == oracle(views, clicks)
    assert accounted(found, told) == len(clicks)


@pytest.mark.parametrize("seed", range(15))
def test_sorted_by_time_in_a_window_of_what_is_within_its_time(seed: int) -> None:
    """As many as begin, or are clicked, while the clicks of one may come."""
    views, clicks = drawn(seed)
    rows: list[View | Click] = sorted([*views, *clicks], key=lambda row: (row.ts, isinstance(row, Click)))
    most = max(sum(view.ts <= other.ts <= view.ts + WITHIN for other in views) for view in views)
    clicked = max(sum(view.ts <= other.ts <= view.ts + WITHIN for other in clicks) for view in views)
    found, told = joined(rows, max(most, clicked) + 1)
    assert found == oracle(views, clicks)
    assert accounted(found, told) == len(clicks)


@pytest.mark.parametrize("size", [1, 2, 5, 20])
def test_too_small_a_window_loses_clicks_and_tells_each(size: int) -> None:
    views, clicks = drawn(1)
    rows: list[View | Click] = [*views, *clicks]
    found, told = joined(rows, size)
    expected = oracle(views, clicks)
    assert set(found) == set(expected)
    assert accounted(found, told) == len(clicks)
    assert told[reasons.AFTER_WINDOW] > 0
    assert all(clicked <= {*view.shown} for view, clicked in ((view, found[view.id]) for view in views))


def test_no_more_than_its_size_waits() -> None:
    window = JoinWindow(4, None, ObjectRefs())
    for number in range(10):
        window.click(f"s{number}", f"row {number}", "p", number)
        assert len(window.done) == max(0, number - 3)
    for number in range(10):
        window.shown(Said(f"i{number}", "s", "row", number, "q", None, None), Piece(["a"]))
        assert len(window.done) == 6 + max(0, number - 3)
    assert {item.reason for _, item in window.done if isinstance(item, Ignored)} == {
        reasons.CLICK_WITHOUT_IMPRESSION
    }
