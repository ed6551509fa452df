"""Rows of other tools through a mapping: every kind of rows and of file gives the same lists."""

from __future__ import annotations

import csv
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest

from streams.event import Event, Impression
from streams.feed import items as reasons
from streams.feed.formats import read_sources
from streams.feed.items import Dropped, FeedError, Ignored, Placed
from streams.feed.mapping import rows as rows_module

from .feed_builders import OPTIONS

Row = dict[str, Any]


def write(path: Path, rows: Sequence[Row]) -> str:
    """Rows as a file of the kind that its name says; in CSV lists are JSON."""
    kind = path.suffix
    if kind == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path, row_group_size=64)
    elif kind == ".arrow":
        pyarrow.feather.write_feather(pyarrow.Table.from_pylist(list(rows)), path, compression="uncompressed")
    elif kind == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with path.open("w", newline="") as file:
            names = list(dict.fromkeys(name for row in rows for name in row))
            table = csv.writer(file, delimiter="\t" if kind == ".tsv" else ",")
            table.writerow(names)
            table.writerows([cell(row.get(name)) for name in names] for row in rows)
    return str(path)


def cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value


def feed(tmp_path: Path, mapping: str, *paths: str) -> list[Placed]:
    """What comes of files; `mapping` is TOML or a name."""
    if "\n" in mapping:
        (tmp_path / "mapping.toml").write_text(mapping)
        mapping = str(tmp_path / "mapping.toml")
    return list(read_sources(paths, replace(OPTIONS, mapping=mapping)))


def impressions(placed: Sequence[Placed]) -> dict[str, tuple[Any, ...]]:
    """(time, query, shown, clicked) by id."""
    return {
        item.id: (item.ts, item.query.id, [one.id for one in item.shown], item.clicked)
        for _, item in placed
        if isinstance(item, Impression)
    }


def others(placed: Sequence[Placed]) -> Counter[str]:
    return Counter(item.reason for _, item in placed if isinstance(item, Dropped | Ignored))


KINDS = ("parquet", "arrow", "csv", "tsv", "jsonl")
LISTS: dict[str, tuple[Any, ...]] = {
    f"i{number}": (
        1_700_000_000_000 + number,
        f"q{number % 7}",
        [f"p{(number * 7 + rank) % 50:02}" for rank in range(2 + number % 5)],
        (number % 2, 1) if number % 4 == 0 else ((1,) if number % 3 else ()),
    )
    for number in range(300)
}
LISTS = {name: (*one[:3], tuple(sorted(set(one[3])))) for name, one in LISTS.items()}

