"""What the reading of every kind of rows has in common: which rows count, what the others hold, ids,
and which have a fault in one of their columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from hashlib import blake2b
from typing import Any

import msgpack
import numpy as np

from streams.feed import items as reasons
from streams.feed.items import BadItemError, Dropped, FeedError, Ignored, Placed
from streams.feed.mapping.mapping import ClickLogMapping, Where
from streams.feed.mapping.paths import ColumnPath
from streams.feed.mapping.rows import BoolArray, IntArray, LogRows
from streams.feed.mapping.window import ObjectRefs
from streams.feed.options import ReaderOptions

Types = frozenset[type]
TEXT: Types = frozenset({str})
TEXT_OR_NONE: Types = frozenset({str, type(None)})
TIME: Types = frozenset({int})
NUMBER: Types = frozenset({int, float, type(None)})
LIST: Types = frozenset({list})
"""The types that cells may have."""


class RowColumns:
    """Columns of some rows; rows with a fault are reported and left out."""

    def __init__(self, rows: LogRows, chosen: IntArray) -> None:
        self.rows, self.chosen = rows, chosen
        self._lists: dict[str, list[Any]] = {}
        self._bad: dict[int, Dropped] = {}

    def add(self, name: str, cells: list[Any], allowed: Types, path: ColumnPath) -> None:
        """A column of these types; a cell of another one is a fault."""
        self._lists[name] = cells
        if not allowed.issuperset(map(type, cells)):
            for at, cell in enumerate(cells):
                if type(cell) not in allowed:
                    self._bad.setdefault(at, _dropped(cell, name, path))

    def faults(self) -> Iterator[Placed]:
        """Those rows, and take them out of every column."""
        for at in sorted(self._bad):
            yield self.rows.place(int(self.chosen[at])), self._bad[at]
        if self._bad:
            keep = [at for at in range(len(self.chosen)) if at not in self._bad]
            self.chosen = self.chosen[keep]
            self._lists = {name: [cells[at] for at in keep] for name, cells in self._lists.items()}
            self._bad = {}

    def __getitem__(self, name: str) -> list[Any]:
        """A column; None in every row where the mapping names none."""
        found = self._lists.get(name)
        if found is None:
            found = self._lists[name] = [None] * len(self.chosen)
        return found

    def of(self, name: str, default: list[Any]) -> list[Any]:
        """A column, or the default where the mapping names none."""
        return self._lists.get(name, default)

    def keys(self, name: str, count: int) -> list[RowKey]:
        """The columns `name.0` to `name.(count - 1)` together."""
        columns = [self[f"{name}.{at}"] for at in range(count)]
        return columns[0] if count == 1 else list(zip(*columns, strict=True))

    def places(self) -> list[str]:
        """What messages call the rows."""
        return [self.rows.place(row) for row in self.chosen.tolist()]


def _dropped(cell: Any, name: str, path: ColumnPath) -> Dropped:
    if isinstance(cell, BadItemError):
        return Dropped(cell.reason, f"{name} = {path.text!r}: {cell.detail}")
    if cell is None:
        reason = reasons.MISSING_ID if name.startswith("id") else reasons.MISSING_FIELD
        return Dropped(reason, f"{name} = {path.text!r} is empty")
    return Dropped(reasons.WRONG_TYPE, f"{name} = {path.text!r} is {str(cell)[:40]}")


def check_texts(values: list[Any], name: str) -> None:
    """Raise BadItemError for an entry of a list that is no text."""
    if not TEXT.issuperset(map(type, values)):
        at, bad = next((at, one) for at, one in enumerate(values) if type(one) is not str)
        if isinstance(bad, BadItemError):
            raise bad
        raise BadItemError(reasons.WRONG_TYPE, f"{name}[{at}] is empty")


RowKey = str | tuple[str, ...]
"""What rows have in common: the text of a column, or those of several."""


def id_of(key: RowKey | None, *otherwise: Any) -> str:
    """The id that a key stands for; without one, made of what else there is: the same gives the same."""
    if isinstance(key, str):
        return key
    packed: bytes = msgpack.packb(key or otherwise, unicode_errors="surrogatepass")
    return blake2b(packed, digest_size=12).hexdigest()


VALUES_NAMED = 20
"""Values of a column that are listed where none is what the mapping looks for."""


class Reading:
    """What one kind of rows has in common with the others: which rows count, ids, sources, keys."""

    def __init__(self, mapping: ClickLogMapping, options: ReaderOptions) -> None:
        self.mapping, self.options, self.refs = mapping, options, ObjectRefs()
        self.read = 0
        self.found: Counter[str] = Counter()
        self.seen: dict[str, Counter[str]] = {}
        self.wanted: dict[str, Where] = {"row that counts": mapping.where}

    def take(self, rows: LogRows) -> Iterator[Placed]:
        """What these rows give."""
        raise NotImplementedError

    def finish(self) -> Iterator[Placed]:
        """What is left at the end."""
        return iter(())

    def check_found(self) -> None:
        """Raise FeedError where the mapping found none of what it looks for."""
        for what, where in self.wanted.items():
            if self.read and where and not self.found[what]:
                said = "; ".join(
                    f"{condition.path.text} has the values {self._values(condition.path.text)}"
                    f" and none is {' or '.join(repr(one) for one in sorted(condition.values))}"
                    for condition in where
                )
                message = f"{self.mapping.name}: of {self.read:,} rows none is a {what}: {said}"
                raise FeedError(message, "correct where of the mapping")

    def _values(self, path: str) -> str:
        counts = self.seen.get(path, Counter())
        values = ", ".join(f"{value} ({count:,})" for value, count in counts.most_common(VALUES_NAMED))
        return values + (", ..." if len(counts) > VALUES_NAMED else "")

    def chosen(self, rows: LogRows, what: str, where: Where) -> BoolArray:
        """Which rows these are."""
        mask = np.ones(len(rows), dtype=bool)
        for condition in where:
            mask &= rows.matching(condition)
        self.found[what] += int(mask.sum())
        return mask

    def others(self, rows: LogRows, left: BoolArray) -> Iterator[Placed]:
        """Rows that say nothing, reported as such."""
        if not left.any():
            return
        paths = {one.path.text: one.path for where in self.wanted.values() for one in where}
        said = {text: rows.conditions(path) for text, path in paths.items()}
        items: dict[str, Ignored] = {}
        for at in np.flatnonzero(left).tolist():
            for text, values in said.items():
                counts = self.seen.setdefault(text, Counter())
                value = (values[at] or "nothing")[:40]
                if value in counts or len(counts) <= VALUES_NAMED:
                    counts[value] += 1
            detail = ", ".join(f"{text} {(values[at] or 'nothing')[:40]!r}" for text, values in said.items())
            if len(items) > 1_000:
                items.clear()
            item = items.get(detail) or items.setdefault(detail, Ignored(reasons.OTHER_ROW, detail))
            yield rows.place(at), item

    def counted(self, rows: LogRows, *, required: bool) -> Generator[Placed, None, RowColumns]:
        """Report the rows that do not count; of the others the columns and queries, which are `required`."""
        self.read += len(rows)
        mask = self.chosen(rows, "row that counts", self.mapping.where)
        yield from self.others(rows, ~mask)
        columns = self.columns(rows, np.flatnonzero(mask))
        self.queries(columns, required)
        return columns

    def columns(self, rows: LogRows, chosen: IntArray) -> RowColumns:
        """The columns that every kind of impression has."""
        mapping, columns = self.mapping, RowColumns(rows, chosen)
        if mapping.time is not None:
            columns.add("time", rows.times(mapping.time, mapping.unit_ms, chosen), TIME, mapping.time)
        for at, path in enumerate(mapping.id):
            columns.add(f"id.{at}", rows.texts(path, chosen), TEXT, path)
        for name, one in (("source", mapping.source), ("key", mapping.key)):
            if one is not None:
                columns.add(name, rows.texts(one, chosen), TEXT_OR_NONE, one)
        return columns

    def ids(self, columns: RowColumns) -> Sequence[RowKey | None]:
        """What the mapping says is the id: a text, several, or None where one is to be made."""
        return columns.keys("id", len(self.mapping.id)) if self.mapping.id else columns["no id"]

    def queries(self, columns: RowColumns, required: bool) -> None:
        """Add the queries, without the spaces around them."""
        path = self.mapping.query
        cells = columns.rows.texts(path, columns.chosen)
        stripped = [cell.strip() or None if type(cell) is str else cell for cell in cells]
        columns.add("query", stripped, TEXT if required else TEXT_OR_NONE, path)
