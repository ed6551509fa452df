"""Columns of some rows, and which rows have a fault in one of them."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import msgpack

from streams.feed import items as reasons
from streams.feed.items import BadItemError, Dropped, Placed
from streams.feed.mapping.paths import ColumnPath
from streams.feed.mapping.rows import IntArray, LogRows

Types = frozenset[type]
TEXT: Types = frozenset({str})
TEXT_OR_NONE: Types = frozenset({str, type(None)})
TIME: Types = frozenset({int})
NUMBER: Types = frozenset({int, float, type(None)})
LIST: Types = frozenset({list})
"""The types that cells may have."""


class RowColumns:
    """Columns of some rows, of which those with a fault are told and left out."""

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