WHOLE = """
rows = "impressions"
id = "id"
time = "ts"
query = "q"
shown = "results"
clicked_positions = "clicks"
first_position = 1
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_an_impression(tmp_path: Path, kind: str) -> None:
    rows = [
        {"id": name, "ts": ts, "q": f" {query} ", "results": shown, "clicks": [rank + 1 for rank in clicked]}
        for name, (ts, query, shown, clicked) in LISTS.items()
    ]
    placed = feed(tmp_path, WHOLE, write(tmp_path / f"t.{kind}", rows))
    assert impressions(placed) == LISTS
    assert not others(placed)
    assert placed[1][0].endswith(":2" if kind == "jsonl" else ":row 2")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("clicks", "key"),
    [
        (["p2", None, "p1", "p9"], "clicked"),
        ([2, None, 1, 9], "clicked"),
        ([1, None, 0, 3], "clicked_positions"),
        ([1.0, None, 0.0, 0.5], "clicked_positions"),
    ],
    ids=["ids", "whole numbers", "places", "places with a point"],
)
def test_a_click_that_is_no_list_is_a_single_one(
    tmp_path: Path, kind: str, clicks: list[Any], key: str
) -> None:
    mapping = WHOLE.replace("first_position = 1", "").replace("clicked_positions", key)
    shown = [1, 2, 3] if clicks[0] == 2 else ["p1", "p2", "p3"]
    rows = [
        {"id": f"i{n}", "ts": 5, "q": "q", "results": shown, "clicks": one} for n, one in enumerate(clicks)
    ]
    placed = feed(tmp_path, mapping, write(tmp_path / f"t.{kind}", rows))
    assert [one[3] for one in impressions(placed).values()] == [(1,), (), (0,)]
    wrong = reasons.BAD_CLICKED_ID if key == "clicked" else reasons.BAD_CLICKED_RANK
    assert others(placed) == {wrong: 1}


def test_what_is_no_id_is_no_click_and_a_list_that_was_shown_is_no_single_id(tmp_path: Path) -> None:
    rows = [
        {"id": f"i{n}", "ts": 5, "q": "q", "results": shown, "clicks": clicks}
        for n, (shown, clicks) in enumerate(
            [(["a"], [["a"]]), (["a"], True), (["a"], 0.5), ("a", "a"), (["a", "b"], " a "), (["a"], " ")]
        )
    ]
    placed = feed(tmp_path, WHOLE.replace("clicked_positions", "clicked"), write(tmp_path / "t.jsonl", rows))
    assert {name: one[3] for name, one in impressions(placed).items()} == {"i4": (0,), "i5": ()}
    assert others(placed) == {reasons.WRONG_TYPE: 4}


@pytest.mark.parametrize("kind", [pyarrow.string(), pyarrow.large_string()])
@pytest.mark.parametrize("column", ["id", "q", "results"])
def test_a_row_that_is_not_utf_8_is_dropped_and_the_others_are_read(
    tmp_path: Path, column: str, kind: Any
) -> None:
    rows = [
        {"id": f"i{row}", "ts": 1_700_000_000_000, "q": "q", "results": '["a", "b"]', "clicks": "[1]"}
        for row in range(3)
    ]
    table = pyarrow.Table.from_pylist(rows)
    cells = [row[column].encode() for row in rows]
    cells[1] = b"\xe9" + cells[1]
    bad = pyarrow.array(cells, pyarrow.large_binary() if kind == pyarrow.large_string() else pyarrow.binary())
    table = table.set_column(table.column_names.index(column), column, bad.view(kind))
    pyarrow.parquet.write_table(table, tmp_path / "log.parquet")
    placed = feed(tmp_path, WHOLE, str(tmp_path / "log.parquet"))
    assert set(impressions(placed)) == {"i0", "i2"}
    assert [(place.rsplit(" ")[-1], item.reason) for place, item in placed if isinstance(item, Dropped)] == [
        ("2", reasons.NOT_UTF8)
    ]


def test_clicked_ids_propensities_sources_and_keys(tmp_path: Path) -> None:
    mapping = """
