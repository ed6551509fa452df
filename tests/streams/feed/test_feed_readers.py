"""Readers: good lines become items, each bad one is dropped with place and reason, none stops the rest."""

from __future__ import annotations

import gzip
import io
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from streams.codec import encode_event, encode_impression
from streams.event import PAIR_NAMES, Event, Impression, ObjectRef, SparseVector
from streams.feed import inputs
from streams.feed import items as reasons
from streams.feed.formats import read_sources
from streams.feed.items import Dropped, FeedError, Item
from streams.feed.options import ReaderOptions, RelevanceOptions

from .feed_builders import OPTIONS, impression, write_lines

TRIPLET = {"q": "q", "c": "c", "s": "s", "id": "t1", "ts": 7}
SHOWN = {"id": "i1", "ts": 7, "q": "q", "shown": ["a", "b", "c"], "clicked": [2]}


def read(path: str, format_: str | None = None, options: ReaderOptions = OPTIONS) -> list[tuple[str, Item]]:
    return list(read_sources([path], options, format_))


def read_one(tmp_path: Path, line: Any, good: dict[str, Any]) -> Item:
    """The item of one line standing between two good ones, which must come through."""
    before, after = ({**good, "id": name} for name in ("before", "after"))
    path = write_lines(tmp_path / "log.jsonl", [before, line, after])
    items = read(path)
    assert [items[0][1].id, items[2][1].id] == ["before", "after"]
    assert items[1][0] == f"{path}:2"
    return items[1][1]


def test_triplet_fields(tmp_path: Path) -> None:
    line = {
        **TRIPLET,
        "w": 2.5,
        "src": "web",
        "imp": "i",
        "prop": 0.5,
        "sp": "s1",
        "ts": "2024-05-16T12:00:00Z",
    }
    ids = (ObjectRef(id=name) for name in "qcs")
    assert read_one(tmp_path, line, TRIPLET) == Event("t1", 1715860800000, *ids, 2.5, "web", "i", 0.5, "s1")


@pytest.mark.parametrize("name", PAIR_NAMES)
def test_a_triplet_says_where_its_skipped_object_stood(tmp_path: Path, name: str) -> None:
    assert read_one(tmp_path, {**TRIPLET, "pair": name}, TRIPLET).pair == PAIR_NAMES[name]


@pytest.mark.parametrize("given", ["beneath", "", 1, None, ["above"]])
def test_where_it_stood_is_one_of_three_words(tmp_path: Path, given: Any) -> None:
    dropped = read_one(tmp_path, {**TRIPLET, "pair": given}, TRIPLET)
    assert isinstance(dropped, Dropped)
    assert (dropped.reason, dropped.detail) == (reasons.WRONG_TYPE, "pair is none of above, below, random")


@pytest.mark.parametrize("good", [TRIPLET, SHOWN], ids=["triplet", "impression"])
def test_a_key_is_the_line_s_own_or_that_of_the_options(tmp_path: Path, good: dict[str, Any]) -> None:
    path = write_lines(tmp_path / "log.jsonl", [{**good, "id": "a", "key": "own"}, {**good, "id": "b"}])
    assert [item.key for _, item in read(path)] == ["own", None]
    assert [item.key for _, item in read(path, options=replace(OPTIONS, key="all"))] == ["own", "all"]


def test_inline_features(tmp_path: Path) -> None:
    line = {
        "q": {"x": [1, 2.5]},
        "c": {"id": "c", "x": {"indices": [0, 7], "values": [1, 2]}},
        "s": {"views": {"a": [1.0], "b": {"indices": [], "values": []}}},
    }
    event = read_one(tmp_path, line, TRIPLET)
    assert isinstance(event, Event)
    assert event.ts == OPTIONS.now_ms
    assert event.query.x.dtype == np.float32
    assert event.query.x.tolist() == [1.0, 2.5]
    assert isinstance(event.clicked.x, SparseVector)
    assert (event.clicked.id, event.clicked.x.indices.tolist(), event.clicked.x.values.tolist()) == (
        "c",
        [0, 7],
        [1.0, 2.0],
    )
    assert set(event.skipped.views) == {"a", "b"}
    encode_event(event)


