"""The loop shared by the JSON Lines readers: parse each line, turn a bad one into `Dropped`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from streams.feed import reasons
from streams.feed.inputs import MAX_LINE_BYTES, Input, Line
from streams.feed.items import BadItemError, Dropped, Item, Placed
from streams.feed.parse import json_map

Parse = Callable[[dict[str, Any], Line], Item | None]


def read_json_lines(source: Input, parse: Parse) -> Iterator[Placed]:
    """What `parse` makes of each line, in order, without None; a bad line never stops the next one."""
    name = source.name
    for line in source.lines():
        place = f"{name}:{line.number}"
        if line.data is None:
            yield place, Dropped(reasons.TOO_LONG, f"the line is longer than {MAX_LINE_BYTES} bytes")
            continue
        try:
            item = parse(json_map(line.data), line)
        except BadItemError as bad:
            item = bad.dropped()
        if item is not None:
            yield place, item
