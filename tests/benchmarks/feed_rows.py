"""How fast click logs are read through a mapping, over JSON lines: shown objects per processor second.

The same lists of 20 objects with two clicks each, as Parquet with a row per impression, per shown object and
per event (GA4's export), over our own JSON lines. Only reading is measured: what becomes of a list after it
costs the same for all.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from streams.event import Impression
from streams.feed.formats import read_sources
from streams.feed.options import ReaderOptions
from tests.benchmarks.harness import Figure, ratio_figure

LISTS, SHOWN, CLICKS = 5_000, 20, 2

WHOLE = """
rows = "impressions"
id = "id"
time = "ts"
query = "q"
shown = "shown"
clicked_positions = "clicked"
"""
OBJECTS = """
rows = "shown"
id = "id"
time = "ts"
query = "q"
object = "sku"
position = "rank"
click.where.clicked = true
"""


def figures() -> list[Figure]:
    """Each kind of rows over JSON lines."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lists = _lists()
        lines = folder / "lines.jsonl"
        lines.write_text("".join(json.dumps(one) + "\n" for one in lists))
        kinds = {
            "impressions": (WHOLE, lists),
            "shown": (OBJECTS, _objects(lists)),
            "ga4": ("", _events(lists)),
        }
        made = []
        for kind, (mapping, rows) in kinds.items():
            path, toml = folder / f"{kind}.parquet", folder / f"{kind}.toml"
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
            toml.write_text(mapping)
            against = f"JSON lines of the same {LISTS:,} lists of {SHOWN}, shown objects/s of processor time"
            ours = _rate(path, str(toml) if mapping else kind)
            made.append(ratio_figure(f"feed_parquet_{kind}", against, ours, _rate(lines, None)))
        return made


def _rate(path: Path, mapping: str | None) -> Callable[[], float]:
    def measure() -> float:
        begin, shown, clicked = time.process_time(), 0, 0
        for _, item in read_sources([str(path)], ReaderOptions(0, mapping=mapping)):
            assert isinstance(item, Impression)
            shown, clicked = shown + len(item.shown), clicked + len(item.clicked)
        assert (shown, clicked) == (LISTS * SHOWN, LISTS * CLICKS)
        return shown / (time.process_time() - begin)

    return measure


def _lists() -> list[dict[str, Any]]:
    draw = random.Random(0)
    return [
        {
            "id": f"impression-{number}",
            "ts": 1_700_000_000_000 + 50 * number,
            "q": f"query-{draw.randrange(2_000)}",
            "shown": [f"product-{one}" for one in draw.sample(range(50_000), SHOWN)],
            "clicked": sorted(draw.sample(range(SHOWN), CLICKS)),
        }
        for number in range(LISTS)
    ]


def _objects(lists: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "id": one["id"],
            "ts": one["ts"],
            "q": one["q"],
            "sku": sku,
            "rank": rank,
            "clicked": rank in one["clicked"],
        }
        for one in lists
        for rank, sku in enumerate(one["shown"])
    ]


def _events(lists: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A session has five lists; a click is an event of its own."""
    made = []
    for number, one in enumerate(lists):
        texts = {"search_term": one["q"], "page_location": "https://shop.example/search"}
        values = [(key, {"string_value": text, "int_value": None}) for key, text in texts.items()]
        values.append(("ga_session_id", {"string_value": None, "int_value": number // 5}))
        common = {
            "event_params": [{"key": key, "value": value} for key, value in values],
            "user_pseudo_id": f"u{number // 5}",
        }
        items = [{"item_id": sku, "item_list_index": str(rank)} for rank, sku in enumerate(one["shown"])]
        told = [("view_item_list", items)] + [("select_item", [items[rank]]) for rank in one["clicked"]]
        for after, (name, named) in enumerate(told):
            at = 1_000 * (one["ts"] + after)
            made.append({"event_timestamp": at, "event_name": name, "items": named, **common})
    return made