def test_triplets_without_id_get_one_that_lasts_and_is_their_own(tmp_path: Path) -> None:
    bare = {"q": "q", "c": "c", "s": "s"}
    path = write_lines(tmp_path / "log.jsonl", [bare, bare, {**bare, "s": "t"}])
    ids = [item.id for _, item in read(path)]
    assert len(set(ids)) == 3
    assert ids == [item.id for _, item in read(path)]


BAD_TRIPLETS: list[tuple[Any, str]] = [
    ("{nonsense", reasons.NOT_JSON),
    ("[1, 2]", reasons.NOT_JSON),
    ("[" * 100_000, reasons.NOT_JSON),
    (b'{"q": "\xff"}', reasons.NOT_UTF8),
    ({"q": "q", "c": "c"}, reasons.MISSING_FIELD),
    ({**TRIPLET, "weigth": 2}, reasons.UNKNOWN_FIELD),
    ({**TRIPLET, "id": 3}, reasons.WRONG_TYPE),
    ({**TRIPLET, "id": ""}, reasons.WRONG_TYPE),
    ({**TRIPLET, "ts": -1}, reasons.BAD_TIMESTAMP),
    ({**TRIPLET, "ts": "yesterday"}, reasons.BAD_TIMESTAMP),
    ({**TRIPLET, "ts": True}, reasons.BAD_TIMESTAMP),
    ({**TRIPLET, "ts": "0001-01-01T00:00:00"}, reasons.BAD_TIMESTAMP),
    ({**TRIPLET, "w": 0}, reasons.BAD_WEIGHT),
    ('{"q": "q", "c": "c", "s": "s", "w": NaN}', reasons.BAD_WEIGHT),
    ({**TRIPLET, "prop": 1.5}, reasons.BAD_PROPENSITY),
    ({**TRIPLET, "q": 12}, reasons.NOT_AN_OBJECT),
    ({**TRIPLET, "q": ""}, reasons.NOT_AN_OBJECT),
    ({**TRIPLET, "q": {}}, reasons.NOT_AN_OBJECT),
    ({**TRIPLET, "q": {"x": [1], "views": {"a": [1]}}}, reasons.NOT_AN_OBJECT),
    ({**TRIPLET, "q": {"views": {}}}, reasons.NOT_AN_OBJECT),
    ({**TRIPLET, "q": {"features": [1]}}, reasons.UNKNOWN_FIELD),
    ({**TRIPLET, "q": {"x": "abc"}}, reasons.BAD_VECTOR),
    ({**TRIPLET, "q": {"x": [1, "2"]}}, reasons.BAD_VECTOR),
    ({**TRIPLET, "q": {"x": [1, True]}}, reasons.BAD_VECTOR),
    ({**TRIPLET, "q": {"x": {"indices": [1]}}}, reasons.BAD_VECTOR),
    ({**TRIPLET, "q": {"x": {"indices": [1], "values": []}}}, reasons.BAD_VECTOR),
    ({**TRIPLET, "q": {"x": {"indices": [2, 2], "values": [1, 1]}}}, reasons.BAD_VECTOR),
    ({**TRIPLET, "q": {"x": {"indices": [-1], "values": [1]}}}, reasons.BAD_VECTOR),
    ({**TRIPLET, "q": {"x": {"indices": [2**31], "values": [1]}}}, reasons.BAD_VECTOR),
    ({**TRIPLET, "q": {"x": [1e39]}}, reasons.NOT_FINITE),
    ({**TRIPLET, "q": {"x": [10**400]}}, reasons.NOT_FINITE),
    ('{"q": {"x": [Infinity]}, "c": "c", "s": "s"}', reasons.NOT_FINITE),
]


@pytest.mark.parametrize(("line", "reason"), BAD_TRIPLETS, ids=lambda value: str(value)[:60])
def test_bad_triplets(tmp_path: Path, line: Any, reason: str) -> None:
    item = read_one(tmp_path, line, TRIPLET)
    assert isinstance(item, Dropped)
    assert item.reason == reason
    assert item.detail


def test_impression_fields(tmp_path: Path) -> None:
    line = {**SHOWN, "clicked": ["c", 0, 2], "prop": [1, 0.7, 0.5], "src": "web", "sp": "s1"}
    shown = tuple(ObjectRef(id=name) for name in "abc")
    assert read_one(tmp_path, line, SHOWN) == Impression(
        "i1", 7, ObjectRef(id="q"), shown, (0, 2), (1.0, 0.7, 0.5), "web", "s1"
    )


