"""Objects from tables: Parquet, Arrow, CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streams.event import Column, SpaceSpec
from streams.objects.arrow_vectors import RowError, holds_vectors, is_texts, pair, side_by_side, vectors
from streams.objects.columns import ObjectColumns, SparsePair, VectorColumns, listed, matching, single_view
from streams.objects.rows import BATCH_ROWS, CatalogError, ObjectRows, shown_of
from streams.tables import Batch, ReadableTable, Table, TableError, text_values

if TYPE_CHECKING:
    import pyarrow

_SHOWN = ("title", "text", "image")
ID = "id"


class TableReader:
    """The objects of a table, row by row: of files, or of the `table` that is given, which is at `path`.

    Columns that nothing is said of are found by their names: `id`, the views of the space, `title`, `text`,
    `image` and `tags`; the only column of vectors is that of the only view.
    """

    def __init__(
        self,
        path: Path | str,
        columns: ObjectColumns,
        space: SpaceSpec | None,
        table: ReadableTable | None = None,
    ) -> None:
        self._path, self._columns, self.space = path, columns, None
        given = table
        with self._errors():
            table = given or Table(path)
            self._id = columns.id or ID
            self._views = self._found_views(table, space)
            table.kind(self._id)
            self._texts, self._tags = self._found_texts(table)
            numbers = [one for where in self._views.values() if isinstance(where, tuple) for one in where]
            texts = [self._id, *self._texts.values(), *self._tags]
            self._table = given or Table(path, texts, words_are_null=False, numbers=numbers)
        if not columns.id and not is_texts(self._table.kind(self._id)):
            from pyarrow import types

            kind = self._table.kind(self._id)
            if not types.is_integer(kind):
                raise CatalogError(
                    f"{self._path}, column {self._id!r}: is of type {kind}, neither text nor whole numbers; "
                    "name another with catalog.columns.id"
                )

    def rows(self) -> int | None:
        """How many rows there are; None for CSV."""
        with self._errors():
            return self._table.rows()

    def batches(self) -> Iterator[ObjectRows]:
        """The objects, in the order of the files' names and of their rows. Raises CatalogError."""
        with self._errors():
            for batch in self._table.batches(self.needed(), BATCH_ROWS):
                yield self._rows(batch)

    def needed(self) -> list[str]:
        """The columns that are read, that of the ids first."""
        needed = [self._id, *self._texts.values(), *self._tags]
        for where in self._views.values():
            needed += _names(where)
        return list(dict.fromkeys(needed))

    def _rows(self, batch: Batch) -> ObjectRows:
        ids = self._told(batch, self._id, lambda: text_values(batch.columns[self._id]))
        for row, one in enumerate(ids):
            if not one:
                raise CatalogError(f"{batch.place(row)}, column {self._id!r}: no id; give every object one")
        views: dict[str, Column] = {}
        for name, where in self._views.items():
            arrays = [batch.columns[one] for one in _names(where)]
            words = ", ".join(_names(where)[:2])
            views[name] = self._told(batch, words, partial(_vectors, where, arrays, name))
        return ObjectRows(ids, views, self._shown(batch), batch.place)

    def _told(self, batch: Batch, column: str, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except RowError as error:
            raise CatalogError(f"{batch.place(error.row)}, column {column!r}: {error}") from None
        except ValueError as error:
            raise CatalogError(f"{batch.place(0)}, column {column!r}: {error}") from None

    def _shown(self, batch: Batch) -> list[bytes] | None:
        if not self._texts and not self._tags:
            return None
        texts = {
            name: self._told(batch, column, partial(_as_texts, batch.columns[column]))
            for name, column in self._texts.items()
        }
        tags = [self._told(batch, column, batch.columns[column].to_pylist) for column in self._tags]
        shown = []
        for row in range(len(batch.columns[self._id])):
            fields = {name: cells[row] for name, cells in texts.items()}
            try:
                shown.append(shown_of(fields, [cells[row] for cells in tags]))
            except ValueError as error:
                raise CatalogError(f"{batch.place(row)}: {error}") from None
        return shown

    def _found_views(self, table: ReadableTable, space: SpaceSpec | None) -> dict[str, VectorColumns]:
        known = table.columns
        try:
            said = {
                name: matching(where, known) for name, where in self._columns.vectors(space).items()
            } or _guessed_views(table, space)
        except ValueError as error:
            raise CatalogError(f"{self._path}: {error}") from None
        for name in [one for where in said.values() for one in _names(where)]:
            table.kind(name)  # raises, naming the columns there are
        return said

    def _found_texts(self, table: ReadableTable) -> tuple[dict[str, str], list[str]]:
        """Columns of title, text and image; of tags. Where none is named, those of these very names."""
        texts = {name: getattr(self._columns, name) for name in _SHOWN if getattr(self._columns, name)}
        tags = list(self._columns.tags)
        if not texts and not tags:
            taken = {self._id, *(one for where in self._views.values() for one in _names(where))}
            free = [name for name in table.columns if name not in taken]
            texts = {name: name for name in _SHOWN if name in free and is_texts(table.kind(name))}
            tags = ["tags"] if "tags" in free else []
        for column in (*texts.values(), *tags):
            table.kind(column)
        return texts, tags

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except TableError as error:
            hint = "; say which is which under [catalog.columns]" if "has no column" in error.message else ""
            raise CatalogError(f"{error.message}; {error.remedy}{hint}") from None


def _guessed_views(table: ReadableTable, space: SpaceSpec | None) -> dict[str, VectorColumns]:
    """Without a mapping: columns with the names of the views, else the only column of vectors there is."""
    if space is not None and all(view.name in table.columns for view in space.views):
        return {view.name: view.name for view in space.views}
    found = [name for name in table.columns if holds_vectors(table.kind(name))]
    if len(found) == 1:
        return {single_view(space): found[0]}
    problem = (
        f"{len(found)} columns of vectors ({listed(found)})" if found else "no column of lists of numbers"
    )
    raise ValueError(
        f"there is {problem} among {listed(table.columns)}; name the vector's with catalog.columns.x, "
        "or of each view with catalog.columns.views.NAME"
    )


def _names(where: VectorColumns) -> Sequence[str]:
    if isinstance(where, SparsePair):
        return (where.indices, where.values)
    return (where,) if isinstance(where, str) else where


def _vectors(where: VectorColumns, arrays: Sequence[pyarrow.Array[Any]], name: str) -> Column:
    if isinstance(where, SparsePair):
        return pair(arrays[0], arrays[1])
    if isinstance(where, tuple):
        return side_by_side(arrays, where)
    return vectors(arrays[0], name)


def _as_texts(array: pyarrow.Array[Any]) -> list[str | None]:
    import pyarrow
    from pyarrow import types

    if types.is_nested(array.type):
        raise ValueError(f"is of type {array.type}, no text")
    cells: list[str | None] = array.cast(pyarrow.string()).to_pylist()
    return cells
