"""What a file holds, by its first rows: columns, what their values are, how long vectors are."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
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
TIMES = re.compile(
    r"(^|_|\b)(time|date|ts|stamp|at|when|created|timestamp|datetime)($|_|\b)|time", re.IGNORECASE
)
_VECTORS = re.compile(r"emb|vec|feat|repr|^x$|values", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ColumnSeen:
    """A column: `values` of the first rows where it holds something, and what they are.

    cells: the same for each row, None where it holds nothing. dim: numbers of a vector, the same in every
    row. unit: of times that are plain numbers. separator: what cuts the texts that lists are written as.
    """

    name: str
    values: tuple[Any, ...]
    form: Form
    dim: int = 0
    unit: str = ""
    separator: str = ""
    cells: tuple[Any, ...] = ()

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
    ids: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def of(self, *forms: Form) -> list[ColumnSeen]:
        """The columns that hold these."""
        return [one for one in self.columns.values() if one.form in forms]

    def described(self) -> str:
        """In words, for a comment."""
        if self.format:
            return f"{self.path}: a click log, {self.format}"
        return f"{self.path}: " + (
            ", ".join(one.described() for one in self.columns.values()) or "lines of text"
        )


def look_at(path: str) -> FileSeen:
    """Look at the beginning of a file, or of a folder of tables. Raises UserError."""
    place = Path(path)
    if not place.exists():
        raise UserError(f"{path}: no such file", "name files that there are", EX_DATAERR)
    try:
        if place.name.lower().endswith(ARRAYS):
            return _arrays(place, path)
        seen = _table(path) if is_table(path) else _lines(path)
        return replace(seen, ids=_ids(seen)) if seen.of("vector", "sparse", "number") else seen
    except (TableError, FeedError) as error:
        raise UserError(error.message, error.remedy, EX_DATAERR) from None
    except CatalogError as error:
        raise UserError(str(error), "", EX_DATAERR) from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8 text", "save the file as UTF-8", EX_DATAERR) from None


def _ids(seen: FileSeen) -> dict[str, frozenset[str]]:
    """Of each column whose first values differ, all values."""
    names = [one.name for one in seen.of("text", "number") if len({*map(str, one.values)}) == len(one.values)]
    found: dict[str, set[str]] = {name: set() for name in names}
    count = 0
    if not names:
        return {}
    if is_table(seen.path):
        for batch in Table(seen.path, words_are_null=False).batches(names):
            for name in names:
                found[name].update(map(str, batch.columns[name].to_pylist()))
            count += len(batch.columns[names[0]])
            if count >= MOST_IDS:
                break
    else:
        with Input(seen.path) as source:
            for line in islice(source.lines(), MOST_LINES):
                row = read_json(line.data or b"{}")
                for name in names:
                    found[name].add(str(row.get(name)))
    return {name: frozenset(values) for name, values in found.items()}


def _arrays(place: Path, path: str) -> FileSeen:
    columns = {}
    for name, array in load_arrays(place).items():
        is_vectors = array.ndim == 2 and array.dtype.kind in "fiu"
        form: Form = "vector" if is_vectors else "text" if array.ndim == 1 else "other"
        values = tuple(str(one) for one in array[:ROWS].tolist()) if form == "text" else ()
        columns[name] = ColumnSeen(name, values, form, array.shape[1] if is_vectors else 0)
    return FileSeen(path, columns)


def _table(path: str) -> FileSeen:
    table = Table(path, words_are_null=False)
    rows: list[dict[str, Any]] = []
    for batch in table.batches(table.columns, ROWS):
        cells = {name: column.to_pylist() for name, column in batch.columns.items()}
        rows = [dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)]
        break
    fits = tuple(name for name in recipes() if not RowSource(path, load_mapping(name)).missing)
    is_text = path.lower().endswith((".csv", ".tsv"))
    return FileSeen(
        path, _columns(rows, table.columns), "", fits, _fields(_first_lines(path)) if is_text else ()
    )


def _lines(path: str) -> FileSeen:
    with Input(path) as source:
        known = detect(source) or ""
    first = _first_lines(path)
    needed = _NATIVE.get(known, set())
    if known and (not needed or needed <= _keys(first[0])):
        return FileSeen(path, {}, known, (), _fields(first))
    try:
        rows = [row for row in map(read_json, first) if isinstance(row, dict)]
    except (ValueError, RecursionError):
        rows = []
    if not rows:
        return FileSeen(path, {}, "", (), _fields(first))
    names = dict.fromkeys(key for row in rows for key in row)
    return FileSeen(path, _columns(rows, names), "", _fitting(first))


_NATIVE = {IMPRESSIONS: {"q", "shown", "clicked"}, TRIPLETS: {"q", "c", "s"}}
"""Fields that lines of ours have; `detect` goes by fewer, which rows of others may have, too."""


def _keys(line: bytes) -> set[str]:
    row = read_json(line)
    return set(row) if isinstance(row, dict) else set()


def _first_lines(path: str) -> list[bytes]:
    with Input(path) as source:
        return [line.data or b"" for line in islice(source.lines(), ROWS)]


def _fields(lines: Sequence[bytes]) -> tuple[tuple[str, ...], ...]:
    """Those of lines that are no JSON, cut at tabs or spaces."""
    texts = [line.decode("utf-8", "replace").strip() for line in lines]
    return tuple(tuple(text.split("\t") if "\t" in text else text.split()) for text in texts)


def _fitting(lines: Sequence[bytes]) -> tuple[str, ...]:
    """The mappings that come along by which these lines of JSON have impressions."""
    fits = []
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        file.writelines(line.rstrip() + b"\n" for line in lines)
        file.flush()
        for name in recipes():
            try:
                read = read_mapped([file.name], load_mapping(name), ReaderOptions(int(time.time() * 1000)))
                if any(isinstance(item, Impression) for _, item in read):
                    fits.append(name)
            except FeedError:  # it holds none of what this mapping looks for
                continue
    return tuple(fits)


def _columns(rows: Sequence[Mapping[str, Any]], names: Any) -> dict[str, ColumnSeen]:
    found: dict[str, ColumnSeen] = {}
    for name in filter(_is_path, names):
        held = [row.get(name) not in (None, "") for row in rows]
        values = tuple(row[name] for row, holds in zip(rows, held, strict=True) if holds)
        nested = [one for one in values if isinstance(one, dict)]
        if nested and len(nested) == len(values) and set(nested[0]) != {"indices", "values"}:
            inner = dict.fromkeys(f"{name}.{key}" for one in nested for key in one)
            inside = [{f"{name}.{key}": one for key, one in (row.get(name) or {}).items()} for row in rows]
            found |= _columns(inside, inner)
        else:
            made = column_of(name, values)
            read = iter(made.values)
            found[name] = replace(made, cells=tuple(next(read) if holds else None for holds in held))
    return found


def _is_path(name: str) -> bool:
    """Whether a mapping, and a file in UTF-8, can name a column of this name."""
    try:
        name.encode()
        parse_path(name)
    except ValueError:
        return False
    return True


def column_of(name: str, values: tuple[Any, ...]) -> ColumnSeen:
    """What the values of a column are."""
    kinds = {type(one) for one in values}
    form: Form = "other"
    unit, dim = "", 0
    if not values:
        return ColumnSeen(name, (), form)
    if kinds <= {str}:
        return _of_texts(name, values)
    if kinds <= {list, tuple}:
        return _of_lists(name, values)
    if kinds <= {bool}:
        form = "truth"
    elif all(isinstance(one, date) for one in values):
        form = "time"
    elif kinds <= {int, float}:
        unit = _unit(values) if TIMES.search(name) else ""
        form = "time" if unit else "truth" if {*values} <= {0, 1} else "number"
    elif kinds <= {dict} and all(_is_sparse(one) for one in values):
        form, dim = "sparse", int(max(max(one["indices"], default=0) for one in values)) + 1
    return ColumnSeen(name, values, form, dim, unit)


def _is_sparse(cell: Mapping[str, Any]) -> bool:
    indices = cell.get("indices")
    return set(cell) == {"indices", "values"} and isinstance(indices, list) and {*map(type, indices)} <= {int}


def _of_texts(name: str, values: tuple[str, ...]) -> ColumnSeen:
    if all(one.lstrip().startswith("[") for one in values):
        try:
            return _of_lists(name, tuple(read_json(one) for one in values))
        except (ValueError, RecursionError):
            pass
    if all(_is_time(one) for one in values):
        return ColumnSeen(name, values, "time")
    return ColumnSeen(name, values, "text")


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return "-" in text


def _of_lists(name: str, values: tuple[Any, ...]) -> ColumnSeen:
    entries = (
        [one for row in values for one in row] if all(isinstance(one, list) for one in values) else [None]
    )
    kinds, lengths = {type(one) for one in entries}, {len(row) for row in values}
    numbers = bool(kinds) and kinds <= {int, float} and len(lengths) == 1 and min(lengths) > 1
    if numbers and (float in kinds or _VECTORS.search(name) or any(_repeats(row) for row in values)):
        return ColumnSeen(name, values, "vector", min(lengths))
    return ColumnSeen(name, values, "list" if kinds <= {int, str} else "other")


def _repeats(row: Sequence[Any]) -> bool:
    return len(set(row)) < len(row) or any(one < 0 for one in row if isinstance(one, int))


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
            cells = tuple(one and [part.strip() for part in one.split(separator)] for one in column.cells)
            values = tuple(one for one in cells if one)
            yield ColumnSeen(column.name, values, "list", separator=separator, cells=cells)