rows = "impressions"
time = "at"
time_unit = "s"
query = "q"
shown = "results"
clicked = "clicks"
propensity = "prop"
source = "app"
key = "tenant"
separator = "|"
where.country = ["de", "at"]
"""
    rows = [
        {"at": 1_700_000_000, "q": 7, "results": "a|b|c", "clicks": "c|a", "prop": "1|.5|0.25", "app": "web"},
        {"at": 1_700_000_000, "q": 7, "results": "a|b", "clicks": "x", "prop": "1|1"},
        {"at": 1_700_000_000, "q": 7, "results": "a|b", "clicks": "", "prop": "1|2"},
        {"at": 1_700_000_000, "q": 7, "results": "", "clicks": "", "prop": ""},
        {"at": 1_700_000_000, "q": "", "results": "a|b", "clicks": "a", "prop": "1|1"},
        {"at": "soon", "q": 7, "results": "a|b", "clicks": "a", "prop": "1|1"},
    ]
    rows = [{**row, "country": "at", "tenant": "anna"} for row in rows]
    rows += [{**rows[0], "country": "fr"}, rows[0]]
    placed = feed(tmp_path, mapping, write(tmp_path / "t.csv", rows))
    found = [item for _, item in placed if isinstance(item, Impression)]
    assert len(found) == 2
    assert found[0].id == found[1].id  # made of what they say: the same list twice is a duplicate
    (one,) = {replace(item, id="") for item in found}
    assert (one.ts, one.query.id, one.clicked) == (1_700_000_000_000, "7", (0, 2))
    assert (one.propensity, one.source, one.key) == ((1.0, 0.5, 0.25), "web", "anna")
    expected = (
        reasons.BAD_CLICKED_ID,
        reasons.BAD_PROPENSITY,
        reasons.NO_SHOWN,
        reasons.MISSING_FIELD,
        reasons.BAD_TIMESTAMP,
        reasons.OTHER_ROW,
    )
    assert others(placed) == dict.fromkeys(expected, 1)
    where = {item.reason: place for place, item in placed if isinstance(item, Dropped | Ignored)}
    assert where[reasons.BAD_TIMESTAMP].endswith("t.csv:row 6")
    assert where[reasons.OTHER_ROW].endswith("t.csv:row 7")


def test_words_that_look_like_nothing_are_words(tmp_path: Path) -> None:
    words = ["nan", "NA", "null", "007", "1e5"]
    rows = [{"id": word, "ts": 5, "q": word, "results": words, "clicks": [2]} for word in words]
    for kind in KINDS:
        found = impressions(feed(tmp_path, WHOLE, write(tmp_path / f"t.{kind}", rows)))
        assert found == {word: (5, word, words, (1,)) for word in words}


OBJECTS = """
rows = "shown"
id = ["session", "search"]
time = "ts"
query = "q"
object = "sku"
position = "rank"
window = 20
[click]
where.clicked = true
"""


def object_rows() -> list[Row]:
    return [
        {
            "session": name,
            "search": 1,
            "ts": ts,
            "q": query,
            "sku": sku,
            "rank": rank,
            "clicked": rank in clicked,
        }
        for name, (ts, query, shown, clicked) in LISTS.items()
        for rank, sku in enumerate(shown)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_a_shown_object(tmp_path: Path, kind: str) -> None:
    """Sorted by impression, the objects of each in any order."""
    rows = object_rows()
    random.Random(0).shuffle(rows)
    rows.sort(key=lambda row: row["session"])
    placed = feed(tmp_path, OBJECTS, write(tmp_path / f"t.{kind}", rows))
    assert sorted(impressions(placed).values()) == sorted(LISTS.values())
    assert not others(placed)


def test_rows_that_come_after_their_impression_left_the_window_are_told(tmp_path: Path) -> None:
    rows = object_rows()
    late = [row for row in rows if row["session"] in {"i3", "i250"} and row["rank"] == 0]
    rows = [row for row in rows if row not in late] + late
    placed = feed(tmp_path, OBJECTS, write(tmp_path / "t.parquet", rows))
    told = [(place, item) for place, item in placed if isinstance(item, Ignored)]
    assert [item.reason for _, item in told] == [reasons.AFTER_WINDOW] * 2
    assert told[0][0].endswith(f":row {len(rows) - 1}")
    wide = feed(tmp_path, OBJECTS.replace("20", "1000"), write(tmp_path / "t.parquet", rows))
    assert sorted(impressions(wide).values()) == sorted(LISTS.values())


@pytest.mark.parametrize("said", ["true", "1", '["yes", 1]', '"*"', "1.0"])
@pytest.mark.parametrize("written", [("1.0", "0.0"), ("1", ""), ("True", "False"), ("yes", "")])
def test_what_where_compares(tmp_path: Path, said: str, written: tuple[str, str]) -> None:
    """Truth values and numbers as they stand in CSV; `*` is whatever is not empty."""
    rows = [{"session": "s", "search": 1, "ts": 5, "q": "q", "rank": 0} for _ in written]
    rows = [{**row, "sku": text or "none", "clicked": text} for row, text in zip(rows, written, strict=True)]
    mapping = OBJECTS.replace("where.clicked = true", f"where.clicked = {said}")
    texts = {"true": {"True"}, "1": {"1", "1.0"}, "1.0": {"1", "1.0"}, '["yes", 1]': {"yes", "1", "1.0"}}
    hits = tuple(rank for rank, text in enumerate(written) if text in texts.get(said, {text or "something"}))
    path = write(tmp_path / "t.csv", rows)
    if not hits:
        with pytest.raises(FeedError, match="none is a click"):
            feed(tmp_path, mapping, path)
        return
    ((_, _, _, clicked),) = impressions(feed(tmp_path, mapping, path)).values()
    assert clicked == hits


def test_alternatives_are_empty_only_together(tmp_path: Path) -> None:
    mapping = WHOLE.replace('query = "q"', 'query = "q | term"') + 'where."kind | type" = ""\n'
    common = {"ts": 5, "results": ["a", "b"], "clicks": [2]}
    rows = [
        {"id": "1", "q": None, "term": "second", "kind": None, "type": None, **common},
        {"id": "2", "q": "first", "term": "second", "kind": None, "type": "ad", **common},
        {"id": "3", "q": "first", "term": "second", "kind": "", "type": "", **common},
    ]
    for kind in ("parquet", "jsonl", "csv"):
        placed = feed(tmp_path, mapping, write(tmp_path / f"t.{kind}", rows))
        assert {name: one[1] for name, one in impressions(placed).items()} == {"1": "second", "3": "first"}
        assert others(placed) == {reasons.OTHER_ROW: 1}


def test_an_impression_stays_open_while_pieces_come(tmp_path: Path) -> None:
    rows = object_rows()
    first = rows[0]
    spread = [{**first, "sku": f"x{number:03}", "rank": number} for number in range(0, len(rows), 10)]
    rows = [row for row in rows if row["session"] != "i0"]
    for number, row in enumerate(spread):
        rows.insert(number * 10, row)
    placed = feed(tmp_path, OBJECTS, write(tmp_path / "t.parquet", rows))
    assert [row["sku"] for row in spread] in [shown for _, _, shown, _ in impressions(placed).values()]
    assert not others(placed)


EVENTS = """
rows = "events"
time = "at"
query = "detail.q"
id = "list_id"
window = 100
[impression]
where.type = ["view", "impression"]
shown = "detail.items[].sku"
[click]
where.type = "click"
object = "detail.items[0].sku"
"""


def events() -> list[Row]:
    """Impressions, clicks and other rows, in the order of time; a click comes up to a minute later."""
    draw, made = random.Random(1), []
    for name, (ts, query, shown, clicked) in LISTS.items():
        at = ts + 1_000 * int(name[1:])
        items = [{"sku": sku} for sku in shown]
        made.append({"type": "view", "at": at, "list_id": name, "detail": {"q": query, "items": items}})
        made.append({"type": "scroll", "at": at + 1, "list_id": name, "detail": {"q": None, "items": []}})
        for rank in clicked:
            later = {"type": "click", "at": at + draw.randrange(2, 60_000), "list_id": name}
            made.append({**later, "detail": {"q": None, "items": [items[rank]]}})
    return sorted(made, key=lambda row: row["at"])


def expected_of_events() -> dict[str, tuple[Any, ...]]:
    return {name: (ts + 1_000 * int(name[1:]), *rest) for name, (ts, *rest) in LISTS.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_impressions_and_clicks_apart(tmp_path: Path, kind: str) -> None:
    """In CSV, structs are JSON in a cell."""
    placed = feed(tmp_path, EVENTS, write(tmp_path / f"t.{kind}", events()))
    assert impressions(placed) == expected_of_events()
    assert others(placed) == {reasons.OTHER_ROW: len(LISTS)}


def test_several_files_are_read_side_by_side_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clicks first, a window far smaller than a file: only by time do they meet their impressions."""
    monkeypatch.setattr(rows_module, "LINES", 20)
    rows = events()
    clicks = write(tmp_path / "clicks.jsonl", [row for row in rows if row["type"] == "click"])
    views = write(tmp_path / "views.jsonl", [row for row in rows if row["type"] == "view"])
    assert impressions(feed(tmp_path, EVENTS, clicks, views)) == expected_of_events()


