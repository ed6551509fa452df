"""Plain triplets, one JSON object per line: `{"q", "c", "s", "id"?, "ts"?, "w"?, "src"?, ...}`.

The names are those of the event format (`imp`, `prop`, `sp` and `key` are read too).  An object is a
string id, or a map with `x` or `views`.  A triplet without an id gets one from its line number and
bytes, so that the same file gives the same ids again; one without a time gets the time of feeding.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from streams.event import Event
from streams.feed import reasons
from streams.feed.inputs import Input, Line
from streams.feed.items import Placed
from streams.feed.parse import check_fields, number, object_ref, text, timestamp
from streams.feed.readers.jsonl import read_json_lines
from streams.feed.readers.options import ReaderOptions

REQUIRED = ("q", "c", "s")
KNOWN = frozenset({*REQUIRED, "id", "ts", "w", "src", "imp", "prop", "sp", "key"})


def read_triplets(source: Input, options: ReaderOptions) -> Iterator[Placed]:
    """An Event per line, in order."""

    def parse(line: dict[str, Any], at: Line) -> Event:
        return parse_triplet(line, at, options)

    return read_json_lines(source, parse)


def parse_triplet(line: dict[str, Any], at: Line, options: ReaderOptions) -> Event:
    """One line as an Event; raises BadItemError naming the field."""
    check_fields(line, REQUIRED, KNOWN)
    return Event(
        id=text(line["id"], "id") if "id" in line else _content_id(at),
        ts=timestamp(line["ts"]) if "ts" in line else options.now_ms,
        query=object_ref(line["q"], "q"),
        clicked=object_ref(line["c"], "c"),
        skipped=object_ref(line["s"], "s"),
        weight=number(line["w"], "w", reasons.BAD_WEIGHT) if "w" in line else 1.0,
        source=text(line["src"], "src") if "src" in line else options.source,
        impression=text(line["imp"], "imp") if "imp" in line else None,
        propensity=number(line["prop"], "prop", reasons.BAD_PROPENSITY, 1.0) if "prop" in line else None,
        space=text(line["sp"], "sp") if "sp" in line else None,
        key=text(line["key"], "key") if "key" in line else options.key,
    )


def _content_id(at: Line) -> str:
    # The line number keeps a triplet that was meant to be there twice.
    digest = blake2b(at.data or b"", digest_size=12, salt=at.number.to_bytes(8, "little"))
    return f"t-{digest.hexdigest()}"
