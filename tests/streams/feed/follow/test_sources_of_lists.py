"""Who clicked a list: as its record says, else its session, else as the command says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streams.event import Impression
from streams.feed.follow.join import EventTimeJoin, JoinSettings
from streams.feed.follow.records import RawRecord, RecordReader
from streams.feed.options import ReaderOptions

from .test_keys_of_lists import TS, click, shown


@pytest.mark.parametrize(
    ("said", "source"),
    [
        ({}, "shop"),
        ({"session": "s 1"}, "s 1"),
        ({"session": "s 1", "source": "anna"}, "anna"),
        ({"session": "s 1", "src": "anna"}, "anna"),
        ({"session": 1000 * "s"}, "shop"),
    ],
)
def test_a_list_is_of_its_source_else_of_its_session(said: dict[str, Any], source: str) -> None:
    join = EventTimeJoin(JoinSettings(window_ms=1_000))
    reader = RecordReader(join, ReaderOptions(0, source="shop"))
    reader.latest_ms = TS * 2
    records = shown("i", None, **said), click("i", None)
    reader.take([RawRecord(f"r:{n}", json.dumps(one).encode()) for n, one in enumerate(records)])
    join.finish()
    (made,) = [item for _, item in join.drained() if isinstance(item, Impression)]
    assert (made.source, made.clicked) == (source, (2,))