def test_a_folder_of_parts(tmp_path: Path) -> None:
    rows, folder = events(), tmp_path / "events"
    folder.mkdir()
    for part in range(0, len(rows), 100):
        write(folder / f"part-{part:05}.parquet", rows[part : part + 100])
    assert impressions(feed(tmp_path, EVENTS, str(folder))) == expected_of_events()


SESSIONS = """
rows = "events"
time = "at"
time_unit = "s"
query = "q"
join = ["user", "session"]
within = "30m"
[impression]
where.type = "view"
shown = "items"
[click]
where.type = "click"
object = "item"
"""


def view(at: int, query: str, items: list[str], user: str = "u") -> Row:
    return {"type": "view", "at": at, "q": query, "items": items, "item": None, "user": user, "session": 7}


def click(at: int, item: str, user: str = "u") -> Row:
    return {"type": "click", "at": at, "q": None, "items": None, "item": item, "user": user, "session": 7}


def by_query(placed: Sequence[Placed]) -> dict[Any, Any]:
    return {(ts // 1000, query): clicked for ts, query, _, clicked in impressions(placed).values()}


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_a_click_without_an_id_belongs_to_the_latest_list_of_its_session_that_showed_it(
    tmp_path: Path, kind: str
) -> None:
    rows = [
        view(100, "first", ["a", "b", "c"]),
        view(200, "second", ["b", "c", "d"]),
        view(200, "other user", ["a", "b"], "v"),
        click(250, "b"),
        click(251, "b"),
        click(260, "a"),
        click(199, "c"),
        click(270, "z"),
        click(2_000, "d"),
        click(2_001, "d"),
        click(300, "a", "nobody"),
    ]
    placed = feed(tmp_path, SESSIONS, write(tmp_path / f"t.{kind}", rows))
    assert by_query(placed) == {(100, "first"): (0, 2), (200, "second"): (0, 2), (200, "other user"): ()}
    assert others(placed) == {
        reasons.REPEATED_CLICK: 1,
        reasons.CLICK_NOT_SHOWN: 1,
        reasons.CLICK_WITHOUT_IMPRESSION: 2,
    }
    again = feed(tmp_path, SESSIONS, write(tmp_path / f"t.{kind}", rows))
    assert again == placed


def test_clicks_wait_in_bounded_number_and_none_is_lost_that_has_its_list(tmp_path: Path) -> None:
    small = SESSIONS.replace('within = "30m"', 'within = "30m"\nwindow = 4')
    rows = [view(100, "q", [f"p{number}" for number in range(40)])]
    rows += [click(101 + number, f"p{number}") for number in range(40)]
    placed = feed(tmp_path, small, write(tmp_path / "t.parquet", rows))
    assert by_query(placed) == {(100, "q"): tuple(range(40))}
    assert not others(placed)


def test_triplets(tmp_path: Path) -> None:
    mapping = """
rows = "triplets"
query = "q"
clicked = "good"
skipped = "bad"
weight = "w"
"""
    rows = [{"q": "a", "good": 1, "bad": 2, "w": 0.5}, {"q": "a", "good": 1, "bad": 2, "w": 0.5}]
    rows += [{"q": "a", "good": 1, "bad": None, "w": 1.0}, {"q": "a", "good": 1, "bad": 2, "w": -1.0}]
    placed = feed(tmp_path, mapping, write(tmp_path / "t.parquet", rows))
    found = [item for _, item in placed if isinstance(item, Event)]
    assert [(one.query.id, one.clicked.id, one.skipped.id, one.weight) for one in found] == [
        ("a", "1", "2", 0.5)
    ] * 2
    assert found[0].id != found[1].id
    assert others(placed) == {reasons.MISSING_FIELD: 1, reasons.BAD_WEIGHT: 1}
    assert feed(tmp_path, mapping, str(tmp_path / "t.parquet")) == placed


@pytest.mark.parametrize(
    ("values", "unit", "expected"),
    [
        ([1_700_000_000], "s", 1_700_000_000_000),
        ([1_700_000_000_123], "ms", 1_700_000_000_123),
        ([1_700_000_000_123_456], "us", 1_700_000_000_123),
        (["1700000000123456"], "us", 1_700_000_000_123),
        ([1_700_000_000.5], "s", 1_700_000_000_500),
        (["2023-11-14T22:13:20.123Z"], "s", 1_700_000_000_123),
        (["2023-11-14 22:13:20.123 UTC"], "ms", 1_700_000_000_123),
        (pyarrow.array([1_700_000_000_123_456], pyarrow.timestamp("us")), "s", 1_700_000_000_123),
        (
            pyarrow.array([1_700_000_000_123_456_789], pyarrow.timestamp("ns", "Europe/Berlin")),
            "s",
            1_700_000_000_123,
        ),
        (pyarrow.array([Decimal(1_700_000_000)], pyarrow.decimal128(38, 0)), "s", 1_700_000_000_000),
        (pyarrow.array([19_675], pyarrow.date32()), "s", 19_675 * 86_400_000),
    ],
)
def test_times(tmp_path: Path, values: Any, unit: str, expected: int) -> None:
    table = pyarrow.table({"ts": values, "id": ["i"], "q": ["q"], "results": [["a", "b"]], "clicks": [[1]]})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    placed = feed(tmp_path, f'time_unit = "{unit}"{WHOLE}', str(tmp_path / "t.parquet"))
    assert impressions(placed)["i"][0] == expected


def test_a_time_before_1970_or_beyond_all_numbers_is_dropped(tmp_path: Path) -> None:
    table = pyarrow.table(
        {
            "ts": pyarrow.array([-5, 2**62, None, 7], pyarrow.timestamp("s")),
            "id": ["a", "b", "c", "d"],
            "q": ["q"] * 4,
            "results": [["a", "b"]] * 4,
            "clicks": [[1]] * 4,
        }
    )
    pyarrow.feather.write_feather(table, tmp_path / "t.arrow")
    placed = feed(tmp_path, WHOLE, str(tmp_path / "t.arrow"))
    assert set(impressions(placed)) == {"d"}
    assert others(placed) == {reasons.BAD_TIMESTAMP: 2, reasons.MISSING_FIELD: 1}
    for kept in ((0, 3), (1, 3)):
        pyarrow.feather.write_feather(table.take(list(kept)), tmp_path / "t.arrow")
        placed = feed(tmp_path, WHOLE, str(tmp_path / "t.arrow"))
        assert set(impressions(placed)) == {"d"}
        assert others(placed) == {reasons.BAD_TIMESTAMP: 1}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            'query = "detail.q"',
            'query = "detail.term"',
            r"detail has no field 'term'; it has (q, items|items, q)",
        ),
        ('query = "detail.q"', 'query = "terms"', "no column 'terms'"),
        ('query = "detail.q"', 'query = "detail.items.sku"', r"write \[0\]\.sku of its first entry"),
        ('"detail.items[].sku"', '"detail.items"', "items is of type"),
        (
            'where.type = "click"',
            'where.type = "clicked"',
            r"of 900 rows none is a click: type has the values scroll \(300\), click \(300\)",
        ),
        ('where.type = "click"', "", "needs where"),
        ('id = "list_id"', "", "join is missing"),
        ('id = "list_id"', 'join = "list_id"', "join needs within"),
        ('id = "list_id"', 'id = "list_id"\nwithin = "soon"', "'soon'; write a time such as"),
        ('rows = "events"', 'rows = "rows"', "say what a row is"),
        ('time = "at"', 'tme = "at"', "tme is no key of rows = 'events'; did you mean time"),
        ('time = "at"', 'time = "at"\ntime_unit = "m"', "use one of s, ms, us, ns"),
        ('time = "at"', "time = 3", "time is 3; name a column"),
        ('query = "detail.q"', 'query = "detail..q"', "a dot that no name"),
        ('query = "detail.q"', 'query = "detail.items[].sku"', "gives a list"),
        ('query = "detail.q"', 'query = "a | b[]"', "one that is not"),
        ("[click]", "[klick]", "klick is no key"),
        ("[click]", "click", "is no TOML"),
    ],
)
def test_a_mapping_that_is_wrong_says_where(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in EVENTS
    path = write(tmp_path / "t.parquet", events())
    with pytest.raises(FeedError, match=said) as raised:
        feed(tmp_path, EVENTS.replace(old, new), path)
    assert raised.value.remedy


def test_what_nobody_mapped_is_described(tmp_path: Path) -> None:
    table = write(tmp_path / "t.parquet", events())
    with pytest.raises(FeedError, match=r"columns mean: type \(string\), at \(int64\)") as raised:
        list(read_sources([table], OPTIONS))
    assert "--show-mapping" in raised.value.remedy
    with pytest.raises(FeedError, match="it has the fields type, at, list_id, detail"):
        list(read_sources([write(tmp_path / "t.jsonl", events())], OPTIONS))
    with pytest.raises(FeedError, match="no mapping called 'ga'") as raised:
        feed(tmp_path, "ga", table)
    assert "ga4" in raised.value.remedy


def test_lines_that_are_no_rows_are_dropped_alone(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "t.jsonl", events()))
    lines = path.read_text().splitlines()
    lines[3:3] = [
        "{torn",
        "[1]",
        json.dumps({"type": "click", "at": 5, "list_id": "i1", "detail": "no JSON"}),
    ]
    path.write_text("\n".join(lines))
    placed = feed(tmp_path, EVENTS, str(path))
    assert impressions(placed) == expected_of_events()
    assert others(placed) == {reasons.OTHER_ROW: len(LISTS), reasons.NOT_JSON: 3}
