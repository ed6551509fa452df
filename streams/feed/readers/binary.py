"""Events (or impressions) already in the wire format: msgpack maps, one after another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgpack

from streams.codec import decode_event, decode_impression
from streams.feed import reasons
from streams.feed.inputs import Input
from streams.feed.items import Dropped, Item, Placed
from streams.feed.readers.options import ReaderOptions
from streams.poison import Poison

CHUNK_BYTES = 1 << 18

MAX_MAP_BYTES = 32 * 1024 * 1024

FRAMING_ERRORS = (ValueError, TypeError, msgpack.exceptions.UnpackException)


def read_binary(source: Input, options: ReaderOptions) -> Iterator[Placed]:
    """An Event or Impression per map, in order; places are byte offsets.

    Bytes that are no msgpack end the file with one Dropped: where the next map would begin cannot be
    told.
    """
    unpacker: Any = msgpack.Unpacker(strict_map_key=False, max_buffer_size=MAX_MAP_BYTES)
    total = 0
    start = 0
    try:
        while chunk := source.read(CHUNK_BYTES):
            total += len(chunk)
            unpacker.feed(chunk)
            for value in unpacker:
                yield f"{source.name}:byte {start}", _item(value)
                start = unpacker.tell()
    except FRAMING_ERRORS as error:
        detail = str(error) or type(error).__name__
        yield f"{source.name}:byte {start}", Dropped(reasons.NOT_MSGPACK, detail)
        return
    if start < total:
        yield f"{source.name}:byte {start}", Dropped(reasons.NOT_MSGPACK, "the last map is cut short")


def _item(value: Any) -> Item:
    if not isinstance(value, dict):
        return Dropped(reasons.WRONG_TYPE, f"a msgpack {type(value).__name__}, not a map")
    try:
        # Packed again, one decoder judges every event, wherever it comes from.
        record = msgpack.packb(value)
        return decode_impression(record) if "shown" in value else decode_event(record)
    except Poison as poison:
        return Dropped(reasons.MALFORMED + poison.reason, poison.detail)
    except (ValueError, TypeError, OverflowError) as error:
        return Dropped(reasons.WRONG_TYPE, str(error))
