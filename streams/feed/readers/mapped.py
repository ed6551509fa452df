"""Rows of other tools, read by a mapping: tables and JSON lines -> impressions and triplets, among
them rows that are whole by themselves: an impression with its clicks, or a triplet."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from streams.event import Event, Impression
from streams.feed import items as reasons
from streams.feed.items import BadItemError, Dropped, FeedError, Item, Placed
from streams.feed.mapping.mapping import EVENTS, IMPRESSIONS, SHOWN, TRIPLETS, ClickLogMapping
from streams.feed.mapping.pieces import JoinedEvents, ShownObjects
from streams.feed.mapping.reading import LIST, NUMBER, TEXT, Reading, RowColumns, RowKey, check_texts, id_of
from streams.feed.mapping.rows import LogRows, RowSource
from streams.feed.options import ReaderOptions
from streams.feed.readers.native import clicked_ranks

_ORDERED = (SHOWN, EVENTS)
"""Kinds of rows of which several files are read side by side, by time."""


def read_mapped(paths: Sequence[str], mapping: ClickLogMapping, options: ReaderOptions) -> Iterator[Placed]:
    """What a mapping makes of the rows of all sources. Raises FeedError; for columns, before any item."""
    sources = [RowSource(path, mapping) for path in paths]
    _check_columns(sources, mapping)
    return _items(sources, mapping, options)


def _check_columns(sources: Sequence[RowSource], mapping: ClickLogMapping) -> None:
    if not all(source.is_table for source in sources):
        return
    for key, path in mapping.named.items():
        if all(key in source.missing for source in sources):
            said = sources[0].missing[key]
            remedy = f"correct it, or write ? behind it if it may be absent; columns: {sources[0].columns}"
            raise FeedError(f"{mapping.name}: {key} = {path.text!r}: {said}", remedy)


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


class WholeImpressions(Reading):
    """Every row is a shown list with its clicks."""

    def take(self, rows: LogRows) -> Iterator[Placed]:
        """An impression for each row that counts."""
        mapping = self.mapping
        columns = yield from self.counted(rows, required=True)
        (shown,) = mapping.shown
        for name, path, numbers in (
            ("shown", shown.objects, False),
            ("clicked", mapping.clicked, False),
            ("clicked_positions", mapping.positions, True),
            ("propensity", shown.propensity, True),
        ):
            if path is not None:
                cut, single = mapping.separator, name.startswith("clicked")
                lists = rows.lists(path, cut, columns.chosen, numbers=numbers, single=single)
                columns.add(name, lists, LIST, path)
        yield from columns.faults()
        ids = self.ids(columns)
        for at, place in enumerate(columns.places()):
            try:
                yield place, self._impression(columns, at, ids[at])
            except BadItemError as bad:
                yield place, bad.dropped()

    def _impression(self, columns: RowColumns, at: int, name: RowKey | None) -> Impression:
        ts, query, shown = columns["time"][at], columns["query"][at], columns["shown"][at]
        clicks = columns["clicked" if self.mapping.clicked is not None else "clicked_positions"][at]
        chances, source, key = columns["propensity"][at], columns["source"][at], columns["key"][at]
        if not shown:
            raise BadItemError(reasons.NO_SHOWN, "the list is empty")
        check_texts(shown, "shown")
        ranks = self._ranks(clicks, shown)
        if chances is not None:
            good = all(isinstance(one, float) and 0 < one <= 1 for one in chances)
            if not good or len(chances) != len(shown):
                raise BadItemError(reasons.BAD_PROPENSITY, f"not {len(shown)} numbers in (0, 1]")
        return Impression(
            id=id_of(name, ts, query, shown, clicks, source, key),
            ts=ts,
            query=self.refs.of(query),
            shown=self.refs.all(shown),
            clicked=ranks,
            propensity=tuple(chances) if chances is not None else None,
            source=source or self.options.source,
            key=key or self.options.key,
        )

    def _ranks(self, clicks: list[Any], shown: list[str]) -> tuple[int, ...]:
        for click in clicks:
            if isinstance(click, BadItemError):
                raise click
        if self.mapping.clicked is None:
            clicks = [one if one is None or one % 1 else int(one) for one in clicks]
        return clicked_ranks(clicks, shown, self.mapping.first_position)


class WholeTriplets(Reading):
    """Every row is a query, a clicked and a skipped object."""

    def take(self, rows: LogRows) -> Iterator[Placed]:
        """An event for each row that counts."""
        mapping = self.mapping
        columns = yield from self.counted(rows, required=True)
        for name, path in (("clicked", mapping.clicked), ("skipped", mapping.skipped)):
            assert path is not None
            columns.add(name, rows.texts(path, columns.chosen), TEXT, path)
        for name, path in (("weight", mapping.weight), ("propensity", mapping.propensity)):
            if path is not None:
                columns.add(name, rows.numbers(path, columns.chosen), NUMBER, path)
        yield from columns.faults()
        ids = self.ids(columns)
        for at, place in enumerate(columns.places()):
            yield place, self._event(columns, at, ids[at], place)

    def _event(self, columns: RowColumns, at: int, name: RowKey | None, place: str) -> Item:
        row: Mapping[str, Any] = {
            key: columns[key][at] for key in ("time", "query", "clicked", "skipped", "weight", "propensity")
        }
        weight = 1.0 if row["weight"] is None else row["weight"]
        if not 0 < weight < float("inf"):
            return Dropped(reasons.BAD_WEIGHT, f"weight {weight}")
        if row["propensity"] is not None and not 0 < row["propensity"] <= 1:
            return Dropped(reasons.BAD_PROPENSITY, f"propensity {row['propensity']}")
        number = place.rpartition(":")[2]  # a triplet that is there twice was meant to be
        return Event(
            id=id_of(name, number, *row.values()),
            ts=self.options.now_ms if row["time"] is None else row["time"],
            query=self.refs.of(row["query"]),
            clicked=self.refs.of(row["clicked"]),
            skipped=self.refs.of(row["skipped"]),
            weight=weight,
            source=columns["source"][at] or self.options.source,
            propensity=row["propensity"],
            key=columns["key"][at] or self.options.key,
        )


_READINGS: Mapping[str, type[Reading]] = {
    IMPRESSIONS: WholeImpressions,
    SHOWN: ShownObjects,
    EVENTS: JoinedEvents,
    TRIPLETS: WholeTriplets,
}
