"""Readers of the formats of our own: impressions and triplets as JSON lines, and events in the wire format.

An impression: `{"id", "ts", "q", "shown", "clicked"}` and, optionally, `prop`, `src`, `sp`, `key`.
`shown` is the list as the user saw it, best place first; `clicked` holds ranks (from 0) or ids of shown
objects.

A triplet: `{"q", "c", "s", "id"?, "ts"?, "w"?, "src"?, ...}`. The names are those of the event format
(`imp`, `prop`, `sp`, `key` and `pair` are read too; `pair` is "above", "below" or "random"). An object is a
string id, or a map with `x` or `views`. A triplet without an id gets one from its line number and bytes, so
that the same file gives the same ids again; one without a time gets the time of feeding.

The wire format: msgpack maps of events or impressions, one after another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any

import msgpack

from streams.codec import decode_event, decode_impression
from streams.event import PAIR_NAMES, PAIR_UNKNOWN, Event, Impression, ObjectRef
from streams.feed import items as reasons
from streams.feed.inputs import Input, InputLine
from streams.feed.items import BadItemError, Dropped, Item, Placed
from streams.feed.options import ReaderOptions
from streams.feed.parse import check_fields, number, object_ref, read_json_lines, text, timestamp
from streams.poison import Poison

IMPRESSION_REQUIRED = ("ts", "q", "shown", "clicked")
IMPRESSION_FIELDS = frozenset({*IMPRESSION_REQUIRED, "id", "prop", "src", "sp", "key"})


def read_impressions(source: Input, options: ReaderOptions) -> Iterator[Placed]:
    """An Impression per line, in order."""
    return read_json_lines(source, lambda line, at: parse_impression(line, options))


def parse_impression(line: dict[str, Any], options: ReaderOptions) -> Impression:
    """One line as an Impression; raises BadItemError naming the field."""
    if line.get("id") is None:
        raise BadItemError(reasons.MISSING_ID, "field 'id' is missing")
    check_fields(line, IMPRESSION_REQUIRED, IMPRESSION_FIELDS)
    name = text(line["id"], "id")
    shown = _shown(line["shown"])
    return Impression(
        id=name,
        ts=timestamp(line["ts"]),
        query=object_ref(line["q"], "q"),
        shown=shown,
        clicked=clicked_ranks(line["clicked"], [item.id for item in shown]),
        propensity=propensities(line["prop"], len(shown)) if "prop" in line else None,
        source=text(line["src"], "src") if "src" in line else options.source,
        space=text(line["sp"], "sp") if "sp" in line else None,
        key=text(line["key"], "key") if "key" in line else options.key,
    )


def _shown(value: Any) -> tuple[ObjectRef, ...]:
    if not isinstance(value, list):
        raise BadItemError(reasons.WRONG_TYPE, "shown is not a list")
    if not value:
        raise BadItemError(reasons.NO_SHOWN, "shown is empty")
    return tuple(
        ObjectRef(id=item) if type(item) is str and item else object_ref(item, f"shown[{rank}]")
        for rank, item in enumerate(value)
    )


def clicked_ranks(value: Any, shown: Sequence[str | None], first: int = 0) -> tuple[int, ...]:
    """Ranks, ascending, of a list of ranks, counted from `first`, or ids; shown: ids in their order. Raises
    BadItemError."""
    if not isinstance(value, list):
        raise BadItemError(reasons.WRONG_TYPE, "clicked is not a list of ranks or ids")
    ranks = set()
    for click in value:
        if type(click) is int:
            if not 0 <= click - first < len(shown):
                raise BadItemError(reasons.BAD_CLICKED_RANK, f"clicked rank {click} of {len(shown)} shown")
            ranks.add(click - first)
        elif isinstance(click, str):
            if click not in shown:
                raise BadItemError(reasons.BAD_CLICKED_ID, f"clicked id {click[:80]!r} was not shown")
            ranks.add(shown.index(click))
        else:
            raise BadItemError(
                reasons.BAD_CLICKED_RANK, f"clicked holds {str(click)[:40]}: no rank and no id"
            )
    return tuple(sorted(ranks))


def propensities(value: Any, shown: int) -> tuple[float, ...]:
    """A number in (0, 1] of each of so many objects. Raises BadItemError."""
    if not isinstance(value, list) or len(value) != shown:
        raise BadItemError(reasons.BAD_PROPENSITY, f"prop is not a list of {shown} numbers")
    return tuple(number(p, f"prop[{rank}]", reasons.BAD_PROPENSITY, 1.0) for rank, p in enumerate(value))


TRIPLET_REQUIRED = ("q", "c", "s")
TRIPLET_FIELDS = frozenset({*TRIPLET_REQUIRED, "id", "ts", "w", "src", "imp", "prop", "sp", "key", "pair"})


def read_triplets(source: Input, options: ReaderOptions) -> Iterator[Placed]:
    """An Event per line, in order."""
    return read_json_lines(source, lambda line, at: parse_triplet(line, at, options))


def parse_triplet(line: dict[str, Any], at: InputLine, options: ReaderOptions) -> Event:
    """One line as an Event; raises BadItemError naming the field."""
    check_fields(line, TRIPLET_REQUIRED, TRIPLET_FIELDS)
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
        pair=_pair(line["pair"]) if "pair" in line else PAIR_UNKNOWN,
    )


def _pair(value: Any) -> int:
    if not isinstance(value, str) or value not in PAIR_NAMES:
        raise BadItemError(reasons.WRONG_TYPE, f"pair is none of {', '.join(PAIR_NAMES)}")
    return PAIR_NAMES[value]


def _content_id(at: InputLine) -> str:
    # The line number keeps a triplet that was meant to be there twice.
    digest = blake2b(at.data or b"", digest_size=12, salt=at.number.to_bytes(8, "little"))
    return f"t-{digest.hexdigest()}"


CHUNK_BYTES = 1 << 18

MAX_MAP_BYTES = 32 * 1024 * 1024

FRAMING_ERRORS = (ValueError, TypeError, msgpack.exceptions.UnpackException)


def read_binary(source: Input, options: ReaderOptions) -> Iterator[Placed]:
    """An Event or Impression per map, in order; places are byte offsets.

    Bytes that are no msgpack end the file with one Dropped: there is no telling where the next map would
    begin.
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
