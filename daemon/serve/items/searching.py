"""Which objects contain a text: looked for in the packed bytes, slice by slice. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from daemon.serve.items.snapshot import IndexPart, IndexSnapshot
from streams.ids import Packed
from streams.items import Display

SLICE = 1024
"""Rows looked through in one go: some 50 microseconds, in which no other Python code runs."""
SLICE_BY_ROW = 64
"""The same where each row has to be unpacked."""


def matching(snapshot: IndexSnapshot, text: str) -> Iterator[str | None]:
    """Ids of living objects whose id, title or text contains `text`, some of them twice; and None after each
    slice, so that whoever asks can rest or stop.

    Any case: ASCII is looked for in the bytes as they are; another text has every object unpacked, which is
    a hundred times slower, and compared casefolded.
    """
    wanted = text.casefold()
    for number, part in enumerate(snapshot.parts):
        for rows in _candidates((part.ids.packed, part.texts), wanted):
            for row in rows:
                if _lives(part, row) and _says(part.ids[row], snapshot.display_at(number, row), wanted):
                    yield part.ids[row]
            yield None
    ids, packed = snapshot.shown.ids, snapshot.shown.packed
    for rows in _candidates((packed,), wanted):
        for row in rows:
            display = snapshot.display(ids[row])
            if display is not None and _says("", display, wanted):
                yield ids[row]
        yield None


def _candidates(columns: Sequence[Packed], wanted: str) -> Iterator[Sequence[int]]:
    """Rows that may contain the text, ascending, little by little; all where the bytes cannot tell."""
    rows = len(columns[0])
    if not (wanted and wanted.isascii()):
        for start in range(0, rows, SLICE_BY_ROW):
            yield range(start, min(start + SLICE_BY_ROW, rows))
        return
    for start in range(0, rows, SLICE):
        stop = min(start + SLICE, rows)
        found = sorted(
            {row for column in columns for row in _containing(column, start, stop, wanted.encode())}
        )
        for at in range(0, max(len(found), 1), SLICE_BY_ROW):
            yield found[at : at + SLICE_BY_ROW]


def _containing(column: Packed, start: int, stop: int, wanted: bytes) -> Iterator[int]:
    """Rows of a slice in whose bytes the ASCII text begins, any case."""
    offset = int(column.bounds[start])
    told = column.data[offset : int(column.bounds[stop])].tobytes().lower()
    at = told.find(wanted)
    while at >= 0:
        row = int(np.searchsorted(column.bounds, offset + at, side="right")) - 1
        yield row
        at = told.find(wanted, max(at + 1, int(column.bounds[row + 1]) - offset))


def _lives(part: IndexPart, row: int) -> bool:
    return part.alive is None or bool(part.alive[row])


def _says(object_id: str, display: Display, wanted: str) -> bool:
    told = (object_id, display.title or "", display.text or "")
    return any(wanted in one.casefold() for one in told)
