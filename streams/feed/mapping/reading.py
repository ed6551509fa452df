"""What the reading of every kind of rows has in common: which rows count, what the others hold, ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from streams.feed import items as reasons
from streams.feed.items import FeedError, Ignored, Placed
from streams.feed.mapping.columns import TEXT, TEXT_OR_NONE, TIME, RowColumns, RowKey
from streams.feed.mapping.mapping import ClickLogMapping, Where
from streams.feed.mapping.rows import BoolArray, IntArray, LogRows
from streams.feed.mapping.window import ObjectRefs
from streams.feed.options import ReaderOptions

VALUES_TOLD = 20
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
                raise FeedError(
                    f"{self.mapping.name}: of {self.read:,} rows none is a {what}: {said}",
                    "correct where of the mapping",
                )

    def _values(self, path: str) -> str:
        counts = self.seen.get(path, Counter())
        told = ", ".join(f"{value} ({count:,})" for value, count in counts.most_common(VALUES_TOLD))
        return told + (", ..." if len(counts) > VALUES_TOLD else "")

    def chosen(self, rows: LogRows, what: str, where: Where) -> BoolArray:
        """Which rows these are."""
        mask = np.ones(len(rows), dtype=bool)
        for condition in where:
            mask &= rows.matching(condition)
        self.found[what] += int(mask.sum())
        return mask

    def others(self, rows: LogRows, left: BoolArray) -> Iterator[Placed]:
        """Rows that say nothing, told as such."""
        if not left.any():
            return
        paths = {one.path.text: one.path for where in self.wanted.values() for one in where}
        said = {text: rows.conditions(path) for text, path in paths.items()}
        items: dict[str, Ignored] = {}
        for at in np.flatnonzero(left).tolist():
            for text, values in said.items():
                counts = self.seen.setdefault(text, Counter())
                value = (values[at] or "nothing")[:40]
                if value in counts or len(counts) <= VALUES_TOLD:
                    counts[value] += 1
            detail = ", ".join(f"{text} {(values[at] or 'nothing')[:40]!r}" for text, values in said.items())
            if len(items) > 1_000:
                items.clear()
            item = items.get(detail) or items.setdefault(detail, Ignored(reasons.OTHER_ROW, detail))
            yield rows.place(at), item

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
