"""Paths reach the same values in columns of pyarrow as in rows that were JSON."""

from __future__ import annotations

import json
from typing import Any

import pyarrow
import pytest

from streams.feed.items import BadItemError
from streams.feed.mapping.paths import NoSuchFieldError, RowByRow, column_at, parse_path, value_at

PARAMETERS = [
    [{"key": "q", "value": {"s": "lamp", "i": None}}, {"key": "n", "value": {"s": None, "i": 7}}],
    [{"key": "n", "value": {"s": None, "i": 8}}, {"key": "n", "value": {"s": None, "i": 9}}],
    [],
    None,
    [{"key": "q", "value": None}, {"key": "other", "value": {"s": "x", "i": None}}],
]
ITEMS = [
    [{"id": "a", "tags": {"first": "x"}}, {"id": "b", "tags": None}, {"id": "c", "tags": {"first": "z"}}],
    [],
    None,
    [{"id": None, "tags": {"first": "w"}}],
    [{"id": "d", "tags": None}, None, {"id": "e", "tags": None}],
]
ROWS: list[Any] = [
    {"p": p, "items": i, "deep": {"in": {"n": n}}} for n, (p, i) in enumerate(zip(PARAMETERS, ITEMS))
]
ROWS[3]["deep"] = None
KIND = pyarrow.struct(
    [
        (
            "p",
            pyarrow.list_(
                pyarrow.struct(
                    [
                        ("key", pyarrow.string()),
                        ("value", pyarrow.struct([("s", pyarrow.string()), ("i", pyarrow.int64())])),
                    ]
                )
            ),
        ),
        (
            "items",
            pyarrow.list_(
                pyarrow.struct(
                    [("id", pyarrow.string()), ("tags", pyarrow.struct([("first", pyarrow.string())]))]
                )
            ),
        ),
        ("deep", pyarrow.struct([("in", pyarrow.struct([("n", pyarrow.int64())]))])),
    ]
)

PATHS = ["p[n]", "p[q]", "p[none]", "items[0].id", "items[1].id", "items[2].tags.first", "items[].id"]
PATHS.append("deep.in.n")


def plain(values: list[Any]) -> list[Any]:
    """Values to compare: those of parameters are text in a column, for their kinds differ."""
    return [str(value) if type(value) is int else (None if value == [] else value) for value in values]


@pytest.mark.parametrize("text", PATHS)
@pytest.mark.parametrize("start", [0, 2])
def test_columns_and_rows_agree(text: str, start: int) -> None:
    steps = parse_path(text).alternatives[0]
    rows = [*ROWS, *ROWS]
    column = pyarrow.array(rows, type=KIND).slice(start)
    expected = plain([value_at(row, steps) for row in rows[start:]])
    assert plain(column_at(column, steps).to_pylist()) == expected
    assert any(expected) or text == "p[none]"


def test_what_stands_there() -> None:
    def at(text: str) -> list[Any]:
        return [value_at(row, parse_path(text).alternatives[0]) for row in ROWS]

    assert at("p[n]") == [7, 8, None, None, None]
    assert at("p[q]") == ["lamp", None, None, None, None]
    assert at("items[1].id") == ["b", None, None, None, None]
    assert at("items[].id") == [["a", "b", "c"], [], None, [None], ["d", None, "e"]]
    assert at("deep.in.n") == [0, 1, 2, None, 4]


def test_json_in_text_and_maps() -> None:
    steps = parse_path("items[0].id").alternatives[0]
    assert value_at({"items": json.dumps(ITEMS[0])}, steps) == "a"
    assert value_at({"items": ""}, steps) is None
    with pytest.raises(RowByRow):
        column_at(pyarrow.array(["[]"]), steps[1:])
    with pytest.raises(BadItemError, match="no JSON"):
        value_at({"items": "[torn"}, steps)
    with pytest.raises(BadItemError, match=r"'x' has no \[0\]|no JSON"):
        value_at({"items": "x"}, steps)
    named = parse_path("p[q]").alternatives[0]
    assert value_at({"p": {"q": 3}}, named) == 3
    maps = pyarrow.array([[("q", 3), ("n", 1)], None], pyarrow.map_(pyarrow.string(), pyarrow.int64()))
    assert column_at(maps, named[1:]).to_pylist() == [3, None]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("items.id", r"write \[0\]\.id"),
        ("deep.out", "it has in"),
        ("deep.in.n.x", "int64"),
        ("items[id]", "no key"),
    ],
)
def test_a_column_that_has_it_not_says_what_it_has(text: str, said: str) -> None:
    with pytest.raises(NoSuchFieldError, match=said):
        column_at(pyarrow.array(ROWS, type=KIND), parse_path(text).alternatives[0])


@pytest.mark.parametrize("text", ["", ".a", "a.", "a..b", "[0]", "a b [", "a[b]c", "a[].b[]", "a | ", "a]"])
def test_what_is_no_path(text: str) -> None:
    with pytest.raises(ValueError, match=r"path|name|bracket|dot|twice"):
        parse_path(text)


def test_names_with_spaces_and_marks() -> None:
    path = parse_path(" Event Name | $set.term_1? ")
    assert path.optional
    assert [[step.name for step in steps] for steps in path.alternatives] == [
        ["Event Name"],
        ["$set", "term_1"],
    ]
