"""A reader of click logs to copy: CSV lines `id,time,query,shown,clicked`, the lists joined by `|`.

    visit-7,2026-05-01T12:00:00Z,red shoes,shoe-1|shoe-9|boot-3,shoe-9

What a reader adds: one generator of (place, item). It never stops at a bad line; it yields `Dropped` with a
reason of the closed list in streams/feed/items.py. To make it a format of `tripletd feed`: its name in
`FORMATS` (streams/feed/options.py), a line in `READERS` and a way to recognise it in `detect`
(streams/feed/formats.py).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator

from streams.event import Impression, ObjectRef
from streams.feed import items as reasons
from streams.feed.inputs import Input
from streams.feed.items import BadItemError, Dropped, Placed
from streams.feed.options import ReaderOptions
from streams.feed.parse import text, timestamp

COLUMNS = 5


def read_csv(source: Input, options: ReaderOptions) -> Iterator[Placed]:
    """An Impression per line, in order."""
    for line in source.lines():
        place = f"{source.name}:{line.number}"
        if line.data is None:  # longer than MAX_LINE_BYTES, and not held in memory
            yield place, Dropped(reasons.TOO_LONG, "the line is too long")
            continue
        try:
            yield place, parse_line(line.data, options)
        except BadItemError as bad:
            yield place, bad.dropped()


def parse_line(data: bytes, options: ReaderOptions) -> Impression:
    """One line as an Impression; raises BadItemError naming the column."""
    try:
        fields = next(csv.reader([data.decode()]))
    except (UnicodeDecodeError, csv.Error, StopIteration):
        raise BadItemError(reasons.BAD_ROW, "not a line of CSV in UTF-8") from None
    if len(fields) != COLUMNS:
        raise BadItemError(reasons.BAD_ROW, f"{len(fields)} columns instead of {COLUMNS}")
    name, time, query, shown, clicked = fields
    objects = [text(one, "shown") for one in shown.split("|")]
    ranks = {one: rank for rank, one in enumerate(objects)}
    hits = clicked.split("|") if clicked else []
    unknown = [one for one in hits if one not in ranks]
    if unknown:
        raise BadItemError(reasons.BAD_CLICKED_ID, f"clicked {unknown[0]!r} was not shown")
    return Impression(
        text(name, "id"),
        timestamp(time) if time else options.now_ms,
        ObjectRef(id=text(query, "query")),
        tuple(ObjectRef(id=one) for one in objects),
        tuple(sorted({ranks[one] for one in hits})),
        source=options.source,
        key=options.key,
    )
