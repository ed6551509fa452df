"""UBI 1.3: query and event logs joined into impressions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from streams.event import Impression
from streams.feed import items as reasons
from streams.feed.formats import read_sources
from streams.feed.items import Dropped, Ignored
from streams.feed.options import ReaderOptions, UbiOptions

from .feed_builders import OPTIONS, write_lines


def query(name: str, hits: list[str] | None = None, **more: Any) -> dict[str, Any]:
    line = {
        "application": "shop",
        "query_id": name,
        "client_id": "browser",
        "user_query": "red shoes ",
        "timestamp": "2024-05-16T12:00:00Z",
        **more,
    }
    return line if hits is None else {**line, "query_response_hit_ids": hits}


def event(action: str, query_id: str | None, item: Any = None, ordinal: int | None = None) -> dict[str, Any]:
    attributes: dict[str, Any] = {"position": {} if ordinal is None else {"ordinal": ordinal}}
    if item is not None:
        attributes["object"] = {"object_id": item, "object_id_field": "sku"}
    line = {"action_name": action, "timestamp": "2024-05-16T12:00:09Z", "event_attributes": attributes}
    return line if query_id is None else {**line, "query_id": query_id}


def join(
    tmp_path: Path, queries: list[Any], events: list[Any], options: ReaderOptions = OPTIONS
) -> tuple[dict[str, Impression], Counter[str]]:
    """Impressions by id and the reasons of everything else."""
    files = [write_lines(tmp_path / "e.jsonl", events), write_lines(tmp_path / "q.jsonl", queries)]
    items = [item for _, item in read_sources([path for path in files if Path(path).stat().st_size], options)]
    impressions = {item.id: item for item in items if isinstance(item, Impression)}
    return impressions, Counter(item.reason for item in items if isinstance(item, Dropped | Ignored))


def test_queries_and_clicks_are_joined(tmp_path: Path) -> None:
    impressions, others = join(
        tmp_path,
        [query("1", ["a", "b", "c"]), query("2", ["d", "e"]), query("3", ["f"])],
        [
            event("click", "2", "e", 2),
            event("page_view", "1"),
            event("click", "1", "c", 3),
            event("click_through", "1", "a", 1),
            event("click", "1", "a", 1),
        ],
    )
    assert {name: one.clicked for name, one in impressions.items()} == {"1": (0, 2), "2": (1,), "3": ()}
    first = impressions["1"]
    assert (first.query.id, first.ts, first.source) == ("red shoes", 1715860800000, "browser")
    assert [item.id for item in first.shown] == ["a", "b", "c"]
    assert others == {reasons.OTHER_ACTION: 1}


def test_clicks_without_a_place_are_told(tmp_path: Path) -> None:
    impressions, others = join(
        tmp_path,
        [query("1", ["a", "b"])],
        [
            event("click", "1", "z"),
            event("click", "9", "a"),
            event("click", "9", "b"),
            event("click", None, "a"),
        ],
    )
    assert impressions["1"].clicked == ()
    assert others == {reasons.CLICK_NOT_SHOWN: 1, reasons.CLICK_WITHOUT_QUERY: 3}


def test_impression_events_stand_in_for_missing_hits(tmp_path: Path) -> None:
    seen = [event("impression", "1", name, rank) for name, rank in (("b", 2), ("c", 3), ("a", 1), ("a", 1))]
    impressions, others = join(
        tmp_path, [query("1"), query("2"), query("3", [])], [*seen, event("click", "1", "b", 2)]
    )
    assert [item.id for item in impressions["1"].shown] == ["a", "b", "c"]
    assert impressions["1"].clicked == (1,)
    assert others == {reasons.NO_SHOWN: 2}


def test_wrapped_documents_integer_ids_and_internal_ids(tmp_path: Path) -> None:
    by_internal = event("click", "1", "SKU-9")
    by_internal["event_attributes"]["object"]["internal_id"] = 8
    impressions, _ = join(
        tmp_path,
        [{"_index": "ubi_queries", "_source": query("1", ["7", "8"])}],
        [{"_source": event("click", "1", 7)}, {"_source": by_internal}],
    )
    assert impressions["1"].clicked == (0, 1)


def test_options(tmp_path: Path) -> None:
    ubi = UbiOptions("query_attributes.product", frozenset({"add_to_cart"}))
    impressions, others = join(
        tmp_path,
        [query("1", ["a", "b"], query_attributes={"product": "p7"}, client_id=7), query("2", ["a", "b"])],
        [event("add_to_cart", "1", "b"), event("click", "1", "a")],
        ReaderOptions(0, "shop", ubi),
    )
    assert impressions["1"].query.id == "p7"
    assert (impressions["1"].clicked, impressions["1"].source) == ((1,), "shop")
    assert others == {reasons.OTHER_ACTION: 1, reasons.MISSING_FIELD: 1}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (query("", ["a"]), reasons.MISSING_ID),
        (query("1", ["a", ""]), reasons.WRONG_TYPE),
        ({**query("1"), "query_response_hit_ids": "a"}, reasons.WRONG_TYPE),
        (query("1", ["a"], user_query=" "), reasons.WRONG_TYPE),
        (query("1", ["a"], timestamp="soon"), reasons.BAD_TIMESTAMP),
        ("{torn", reasons.NOT_JSON),
    ],
)
def test_bad_queries(tmp_path: Path, line: Any, reason: str) -> None:
    impressions, others = join(
        tmp_path, [query("0", ["a"]), line, query("2", ["b"])], [event("click", "2", "b")]
    )
    assert set(impressions) == {"0", "2"}
    assert impressions["2"].clicked == (0,)
    assert others == {reason: 1}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (event("click", "1"), reasons.MISSING_FIELD),
        (event("click", "1", 1.5), reasons.WRONG_TYPE),
        ({**event("click", "1", "a"), "event_attributes": 3}, reasons.WRONG_TYPE),
        ({**event("click", "1", "a"), "action_name": None}, reasons.WRONG_TYPE),
        ({**event("click", "1", "a"), "query_id": 7}, reasons.WRONG_TYPE),
        ("{torn", reasons.NOT_JSON),
    ],
)
def test_bad_events(tmp_path: Path, line: Any, reason: str) -> None:
    impressions, others = join(
        tmp_path, [query("1", ["a", "b"])], [event("page_view", "1"), line, event("click", "1", "b")]
    )
    assert impressions["1"].clicked == (1,)
    assert others == {reason: 1, reasons.OTHER_ACTION: 1}


@pytest.mark.parametrize("ordinal", [10**400, float("nan"), "first", None, [1]])
def test_a_position_that_is_no_number_comes_last(tmp_path: Path, ordinal: Any) -> None:
    events = [event("impression", "1", "odd", ordinal), event("impression", "1", "b", 2)]
    events += [event("impression", "1", "a", 1), event("click", "1", "a", ordinal)]
    impressions, others = join(tmp_path, [query("1", [])], events)
    assert [item.id for item in impressions["1"].shown] == ["a", "b", "odd"]
    assert not others
