"""What a file holds, by its first rows: columns, what their values are, how long vectors are."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from daemon.exits import EX_DATAERR, UserError
from streams.event import Impression
from streams.feed.formats import detect
from streams.feed.inputs import Input
from streams.feed.items import FeedError
from streams.feed.mapping.mapping import UNITS, load_mapping, recipes
from streams.feed.mapping.paths import parse_path
from streams.feed.mapping.rows import RowSource
from streams.feed.options import IMPRESSIONS, TRIPLETS, ReaderOptions
from streams.feed.readers.mapped import read_mapped
from streams.objects.from_arrays import load_arrays
from streams.objects.rows import CatalogError
from streams.tables import Table, TableError, is_table
from streams.text_files import read_json

ROWS = 200
"""Rows that are looked at: enough to tell ids from places, few enough for a second."""
MOST_IDS, MOST_LINES = 1_000_000, 20_000
"""Rows of a table, and lines of JSON, that ids are read of: a second or two."""
ARRAYS = (".npy", ".npz", ".safetensors")
LINES = (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz", ".msgpack")
LABELS = (".txt", ".qrels")
SEPARATORS = ("|", ";", ",", " ")

Form = Literal["vector", "sparse", "list", "time", "number", "text", "truth", "other"]
TIMES = re.compile(r"(^|_|\b)(date|ts|stamp|at|when|created)($|_|\b)|time", re.IGNORECASE)
_VECTORS = re.compile(r"emb|vec|feat|repr|^x$|values", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ColumnSeen:
    """A column of the first rows: `cells`, None where a row holds nothing, and what they are.

    dim: numbers of a vector, the same in every row. unit: of times that are plain numbers. separator: what
    cuts the texts that lists are written as.
    """

    name: str
    form: Form
    cells: tuple[Any, ...] = ()
    dim: int = 0
    unit: str = ""
    separator: str = ""

    @property
    def values(self) -> tuple[Any, ...]:
        """The cells that hold something."""
        return tuple(one for one in self.cells if one is not None)

    @property
    def texts(self) -> list[str]:
        """The same as texts; of lists, their entries."""
        return [str(one) for cell in self.values for one in (cell if isinstance(cell, list) else [cell])]

    @property
    def differs(self) -> bool:
        """Whether every row holds another value."""
        return len({*map(str, self.values)}) == len(self.cells)

    def described(self) -> str:
        """In words, for a comment."""
        if self.form == "vector":
            return f"{self.name} (vectors of {self.dim})"
        words = {"sparse": "sparse vectors", "list": "lists", "truth": "true or false", "other": "nested"}
        return f"{self.name} ({words.get(self.form, self.form)}{f' in {self.unit}' if self.unit else ''})"


@dataclass(frozen=True, slots=True)
class FileSeen:
    """A file: its columns, the format of click logs that it is in ("" for none known), the mappings that fit.

    lines: fields of the first ones, where it is text. ids: by column, each value that an id may be, of all
    rows up to `MOST_IDS`; only of files with vectors.
    """

    path: str
    columns: Mapping[str, ColumnSeen]
    format: str = ""
    mappings: tuple[str, ...] = ()
    lines: tuple[tuple[str, ...], ...] = ()
    ids: Mapping[str, Set[str]] = field(default_factory=dict)

    def of(self, *forms: Form) -> list[ColumnSeen]:
        """The columns that hold these."""
        return [one for one in self.columns.values() if one.form in forms]

    def described(self) -> str:
        """In words, for a comment."""
        format_ = f"a click log, {self.format}" if self.format else ""
        return f"{self.path}: {format_ or self.columns_described() or 'lines of text'}"

    def columns_described(self) -> str:
        """What each column holds."""
        return ", ".join(one.described() for one in self.columns.values())


def look_at(path: str) -> FileSeen:
    """Look at the beginning of a file, or of a folder of tables. Raises UserError."""
    place = Path(path)
    if not place.exists():
        raise UserError(f"{path}: no such file", "correct the name", EX_DATAERR)
    try:
        if place.name.lower().endswith(ARRAYS):
            return FileSeen(path, _arrays(place))
        seen = _table(path) if is_table(path) else _lines(path)
        return replace(seen, ids=_ids(seen)) if seen.of("vector", "sparse", "number") else seen
    except (TableError, FeedError) as error:
        raise UserError(error.message, error.remedy, EX_DATAERR) from None
    except CatalogError as error:
        raise UserError(str(error), "", EX_DATAERR) from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8 text", "save the file as UTF-8", EX_DATAERR) from None


def _arrays(place: Path) -> dict[str, ColumnSeen]:
    columns = {}
    for name, array in load_arrays(place).items():
        if array.ndim == 2 and array.dtype.kind in "fiu":
            columns[name] = ColumnSeen(name, "vector", dim=array.shape[1])
        elif array.ndim == 1:
            columns[name] = ColumnSeen(name, "text", tuple(map(str, array[:ROWS].tolist())))
    return columns


def _table(path: str) -> FileSeen:
    fits = tuple(name for name in recipes() if not RowSource(path, load_mapping(name)).missing)
    lines = _fields(path) if path.lower().endswith((".csv", ".tsv")) else ()
    no_rows: dict[str, list[Any]] = {name: [] for name in Table(path).columns}
    return FileSeen(path, _columns(next(_cells(path), no_rows)), "", fits, lines)


_NATIVE = {IMPRESSIONS: {"q", "shown", "clicked"}, TRIPLETS: {"q", "c", "s"}}
"""Fields that lines of ours have; `detect` goes by fewer, which rows of others may have, too."""


def _lines(path: str) -> FileSeen:
    with Input(path) as source:
        known = detect(source) or ""
    cells = next(_cells(path), {})
    first = next(_rows(path, 1), {})
    ours = _NATIVE.get(known, set()) <= first.keys() and isinstance(first.get("clicked", []), list)
    if not cells or (known and ours):
        return FileSeen(path, {}, known, (), _fields(path))
    return FileSeen(path, _columns(cells), "", _fitting(path))


def _cells(path: str, names: Sequence[str] = (), most: int = ROWS) -> Iterator[dict[str, list[Any]]]:
    """The cells of these columns, of all where none is named, in the first rows, some at a time."""
    if is_table(path):
        table = Table(path, words_are_null=False)
        for batch in table.batches(names or table.columns, ROWS):
            if batch.first > most:
                break
            yield {name: column.to_pylist() for name, column in batch.columns.items()}
        return
    rows = _rows(path, most)
    while chunk := list(islice(rows, ROWS)):
        keys = names or dict.fromkeys(key for row in chunk for key in row)
        yield {name: [row.get(name) for row in chunk] for name in keys}


def _ids(seen: FileSeen) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {one.name: set() for one in seen.of("text", "number") if one.differs}
    most = MOST_IDS if is_table(seen.path) else MOST_LINES
    for cells in _cells(seen.path, [*found], most) if found else ():
        for name, values in cells.items():
            found[name].update(map(str, values))
    return found


def _first_lines(path: str, most: int = ROWS) -> Iterator[bytes]:
    with Input(path) as source:
        for line in islice(source.lines(), most):
            yield line.data or b""


def _rows(path: str, most: int) -> Iterator[dict[str, Any]]:
    for line in _first_lines(path, most):
        with suppress(ValueError, RecursionError):
            if isinstance(row := read_json(line), dict):
                yield row


def _fields(path: str) -> tuple[tuple[str, ...], ...]:
    texts = [line.decode("utf-8", "replace").strip() for line in _first_lines(path)]
    return tuple(tuple(text.split("\t") if "\t" in text else text.split()) for text in texts)


def _fitting(path: str) -> tuple[str, ...]:
    fits = []
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        file.writelines(line.rstrip() + b"\n" for line in _first_lines(path))
        file.flush()
        for name in recipes():
            with suppress(FeedError):  # it holds none of what this mapping looks for
                read = read_mapped([file.name], load_mapping(name), ReaderOptions(int(time.time() * 1000)))
                if any(isinstance(item, Impression) for _, item in read):
                    fits.append(name)
    return tuple(fits)


_SPARSE = {"indices", "values"}


def _columns(given: Mapping[str, Sequence[Any]]) -> dict[str, ColumnSeen]:
    """The columns of these cells; of one of objects a column for each of their keys."""
    found: dict[str, ColumnSeen] = {}
    for name, cells in given.items():
        try:
            name.encode()
            parse_path(name)
        except ValueError:
            continue  # neither a mapping nor a file in UTF-8 can name it
        values = [one for one in cells if one not in (None, "")]
        if values and all(isinstance(one, dict) for one in values) and {*values[0]} != _SPARSE:
            keys = dict.fromkeys(key for one in values for key in one)
            found |= _columns({f"{name}.{key}": [(one or {}).get(key) for one in cells] for key in keys})
        else:
            found[name] = column_of(name, tuple(None if one == "" else one for one in cells))
    return found


def column_of(name: str, cells: tuple[Any, ...]) -> ColumnSeen:
    """What the cells of a column are."""
    values = [one for one in cells if one is not None]
    kinds = {type(one) for one in values}
    form: Form = "other"
    unit, dim = "", 0
    if kinds == {str}:
        form = "text"
        with suppress(ValueError, RecursionError):
            if all(one.lstrip().startswith("[") for one in values):
                return column_of(name, tuple(one and read_json(one) for one in cells))
            if all(datetime.fromisoformat(one) and "-" in one for one in values):
                form = "time"
    elif kinds == {list}:
        entries, lengths = {type(one) for row in values for one in row}, {len(row) for row in values}
        form = "list" if entries <= {int, str} else "other"
        if entries and entries <= {int, float} and len(lengths) == 1 and min(lengths) > 1:
            no_ids = float in entries or any(len({*row}) < len(row) or min(row) < 0 for row in values)
            if no_ids or _VECTORS.search(name):
                form, dim = "vector", min(lengths)
    elif kinds == {bool}:
        form = "truth"
    elif values and all(isinstance(one, date) for one in values):
        form = "time"
    elif kinds and kinds <= {int, float}:
        unit = _unit(values) if TIMES.search(name) else ""
        form = "time" if unit else "truth" if {*values} <= {0, 1} else "number"
    elif kinds == {dict} and all(
        {*one} == _SPARSE and isinstance(one["indices"], list) and {*map(type, one["indices"])} <= {int}
        for one in values
    ):
        form, dim = "sparse", max(max(one["indices"], default=0) for one in values) + 1
    return ColumnSeen(name, form, cells, dim, unit)


def _unit(values: Sequence[float]) -> str:
    """The unit in which all of these are times from 2001 to 2100; "" for none."""
    for unit, ms in UNITS.items():
        if all(1e8 < one < 1e19 and 1e12 <= one * ms < 4.1e12 for one in values):
            return unit
    return ""


def separated(column: ColumnSeen) -> Iterator[ColumnSeen]:
    """A column of texts as one of lists, by each separator that most of its texts have."""
    for separator in SEPARATORS:
        if sum(separator in one for one in column.values) * 2 > len(column.values):
            yield cut(column, separator)


def cut(column: ColumnSeen, separator: str) -> ColumnSeen:
    """A column as one of lists: of texts cut at the separator, or with "" of a single entry each."""

    def parts(cell: Any) -> list[Any]:
        return [part.strip() for part in cell.split(separator)] if separator else [cell]

    cells = tuple(None if one is None else parts(one) for one in column.cells)
    return ColumnSeen(column.name, "list", cells, separator=separator)