BAD_IMPRESSIONS: list[tuple[dict[str, Any], str]] = [
    ({"id": None}, reasons.MISSING_ID),
    ({"id": 4}, reasons.WRONG_TYPE),
    ({"shown": []}, reasons.NO_SHOWN),
    ({"shown": "abc"}, reasons.WRONG_TYPE),
    ({"shown": ["a", 2]}, reasons.NOT_AN_OBJECT),
    ({"clicked": 2}, reasons.WRONG_TYPE),
    ({"clicked": [3]}, reasons.BAD_CLICKED_RANK),
    ({"clicked": [-1]}, reasons.BAD_CLICKED_RANK),
    ({"clicked": [True]}, reasons.BAD_CLICKED_RANK),
    ({"clicked": ["z"]}, reasons.BAD_CLICKED_ID),
    ({"prop": [1, 1]}, reasons.BAD_PROPENSITY),
    ({"prop": [1, 0, 1]}, reasons.BAD_PROPENSITY),
    ({"prop": [1, 10**400, 1]}, reasons.BAD_PROPENSITY),
    ({"click": [1]}, reasons.UNKNOWN_FIELD),
]


@pytest.mark.parametrize(("change", "reason"), BAD_IMPRESSIONS)
def test_bad_impressions(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    item = read_one(tmp_path, {**SHOWN, **change}, SHOWN)
    assert isinstance(item, Dropped)
    assert item.reason == reason


@pytest.mark.parametrize("reason", sorted({reason for _, reason in (*BAD_TRIPLETS, *BAD_IMPRESSIONS)}))
def test_every_reason_has_a_remedy(reason: str) -> None:
    assert reasons.remedy(reason)


def test_a_line_beyond_the_limit_is_dropped_and_the_next_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "MAX_LINE_BYTES", 200)
    item = read_one(tmp_path, {**TRIPLET, "src": "x" * 1000}, TRIPLET)
    assert isinstance(item, Dropped)
    assert item.reason == reasons.TOO_LONG


def test_blank_lines_are_no_items_but_count_as_lines(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "log.jsonl", ["", "  ", TRIPLET, "", SHOWN])
    assert [place for place, _ in read(path)] == [f"{path}:3", f"{path}:5"]


def test_gzip_is_told_from_the_content(tmp_path: Path) -> None:
    plain = Path(write_lines(tmp_path / "plain", [TRIPLET, SHOWN]))
    packed = tmp_path / "packed.jsonl"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert [item for _, item in read(str(packed))] == [item for _, item in read(str(plain))]


def test_a_gzip_file_cut_short_is_an_error_after_what_came_before(tmp_path: Path) -> None:
    lines = b"".join(b'{"q":"q%d","c":"c","s":"s"}\n' % number for number in range(20_000))
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(lines)[:-200])
    before: list[object] = []
    with pytest.raises(FeedError, match=r"cut.gz:\d+: cannot be read"):
        before.extend(read_sources([str(path)], OPTIONS))
    assert len(before) > 1000


def test_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BufferedReader(io.BytesIO(b'\n{"q":"q","c":"c","s":"s"}\n{bad\n'))

    monkeypatch.setattr(sys, "stdin", Stdin())
    items = read("-")
    assert [place for place, _ in items] == ["stdin:2", "stdin:3"]
    assert isinstance(items[0][1], Event)
    assert isinstance(items[1][1], Dropped)


@pytest.mark.parametrize("packed", [False, True])
def test_a_pipe_is_read_once_from_its_beginning(tmp_path: Path, packed: bool) -> None:
    lines = b'{"q":"q","c":"c","s":"s"}\n{"q":"r","c":"c","s":"s"}\n'
    reading, writing = os.pipe()
    try:
        os.write(writing, gzip.compress(lines) if packed else lines)
        os.close(writing)
        items = [item for _, item in read(f"/dev/fd/{reading}")]
    finally:
        os.close(reading)
    assert [item.query.id for item in items if isinstance(item, Event)] == ["q", "r"]


