"""The mappings that come along read what their tools export: as JSON lines, as Parquet, as CSV.

The samples were recorded in the documented shapes: GA4's BigQuery export, Snowplow's enriched events with the
e-commerce entities, Segment's e-commerce spec 2 and its warehouse tables, UBI 1.3.
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from streams.event import Impression
from streams.feed import items as reasons
from streams.feed.mapping.mapping import load_mapping, recipe_text, recipes

from .test_feed_mapping import Row, feed, impressions, others, write

SAMPLES = Path(__file__).parent / "samples"
START = 1_773_136_800_000
"""2026-03-10 10:00 UTC."""

LAMPS = ["lamp-7", "lamp-3", "lamp-9"]
COMMON: list[Any] = [
    (START + 1_250, "desk lamp", LAMPS, (2,)),
    (START + 2_250, "desk lamp", ["lamp-9", "lamp-3"], ()),
]
"""A list with a click on its last object, and one whose click is on an object that it did not show."""


def sample(name: str) -> list[Row]:
    return [json.loads(line) for line in (SAMPLES / f"{name}.jsonl").read_text().splitlines()]


def as_text(rows: list[Row]) -> list[Row]:
    """Rows as Snowflake unloads them: what is nested is JSON in a text."""
    return [
        {name: json.dumps(value) if isinstance(value, list | dict) else value for name, value in row.items()}
        for row in rows
    ]


FORMS = ("jsonl", "parquet", "csv", "text.parquet")


def written(tmp_path: Path, name: str, form: str) -> str:
    rows = sample(name)
    return write(tmp_path / f"{name}.{form}", as_text(rows) if form.startswith("text") else rows)


def check(placed: Any, expected: list[Any], told: dict[str, int]) -> None:
    assert sorted(impressions(placed).values()) == sorted(expected)
    assert others(placed) == Counter(told)


@pytest.mark.parametrize("form", FORMS)
def test_ga4(tmp_path: Path, form: str) -> None:
    placed = feed(tmp_path, "ga4", written(tmp_path, "ga4", form))
    expected = [
        (START + 1_500, "desk lamp", [*LAMPS, "shade-1"], (2,)),
        (START + 1_600, "desk lamp", ["lamp-9", "lamp-3"], ()),
        (START + 40_000, "related", ["bulb-2", "lamp-7"], (1,)),
    ]
    check(placed, expected, {reasons.OTHER_ROW: 3, reasons.CLICK_NOT_SHOWN: 1})


@pytest.mark.parametrize("form", FORMS)
def test_snowplow(tmp_path: Path, form: str) -> None:
    placed = feed(tmp_path, "snowplow", written(tmp_path, "snowplow", form))
    related = (START + 12_250, "related", ["lamp-7", "bulb-2"], (0,))
    check(placed, [*COMMON, related], {reasons.OTHER_ROW: 2, reasons.CLICK_NOT_SHOWN: 1})


DERIVED = [-250_453_900_800_000, 253_824_000_000_000, "-5965-01-01T00:00:00Z", "9" * 4_000, None]
"""Years -5965 and 10013, in two ways, and no time at all."""


@pytest.mark.parametrize("derived", DERIVED)
def test_a_time_that_cannot_be_falls_through_to_the_next(tmp_path: Path, derived: Any) -> None:
    good = impressions(feed(tmp_path, "snowplow", str(SAMPLES / "snowplow.jsonl")))
    rows = [{**row, "derived_tstamp": derived} for row in sample("snowplow")]
    found = feed(tmp_path, "snowplow", write(tmp_path / "odd.jsonl", rows))
    assert sorted(one[1:] for one in impressions(found).values()) == sorted(one[1:] for one in good.values())


def test_a_time_of_a_table_that_cannot_be_falls_through_row_by_row(tmp_path: Path) -> None:
    good = impressions(feed(tmp_path, "snowplow", written(tmp_path, "snowplow", "parquet")))
    rows = sample("snowplow")
    table = pyarrow.Table.from_pylist(rows)
    odd = [DERIVED[at % 2] for at in range(len(rows))]
    place = table.column_names.index("derived_tstamp")
    table = table.set_column(place, "derived_tstamp", pyarrow.array(odd, pyarrow.timestamp("ms")))
    pyarrow.parquet.write_table(table, tmp_path / "odd.parquet")
    found = impressions(feed(tmp_path, "snowplow", str(tmp_path / "odd.parquet")))
    assert sorted(one[1:] for one in found.values()) == sorted(one[1:] for one in good.values())


@pytest.mark.parametrize("form", FORMS)
def test_segment(tmp_path: Path, form: str) -> None:
    placed = feed(tmp_path, "segment", written(tmp_path, "segment", form))
    second = (COMMON[1][0], "lamps", *COMMON[1][2:])
    related = (START + 12_250, "related", ["lamp-7", "bulb-2"], (0,))
    told = {reasons.OTHER_ROW: 2, reasons.CLICK_NOT_SHOWN: 1}
    check(placed, [COMMON[0], second, related], told)


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_segment_in_a_warehouse(tmp_path: Path, form: str) -> None:
    """A table for each event, the properties its columns, the products JSON."""
    tables: dict[str, list[Row]] = {"product_list_viewed": [], "product_clicked": []}
    for row in sample("segment"):
        event = row["event"].lower().replace(" ", "_")
        if event in tables:
            head = {
                "id": row["messageId"],
                "anonymous_id": row["anonymousId"],
                "event": event,
                "timestamp": row["timestamp"],
            }
            tables[event].append({**head, **as_text([row["properties"]])[0]})
    paths = [write(tmp_path / f"{name}.{form}", rows) for name, rows in tables.items()]
    placed = feed(tmp_path, "segment", *paths)
    lists = feed(tmp_path, "segment", str(SAMPLES / "segment.jsonl"))
    check(placed, list(impressions(lists).values()), {reasons.CLICK_NOT_SHOWN: 1})


WHO = {
    "ga4": ["user_pseudo_id"],
    "snowplow": ["domain_userid"],
    "segment": ["anonymousId"],
    "ubi": ["client_id"],
}


@pytest.mark.parametrize("name", WHO)
@pytest.mark.parametrize("form", FORMS)
def test_a_list_says_who_clicked_where_the_log_does(tmp_path: Path, name: str, form: str) -> None:
    names = ("ubi_queries", "ubi_events") if name == "ubi" else (name,)
    known = {row.get(WHO[name][0]) for one in names for row in sample(one)} - {None}
    placed = feed(tmp_path, name, *(written(tmp_path, one, form) for one in names))
    found = {item.source for _, item in placed if isinstance(item, Impression)}
    assert found
    assert found <= known
    rows = {one: [{**row, WHO[name][0]: None} for row in sample(one)] for one in names}
    if name in ("ubi", "ga4"):  # the others join by it
        paths = [write(tmp_path / f"{one}.unnamed.jsonl", of) for one, of in rows.items()]
        unnamed = [item for _, item in feed(tmp_path, name, *paths) if isinstance(item, Impression)]
        assert {item.source for item in unnamed} <= {None}


@pytest.mark.parametrize("form", FORMS)
def test_ubi(tmp_path: Path, form: str) -> None:
    """Hits where a query has some, impression events where it has none."""
    paths = [written(tmp_path, name, form) for name in ("ubi_queries", "ubi_events")]
    bulb = (START + 12_250, "bulb", ["lamp-7", "bulb-2"], (0,))
    for given in (paths, paths[::-1]):
        placed = feed(tmp_path, "ubi", *given)
        check(placed, [*COMMON, bulb], {reasons.OTHER_ROW: 1, reasons.CLICK_NOT_SHOWN: 1})


def test_every_mapping_that_comes_along_can_be_copied(tmp_path: Path) -> None:
    assert recipes() == ("ga4", "http", "segment", "snowplow", "ubi")
    for name in recipes():
        text = recipe_text(name)
        assert text.startswith("# ")
        assert tomllib.loads(text)
        copied = tmp_path / f"{name}.toml"
        copied.write_text(text)
        assert load_mapping(str(copied)).named == load_mapping(name).named
