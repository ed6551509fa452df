"""Rows of other tools, read by a mapping: tables and JSON lines -> impressions and triplets."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from streams.feed.items import FeedError, Placed
from streams.feed.mapping.mapping import (
    EVENTS,
    IMPRESSIONS,
    SHOWN,
    TRIPLETS,
    ClickLogMapping,
)
from streams.feed.mapping.pieces import JoinedEvents, ShownObjects
from streams.feed.mapping.reading import Reading
from streams.feed.mapping.rows import LogRows, RowSource
from streams.feed.mapping.whole import WholeImpressions, WholeTriplets
from streams.feed.options import ReaderOptions

_ORDERED = (SHOWN, EVENTS)
"""Kinds of rows of which several files are read side by side, by time."""


def read_mapped(paths: Sequence[str], mapping: ClickLogMapping, options: ReaderOptions) -> Iterator[Placed]:
    """What a mapping makes of the rows of all sources. Raises FeedError; for columns, before any item."""
    sources = [RowSource(path, mapping) for path in paths]
    _check_columns(sources, mapping)
    return _items(sources, mapping, options)


def _check_columns(sources: Sequence[RowSource], mapping: ClickLogMapping) -> None:
    """Raise FeedError for a path that no source has."""
    if not all(source.is_table for source in sources):
        return
    for key, path in mapping.named.items():
        if all(key in source.missing for source in sources):
            said = sources[0].missing[key]
            raise FeedError(
                f"{mapping.name}: {key} = {path.text!r}: {said}",
                f"correct it, or write ? behind it if it may be absent; columns: {sources[0].columns}",
            )


def _items(
    sources: Sequence[RowSource], mapping: ClickLogMapping, options: ReaderOptions
) -> Iterator[Placed]:
    reading = _READINGS[mapping.rows](mapping, options)
    for rows in _side_by_side(sources, mapping):
        yield from rows.faults
        if len(rows):
            yield from reading.take(rows)
    yield from reading.finish()
    reading.check_found()


def _side_by_side(sources: Sequence[RowSource], mapping: ClickLogMapping) -> Iterator[LogRows]:
    """Batches of all sources; where rows of several belong together, always the one that begins earliest."""
    if len(sources) == 1 or mapping.rows not in _ORDERED:
        for source in sources:
            yield from source.batches()
        return
    waiting: list[tuple[int, int, LogRows, Iterator[LogRows]]] = []

    def push(number: int, batches: Iterator[LogRows]) -> None:
        rows = next(batches, None)
        if rows is not None:
            heapq.heappush(waiting, (_begin(rows, mapping), number, rows, batches))

    for number, source in enumerate(sources):
        push(number, source.batches())
    while waiting:
        _, number, rows, batches = heapq.heappop(waiting)
        yield rows
        push(number, batches)


def _begin(rows: LogRows, mapping: ClickLogMapping) -> int:
    assert mapping.time is not None
    times = rows.times(mapping.time, mapping.unit_ms, np.arange(min(1, len(rows))))
    return times[0] if times and isinstance(times[0], int) else 0


_READINGS: Mapping[str, type[Reading]] = {
    IMPRESSIONS: WholeImpressions,
    SHOWN: ShownObjects,
    EVENTS: JoinedEvents,
    TRIPLETS: WholeTriplets,
}