def test_a_closed_stdin_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(FeedError, match="standard input is closed"):
        read("-")


def test_msgpack_events_and_impressions(tmp_path: Path) -> None:
    dense = ObjectRef(x=np.array([1.0, 2.0], np.float32))
    event = Event("t", 5, dense, ObjectRef(id="c"), ObjectRef(id="s"), 2.0)
    first, second = encode_event(event), encode_impression(impression("i"))
    path = tmp_path / "log.msgpack"
    path.write_bytes(first + second + first)
    items = read(str(path))
    assert [place for place, _ in items] == [
        f"{path}:byte {at}" for at in (0, len(first), len(first) + len(second))
    ]
    assert items[1][1] == impression("i")
    assert encode_event(items[2][1]) == first


def test_bad_msgpack(tmp_path: Path) -> None:
    good = encode_event(Event("t", 5, *(ObjectRef(id=name) for name in "qcs")))
    poison = msgpack.packb({"v": 1, "id": "t", "ts": 5, "q": {"id": "q"}, "c": {"id": "c"}})
    path = tmp_path / "log.msgpack"
    path.write_bytes(good + poison + msgpack.packb([1]) + good + good[:-3])
    items = [item for _, item in read(str(path))]
    assert [type(item) for item in items] == [Event, Dropped, Dropped, Event, Dropped]
    assert [item.reason for item in items if isinstance(item, Dropped)] == [
        "malformed:missing_field",
        reasons.WRONG_TYPE,
        reasons.NOT_MSGPACK,
    ]
    path.write_bytes(good + b"\xc1" + good)
    assert [type(item) for _, item in read(str(path))] == [Event, Dropped]


TABLE = "query\tobject\tcount\nred\ta\t3\nred\tb\t1\nblue\tc\t2\nblue\td\t2\nred\ta\t1\n"


@pytest.mark.parametrize("pairs", ["items", "queries", "co_click"])
def test_relevance_tables(tmp_path: Path, pairs: str) -> None:
    path = tmp_path / "table.tsv"
    path.write_text(TABLE + "torn\trow\n" + "red\ta\t-1\n")
    options = ReaderOptions(9, relevance=RelevanceOptions(triplets=300, pairs=pairs, share=1.0))
    items = [item for _, item in read(str(path), None, options)]
    assert [item.reason for item in items if isinstance(item, Dropped)] == [reasons.BAD_ROW] * 2
    events = [item for item in items if isinstance(item, Event)]
    assert len({event.id for event in events}) == len(events) == 300
    together = {frozenset("ab"), frozenset("cd")}
    for event in events:
        if pairs == "queries":
            groups = {"red": "ab", "blue": "cd"}[event.query.id]
            assert event.clicked.id in groups
            assert event.skipped.id not in groups
        else:
            assert frozenset((event.query.id, event.clicked.id)) in together
            assert frozenset((event.query.id, event.skipped.id)) not in together
    assert items == [item for _, item in read(str(path), "relevance", options)]


def test_a_relevance_table_without_a_negative_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "table.tsv"
    path.write_text("red\ta\t3\nred\tb\t1\n")
    with pytest.raises(FeedError, match="nothing can be drawn"):
        read(str(path))


def test_what_cannot_be_read_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    empty, odd, events = (tmp_path / name for name in ("empty", "odd", "events"))
    empty.write_bytes(b"")
    odd.write_text('{"user": "u", "page": "/"}\n')
    events.write_text('{"action_name": "click", "query_id": "1"}\n')
    for path, message in (
        (tmp_path / "missing", "does not exist"),
        (tmp_path, "is a folder"),
        (empty, "is empty"),
        (odd, "any format known"),
        (events, "without queries"),
    ):
        with pytest.raises(FeedError, match=message) as caught:
            read(str(path))
        assert caught.value.remedy
    with pytest.raises(FeedError, match="unknown format"):
        read(str(odd), "jsonl")
    with pytest.raises(FeedError, match="UBI queries or events"):
        read(str(odd), "ubi")


def test_a_named_format_is_taken_at_its_word(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "log", ["{nonsense", SHOWN])
    with pytest.raises(FeedError):
        read(path)
    assert [type(item) for _, item in read(path, "impressions")] == [Dropped, Impression]
