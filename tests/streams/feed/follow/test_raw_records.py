"""Raw records of every shape that is followed, and what is wrong with one."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from streams.event import Impression
from streams.feed import items as reasons
from streams.feed.follow.join import EventTimeJoin, JoinSettings
from streams.feed.follow.records import RawRecord, RecordReader
from streams.feed.items import Dropped, FeedError, Ignored, UnclickedList
from streams.feed.mapping.mapping import read_mapping
from streams.feed.mapping.window import Piece, Said
from streams.feed.options import ReaderOptions

TS = 1_700_000_000_000
OPTIONS = ReaderOptions(TS + 60_000)
SHOWN = ["p0", "p1", "p2"]
VIEW = {"event": "impression", "impression": "i", "ts": TS, "query": "q", "shown": SHOWN}
CLICK = {"event": "click", "impression": "i", "ts": TS + 1, "object": "p1"}


def read(*said: Any, mapping: str = "", headers: tuple[tuple[str, bytes], ...] = ()) -> list[Any]:
    join = EventTimeJoin(JoinSettings())
    reader = RecordReader(join, OPTIONS, read_mapping(mapping, "test") if mapping else None)
    values = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in said]
    reader.take([RawRecord(f"r{number}", one, headers) for number, one in enumerate(values)])
    join.finish()
    items = [item for _, item in join.drained()]
    return [item.impression() if isinstance(item, UnclickedList) else item for item in items]


def one(*said: Any, **more: Any) -> Impression:
    (found,) = read(*said, **more)
    assert isinstance(found, Impression)
    return found


def test_what_the_write_routes_keep() -> None:
    found = one({**VIEW, "propensity": [1, 0.5, 0.25], "source": "web", "key": "anna"}, CLICK)
    assert (found.id, found.ts, found.query.id, found.clicked) == ("i", TS, "q", (1,))
    assert [ref.id for ref in found.shown] == SHOWN
    assert (found.propensity, found.source, found.key) == ((1.0, 0.5, 0.25), "web", "anna")


def test_lines_of_the_format_impressions_whose_clicks_come_apart() -> None:
    line = {"id": "i", "ts": "2023-11-14T22:13:20Z", "q": "q", "shown": SHOWN, "clicked": [0]}
    assert one(line, CLICK) == one({**VIEW, "clicked": ["p0"]}, CLICK)
    assert one(line).clicked == (0,)


def test_null_counts_as_absent() -> None:
    null = dict.fromkeys(("session", "source", "src", "key", "clicked", "propensity", "object"))
    assert one({**null, **VIEW}, {**null, **CLICK}) == one(VIEW, CLICK)
    click = {"event": "click", "impression": None, "session": "s", "query": "q", "ts": TS + 1, "object": "p2"}
    assert one({**VIEW, "session": "s"}, click).clicked == (2,)


def test_a_session_and_query_join_where_no_list_is_named() -> None:
    click = {"event": "click", "session": "s", "query": "q", "ts": TS + 1, "object": "p2"}
    assert one({**VIEW, "session": "s"}, click).clicked == (2,)


def test_cloud_events_structured_and_binary() -> None:
    def cloud(data: dict[str, Any], kind: str) -> dict[str, Any]:
        left = {name: value for name, value in data.items() if name not in ("ts", "event")}
        at = {"time": "2023-11-14T22:13:20Z", "type": f"shop.{kind}", "id": "i"}
        return {"specversion": "1.0", "source": "/shop", **at, "data": left}

    view = {name: value for name, value in VIEW.items() if name != "impression"}
    assert one(cloud(view, "impression"), cloud(CLICK, "click")) == one(VIEW, CLICK)
    headers = (("ce_type", b"shop.impression"), ("ce_id", b"i"), ("ce_time", b"2023-11-14T22:13:20Z"))
    assert one({"query": "q", "shown": SHOWN}, headers=headers) == one(VIEW)


MAPPING = """
rows = "events"
time = "at"
query = "term"
id = ["page"]
join = ["visitor"]
within = "10m"
[impression]
where.kind = "list"
shown = "skus"
[click]
where.kind = "tap"
object = "sku"
"""


def test_rows_of_a_mapping() -> None:
    rows = [
        {"kind": "list", "page": "i", "visitor": "v", "at": TS, "term": "q", "skus": SHOWN},
        {"kind": "tap", "visitor": "v", "at": TS + 5, "sku": "p1"},
    ]
    assert one(*rows, mapping=MAPPING) == one(VIEW, CLICK)
    (other,) = read({**rows[1], "kind": "scroll"}, mapping=MAPPING)
    assert isinstance(other, Ignored)


class Failing(EventTimeJoin):
    """A join that has a bug: nobody can show it the list "bad"."""

    def shown(self, said: Said, piece: Piece) -> None:
        if said.id == "bad":
            raise RuntimeError("nobody thought of this")
        super().shown(said, piece)


OBJECTS = """
rows = "shown"
time = "at"
query = "term"
id = "page"
object = "sku"
position = "place"
click.where.tapped = "1"
"""


@pytest.mark.parametrize("mapping", [MAPPING, OBJECTS], ids=["events", "shown"])
def test_a_record_that_nobody_thought_of_costs_itself_and_others_count_once(mapping: str) -> None:
    join = Failing(JoinSettings())
    reader = RecordReader(join, OPTIONS, read_mapping(mapping, "test"))
    rows: list[dict[str, Any]] = []
    for page in ("i", "bad", "j"):
        more = {"page": page, "visitor": page, "at": TS, "term": "q"}
        if mapping == MAPPING:
            rows += [
                {**more, "kind": "list", "skus": SHOWN},
                {**more, "kind": "tap", "sku": "p1"},
                {**more, "at": ""},
            ]
        else:
            rows += [{**more, "sku": one, "place": at, "tapped": at % 2} for at, one in enumerate(SHOWN)]
        rows.append({**more, "page": f"late {page}", "at": TS + 60_001, "kind": "tap", "sku": "p0"})
    reader.take([RawRecord(f"r{number}", row) for number, row in enumerate(rows)])
    lists = [(one.said.id, one.objects, len(one.positions)) for one in join.lists()]
    assert lists == [(page, SHOWN, 3) for page in "ij"]
    assert reader.bots.clicks == (3 if mapping == MAPPING else 0)
    join.finish()
    items = [item for _, item in join.drained()]
    reasons_ = Counter(item.reason for item in items if isinstance(item, Dropped | Ignored))
    assert [item.clicked for item in items if isinstance(item, Impression)] == [(1,), (1,)]
    assert (reasons_[reasons.UNREADABLE], reasons_[reasons.IN_THE_FUTURE]) == (1, 3), items


def test_a_mapping_of_whole_rows_is_refused() -> None:
    whole = 'rows = "impressions"\ntime = "t"\nquery = "q"\nshown = "s"\nclicked = "c"\n'
    with pytest.raises(FeedError, match="comes apart"):
        read(VIEW, mapping=whole)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"{", reasons.NOT_JSON),
        (b"[]", reasons.NOT_JSON),
        ({**VIEW, "ts": TS + 60_001}, reasons.IN_THE_FUTURE),
        ({**VIEW, "ts": "yesterday"}, reasons.BAD_TIMESTAMP),
        ({**VIEW, "shown": "p"}, reasons.WRONG_TYPE),
        ({**VIEW, "shown": []}, reasons.NO_SHOWN),
        ({**VIEW, "shown": [{"x": [1.0]}]}, reasons.WRONG_TYPE),
        ({**VIEW, "propensity": [1]}, reasons.BAD_PROPENSITY),
        ({**VIEW, "propensity": [2**64] * len(VIEW["shown"])}, reasons.BAD_PROPENSITY),
        ({**VIEW, "shown": ["p"] * 1_001}, reasons.TOO_LARGE),
        ({**VIEW, "clicked": ["nothing"]}, reasons.BAD_CLICKED_ID),
        ({"event": "click", "ts": TS, "object": "p"}, reasons.MISSING_FIELD),
        ({**VIEW, "query": None}, reasons.MISSING_FIELD),
    ],
)
def test_a_bad_record_is_dropped_and_the_next_one_read(said: Any, reason: str) -> None:
    bad, good = read(said, {**VIEW, "impression": "other"})
    assert isinstance(bad, Dropped)
    assert bad.reason == reason
    assert isinstance(good, Impression)


def test_other_events_are_ignored() -> None:
    (found,) = read({"event": "scroll", "ts": TS})
    assert isinstance(found, Ignored)
