"""Rows that are pieces: single objects of shown lists, or impressions and their clicks apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from streams.feed import items as reasons
from streams.feed.items import BadItemError, Placed
from streams.feed.mapping.mapping import EVENTS, ClickLogMapping, ShownRows
from streams.feed.mapping.paths import ColumnPath
from streams.feed.mapping.reading import (
    LIST,
    NUMBER,
    TEXT,
    TIME,
    Reading,
    RowColumns,
    RowKey,
    Types,
    check_texts,
    id_of,
)
from streams.feed.mapping.rows import BoolArray, IntArray, LogRows
from streams.feed.mapping.window import JoinWindow, Keys, Piece, PieceJoin, Said
from streams.feed.options import ReaderOptions

KEYS: Types = frozenset({tuple, type(None)})
Moves = list[tuple[int, Callable[[], None]]]
"""What goes into the window, by row: impressions and clicks of a batch are read apart and go in together."""


class _Pieces(Reading):
    """Rows are pieces of impressions; they wait in a window until all have come, or go into a join."""

    def __init__(
        self, mapping: ClickLogMapping, options: ReaderOptions, into: PieceJoin | None = None
    ) -> None:
        super().__init__(mapping, options)
        self._own = JoinWindow(mapping.window, mapping.within_ms, self.refs)
        self.window: PieceJoin = into or self._own
        assert mapping.click is not None
        if mapping.rows == EVENTS:
            self.wanted["impression"] = mapping.shown[0].where
        self.wanted["click"] = mapping.click.where

    def finish(self) -> Iterator[Placed]:
        """The impressions under way."""
        self._own.finish()
        return self.drained()

    def drained(self) -> Iterator[Placed]:
        """What the window is done with; a join that was given keeps it."""
        done, self._own.done = self._own.done, []
        return iter(done)

    def said(self, columns: RowColumns, at: int, place: str, ids: tuple[str, RowKey], rank: int = 0) -> Said:
        """What a row says of its impression; `ids`: its id and its join key."""
        source, key = columns["source"][at], columns["key"][at]
        return Said(
            ids[0],
            ids[1],
            place,
            columns["time"][at],
            columns["query"][at],
            source or self.options.source,
            key or self.options.key,
            rank,
        )


class ShownObjects(_Pieces):
    """Every row is one object of a shown list."""

    def take(self, rows: LogRows) -> Iterator[Placed]:
        """Impressions that had to make room."""
        mapping = self.mapping
        assert mapping.click is not None
        (shown,) = mapping.shown
        clicked = self.chosen(rows, "click", mapping.click.where)
        if not self.found["click"]:
            for condition in mapping.click.where:
                counts = self.seen.setdefault(condition.path.text, Counter())
                counts.update(value or "nothing" for value in rows.conditions(condition.path))
        columns = yield from self.counted(rows, required=False)
        assert shown.object is not None
        columns.add("object", rows.texts(shown.object, columns.chosen), TEXT, shown.object)
        for name, path in (("position", shown.position), ("propensity", shown.propensity)):
            if path is not None:
                columns.add(name, rows.numbers(path, columns.chosen), NUMBER, path)
        yield from columns.faults()
        self._runs(columns, clicked[columns.chosen])
        yield from self.drained()

    def _runs(self, columns: RowColumns, clicked: BoolArray) -> None:
        ids = self.ids(columns)
        objects, rows = columns["object"], columns.chosen.tolist()
        positions, chances = columns.of("position", []), columns.of("propensity", [])
        starts = [at for at in range(len(ids)) if at == 0 or ids[at] != ids[at - 1]]
        hits = np.flatnonzero(clicked)
        cuts = np.searchsorted(hits, np.asarray([*starts, len(ids)])).tolist()
        hit_list = hits.tolist()
        for number, start in enumerate(starts):
            end = starts[number + 1] if number + 1 < len(starts) else len(ids)
            name = id_of(ids[start])
            said = self.said(columns, start, columns.rows.place(rows[start]), (name, name))
            chosen = [objects[at] for at in hit_list[cuts[number] : cuts[number + 1]]]
            piece = Piece(objects[start:end], positions[start:end], chances[start:end], chosen)
            self.window.shown(said, piece)


class JoinedEvents(_Pieces):
    """Rows are impressions, clicks, and others."""

    def take(self, rows: LogRows) -> Iterator[Placed]:
        """Impressions that had to make room."""
        mapping = self.mapping
        assert mapping.click is not None
        self.read += len(rows)
        left = self.chosen(rows, "row that counts", mapping.where)
        unread = ~left
        moves: Moves = []
        for rank, one in enumerate(mapping.shown):
            mask = self.chosen(rows, "impression", one.where) & left
            left &= ~mask
            if mask.any():
                yield from self._shown(rows, np.flatnonzero(mask), one, rank, moves)
        mask = self.chosen(rows, "click", mapping.click.where) & left
        if mask.any():
            yield from self._clicks(rows, np.flatnonzero(mask), moves)
        for _, move in sorted(moves, key=itemgetter(0)):
            move()
        yield from self.others(rows, unread | (left & ~mask))
        yield from self.drained()

    def _joins(self, columns: RowColumns) -> list[RowKey]:
        """The join key of each row; the faults of these columns are found with the others."""
        paths = self.mapping.join
        if not paths or paths == self.mapping.id:
            return columns.keys("id", len(self.mapping.id))
        return columns.keys("join", len(paths))

    def _common(self, rows: LogRows, chosen: IntArray, with_id: bool) -> RowColumns:
        columns = self.columns(rows, chosen) if with_id else RowColumns(rows, chosen)
        if self.mapping.join and self.mapping.join != self.mapping.id:
            for at, path in enumerate(self.mapping.join):
                columns.add(f"join.{at}", rows.texts(path, chosen), TEXT, path)
        return columns

    def _shown(
        self, rows: LogRows, chosen: IntArray, shown: ShownRows, rank: int, moves: Moves
    ) -> Iterator[Placed]:
        columns = self._common(rows, chosen, with_id=True)
        self.queries(columns, required=False)
        separator = self.mapping.separator
        if shown.objects is not None:
            columns.add("shown", rows.lists(shown.objects, separator, chosen), LIST, shown.objects)
        else:
            assert shown.object is not None
            columns.add("shown", rows.texts(shown.object, chosen), TEXT, shown.object)
        for name, path in (("position", shown.position), ("propensity", shown.propensity)):
            if path is not None and shown.objects is None:
                columns.add(name, rows.numbers(path, chosen), NUMBER, path)
            elif path is not None:
                columns.add(name, rows.lists(path, separator, chosen, numbers=True), LIST, path)
        yield from columns.faults()
        joins, ids = self._joins(columns), self.ids(columns)
        for at, row in enumerate(columns.chosen.tolist()):
            place = rows.place(row)
            try:
                moves.append((row, self._piece(columns, at, place, (ids[at], joins[at]), rank)))
            except BadItemError as bad:
                yield place, bad.dropped()

    def _piece(
        self, columns: RowColumns, at: int, place: str, ids: tuple[RowKey | None, RowKey], rank: int
    ) -> Callable[[], None]:
        shown = columns["shown"][at]
        objects = shown if isinstance(shown, list) else [shown]
        check_texts(objects, "shown")
        name = id_of(ids[0], ids[1], columns["time"][at], columns["query"][at], objects)
        said = self.said(columns, at, place, (name, ids[1]), rank)
        positions = self._numbers_of(columns["position"][at], objects, "position")
        chances = self._numbers_of(columns["propensity"][at], objects, "propensity")
        return partial(self.window.shown, said, Piece(objects, positions, chances))

    def _numbers_of(self, value: Any, objects: list[str], name: str) -> list[float | None]:
        """Numbers that go with the objects; none where a list of them is empty or not there."""
        values = value if isinstance(value, list) else ([value] if value is not None else [])
        for one in values:
            if isinstance(one, BadItemError):
                raise one
        if values and len(values) != len(objects):
            raise BadItemError(reasons.WRONG_TYPE, f"{len(values)} of {name}, and {len(objects)} objects")
        return values or ([None] * len(objects) if name == "position" else [])

    def _clicks(self, rows: LogRows, chosen: IntArray, moves: Moves) -> Iterator[Placed]:
        mapping = self.mapping
        assert mapping.click is not None
        assert mapping.click.object is not None
        columns = self._common(rows, chosen, with_id=False)
        if not mapping.join or mapping.join == mapping.id:
            for at, path in enumerate(mapping.id):
                columns.add(f"id.{at}", rows.texts(path, chosen), TEXT, path)
        columns.add("object", rows.texts(mapping.click.object, chosen), TEXT, mapping.click.object)
        if self.window.timed and mapping.time is not None:
            columns.add("time", rows.times(mapping.time, mapping.unit_ms, chosen), TIME, mapping.time)
        if mapping.key is not None:
            columns.add("keys", _keys(rows, mapping.key, chosen), KEYS, mapping.key)
        yield from columns.faults()
        names = ("object", "time", "keys")
        by_row = zip(
            self._joins(columns), columns.chosen.tolist(), *(columns[name] for name in names), strict=True
        )
        for join, row, name, ts, keys in by_row:
            moves.append((row, partial(self.window.click, join, rows.place(row), name, ts or 0, keys)))


def _keys(rows: LogRows, path: ColumnPath, chosen: IntArray) -> list[Keys | BadItemError]:
    """Whose impressions each click may belong to: of one key, of a list of them, or of all."""
    single = rows.texts(path, chosen)
    several = rows.lists(path, None, chosen) if any(type(one) is BadItemError for one in single) else ()
    found: list[Any] = [one if one is None or type(one) is BadItemError else (one,) for one in single]
    for at, some in enumerate(several):
        if type(found[at]) is BadItemError and type(some) is list and all(type(one) is str for one in some):
            found[at] = tuple(some)
    return found
