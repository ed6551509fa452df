"""Rows of a click log, some thousand at a time: of tables (Parquet, Arrow, CSV) and of JSON lines alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streams.feed import items as reasons
from streams.feed.inputs import Input
from streams.feed.items import BadItemError, Dropped, FeedError, Placed
from streams.feed.mapping import cells as read
from streams.feed.mapping.cells import Cells
from streams.feed.mapping.mapping import ANY, NONE, ClickLogMapping, Condition
from streams.feed.mapping.paths import ColumnPath, NoSuchFieldError, RowByRow, Steps, column_at, value_at
from streams.feed.parse import json_map, unwrapped
from streams.tables import Batch, Table, TableError, is_table
from streams.text_files import MAX_LINE_BYTES

if TYPE_CHECKING:
    import pyarrow

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

LINES = 1_000
"""JSON lines that are looked at together."""


class LogRows(ABC):
    """Rows that follow each other; columns come by path, for all rows or for some of them (by their numbers).

    `faults` are rows that could not be read at all.
    """

    faults: Sequence[Placed] = ()

    def __init__(self) -> None:
        self._conditions: dict[str, list[str | None]] = {}

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def place(self, row: int) -> str:
        """What messages call a row."""

    @abstractmethod
    def _cells(self, path: ColumnPath, rows: IntArray | None) -> list[Cells]:
        """A column for each alternative of the path that these rows have."""

    def texts(self, path: ColumnPath, rows: IntArray | None = None) -> list[Any]:
        """Texts, None, or BadItemError."""
        return self._read(path, rows, read.texts)

    def times(self, path: ColumnPath, unit_ms: float, rows: IntArray | None = None) -> list[Any]:
        """Milliseconds since 1970, None, or BadItemError."""
        return self._read(path, rows, lambda cells: read.times(cells, unit_ms), read.is_plausible)

    def numbers(self, path: ColumnPath, rows: IntArray | None = None) -> list[Any]:
        """Numbers, None, or BadItemError."""
        return self._read(path, rows, read.numbers)

    def lists(
        self, path: ColumnPath, by: str | None, rows: IntArray, *, numbers: bool = False, single: bool = False
    ) -> list[Any]:
        """Lists of texts or `numbers`, or BadItemError; a list may hold either, and None. by: the separator.
        single: a cell may be its only entry."""
        inner = read.numbers if numbers else read.texts
        return self._read(path, rows, lambda cells: read.lists(cells, by, inner, single))

    def matching(self, condition: Condition) -> BoolArray:
        """Which rows fulfil a condition."""
        said, wanted = self.conditions(condition.path), condition.values
        if ANY in wanted:
            found = (one is not None for one in said)
        elif NONE in wanted:
            found = (one is None or one in wanted for one in said)
        else:
            found = (one in wanted for one in said)
        return np.fromiter(found, dtype=bool, count=len(said))

    def conditions(self, path: ColumnPath) -> list[str | None]:
        """What `where` sees in a column: texts, also of numbers and truth values; None where it is empty."""
        if path.text not in self._conditions:
            self._conditions[path.text] = self._read(path, None, read.conditions)
        return self._conditions[path.text]

    def _read(
        self,
        path: ColumnPath,
        rows: IntArray | None,
        convert: Callable[[Cells], list[Any]],
        fits: Callable[[Any], bool] = lambda cell: True,
    ) -> list[Any]:
        count = len(self) if rows is None else len(rows)
        columns = self._cells(path, rows) or [[None] * count]
        return read.first_filled([self._named(path, convert, one) for one in columns], fits)

    def _named(self, path: ColumnPath, convert: Callable[[Cells], Any], cells: Cells) -> Any:
        try:
            return convert(cells)
        except ValueError as error:
            raise FeedError(
                f"{self.place(0)}: {path.text} {error}", "map another column, or cast it when exporting"
            ) from None


class LineRows(LogRows):
    """JSON objects, one per line."""

    def __init__(
        self, name: str, numbers: list[int], lines: list[dict[str, Any]], faults: list[Placed]
    ) -> None:
        super().__init__()
        self._name, self._numbers, self._lines = name, numbers, lines
        self.faults = faults

    def __len__(self) -> int:
        return len(self._lines)

    def place(self, row: int) -> str:
        """`file:line`."""
        return f"{self._name}:{self._numbers[row]}"

    def _cells(self, path: ColumnPath, rows: IntArray | None) -> list[Cells]:
        lines = self._lines if rows is None else [self._lines[row] for row in rows.tolist()]
        return [[_cell(line, steps) for line in lines] for steps in path.alternatives]


def _cell(line: Any, steps: Steps) -> Any:
    try:
        return line if isinstance(line, BadItemError) else value_at(line, steps)
    except BadItemError as bad:
        return bad


class TableRows(LogRows):
    """A batch of a table; `bound` says which of its columns each alternative of a path begins at."""

    def __init__(self, name: str, batch: Batch, bound: dict[Steps, tuple[str, Steps]]) -> None:
        super().__init__()
        self._name, self._batch, self._bound = name, batch, bound
        self._count = len(next(iter(batch.columns.values())))

    def __len__(self) -> int:
        return self._count

    def place(self, row: int) -> str:
        """`file:row n`, from 1, a header not counted."""
        return f"{self._name}:row {self._batch.first + row}"

    def _cells(self, path: ColumnPath, rows: IntArray | None) -> list[Cells]:
        starts = (self._bound[steps] for steps in path.alternatives if steps in self._bound)
        return [self._column(name, rest, rows) for name, rest in starts]

    def _column(self, name: str, rest: Steps, rows: IntArray | None) -> Cells:
        array = self._batch.columns[name]
        if rows is not None and len(rows) < self._count:
            array = array.take(rows)
        try:
            return column_at(array, rest)
        except RowByRow:
            return [_cell(one, rest) for one in read.values(array)]


class RowSource:
    """A file or folder whose rows a mapping reads; `missing` are the keys of the mapping that it lacks, with
    what is said of it."""

    def __init__(self, path: str, mapping: ClickLogMapping) -> None:
        self.name = path
        self._table: Table | None = None
        self._bound: dict[Steps, tuple[str, Steps]] = {}
        self.missing: dict[str, str] = {}
        if is_table(path):
            try:
                self._open(path, mapping)
            except TableError as error:
                raise FeedError(error.message, error.remedy) from None
        else:
            self._inputs = [Input(one) for one in _files(path)]
            for source in self._inputs:
                with source:
                    source.first_byte()

    @property
    def is_table(self) -> bool:
        """Whether it has columns; JSON lines may lack any field."""
        return self._table is not None

    @property
    def columns(self) -> str:
        """The columns of a table, for messages."""
        return column_list(self._table) if self._table is not None else ""

    def batches(self) -> Iterator[LogRows]:
        """All rows, in order. Raises FeedError."""
        if self._table is None:
            for source in self._inputs:
                with source:
                    yield from _line_batches(source)
            return
        columns = sorted({name for name, _ in self._bound.values()})
        try:
            for batch in self._table.batches(columns) if columns else ():
                yield TableRows(self.name, batch, self._bound)
        except TableError as error:
            raise FeedError(error.message, f"what came before was fed; {error.remedy}") from None

    def _open(self, path: str, mapping: ClickLogMapping) -> None:
        table = Table(path)
        every = [steps for one in mapping.named.values() for steps in one.alternatives]
        names = {name for steps in every for name in _prefixes(steps)}
        read_as_text = [name for name in table.columns if name in names]
        self._table = table = Table(path, read_as_text, words_are_null=False)  # somebody asks for nan bread
        for key, one in mapping.named.items():
            said = ""
            for steps in one.alternatives:
                try:
                    self._bound[steps] = _bind(table, steps)
                except (NoSuchFieldError, TableError) as error:
                    said = said or (error.message if isinstance(error, TableError) else str(error))
            if not one.optional and not any(steps in self._bound for steps in one.alternatives):
                self.missing[key] = said


def column_list(table: Table) -> str:
    """The columns of a table and their types, as a message shows them."""
    shown = [f"{name} ({table.kind(name)!s:.60})" for name in table.columns[:30]]
    return ", ".join(shown) + (", ..." if len(table.columns) > 30 else "")


def _files(path: str) -> list[str]:
    folder = Path(path)
    if not folder.is_dir():
        return [path]
    found = sorted(str(one) for one in folder.rglob("*") if one.is_file() and one.name[0] not in "._")
    if not found:
        raise FeedError(f"{path} is an empty folder", "give a folder with a click log in it")
    return found


def _line_batches(source: Input) -> Iterator[LogRows]:
    lines = source.lines()
    while chunk := list(islice(lines, LINES)):
        numbers: list[int] = []
        found: list[dict[str, Any]] = []
        faults: list[Placed] = []
        for line in chunk:
            place = f"{source.name}:{line.number}"
            try:
                if line.data is None:
                    raise BadItemError(reasons.TOO_LONG, f"the line is longer than {MAX_LINE_BYTES} bytes")
                found.append(dict(unwrapped(json_map(line.data))))
                numbers.append(line.number)
            except BadItemError as bad:
                faults.append((place, Dropped(bad.reason, bad.detail)))
        yield LineRows(source.name, numbers, found, faults)


def _prefixes(steps: Steps) -> list[str]:
    """The names a path may begin with: `a`, `a.b`, ... as far as it goes by names alone."""
    names: list[str] = []
    for step in steps:
        if step.kind != "field":
            break
        names.append(f"{names[-1]}.{step.name}" if names else step.name)
    return names


def _bind(table: Table, steps: Steps) -> tuple[str, Steps]:
    """The column of a table, or the field of its structs, that a path begins with, and the steps from there.

    Raises TableError where there is no such column, NoSuchFieldError where it has not what the path names.
    """
    names = _prefixes(steps)
    for taken in range(len(names), 1, -1):
        try:
            kind = table.kind(names[taken - 1])
        except TableError:
            continue
        return _reaches(names[taken - 1], steps[taken:], kind)
    return _reaches(names[0], steps[1:], table.kind(names[0]))


def _reaches(name: str, rest: Steps, kind: pyarrow.DataType) -> tuple[str, Steps]:
    import pyarrow

    try:
        column_at(pyarrow.array([], type=kind), rest)
    except RowByRow:
        pass
    except NoSuchFieldError as error:
        raise NoSuchFieldError(f"{name} {error}") from None
    except UnicodeDecodeError:
        raise NoSuchFieldError(f"{name} has a field whose name is not UTF-8") from None
    return name, rest
