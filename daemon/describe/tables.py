"""Texts of a table or of JSON lines, with photos where a column names their files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from daemon.describe.sources import IdRule, PhotoList, RawObject, RawSource, find_photos
from daemon.describe.views import OF_PHOTOS, TEXT
from daemon.exits import EX_DATAERR, EX_USAGE, UserError
from streams.tables import Table, TableError, is_table, text_values
from streams.text_files import numbered_lines, read_json

LINES = ".jsonl"


def is_text_table(path: Path) -> bool:
    """Whether objects with texts are read from here: CSV, TSV (also .gz), Parquet, Arrow, JSON lines."""
    return path.is_file() and (path.name.lower().endswith(LINES) or is_table(path))


def raw_source(
    path: Path, views: Sequence[str], ids: IdRule = "stem", columns: TableColumns | None = None
) -> RawSource:
    """The objects at a path: photos of a folder, a tar or a list, or the rows of a table, with what these
    views need. Raises UserError."""
    texts, images = TEXT in views, any(name in OF_PHOTOS for name in views)
    if is_text_table(path):
        return TextTable(path, columns or TableColumns(), texts=texts, images=images)
    if texts:
        raise UserError(f"{path}: photos have no text", f"leave {TEXT} out, or give a table", EX_USAGE)
    return PhotoList(find_photos(path, ids))


@dataclass(frozen=True)
class TableColumns:
    """Names of columns; that of titles is empty where there are none."""

    id: str = "id"
    text: str = "text"
    image: str = "image"
    title: str = ""


class TextTable:
    """Rows with an id and a text or the path of a photo, seen from the table's folder; read anew by each
    pass."""

    def __init__(self, path: Path, columns: TableColumns, *, texts: bool, images: bool) -> None:
        """texts, images: which of them are needed. Raises UserError where a column is missing."""
        self._path = path
        wanted = {"id": columns.id}
        wanted |= {"text": columns.text} if texts else {}
        wanted |= {"image": columns.image} if images else {}
        wanted |= {"title": columns.title} if columns.title else {}
        self._wanted = wanted
        self._count = sum(1 for _ in self._rows())
        if not self._count:
            raise UserError(f"{path}: no objects", "write a row for each", EX_DATAERR)

    def count(self) -> int:
        """How many there are."""
        return self._count

    def state(self) -> str:
        """Of the file and of the columns that are read."""
        found = self._path.stat()
        said = [str(self._path.name), found.st_size, found.st_mtime_ns, sorted(self._wanted.items())]
        return sha256(json.dumps(said).encode()).hexdigest()

    def pieces(self, size: int) -> Iterator[list[RawObject]]:
        """All of them, so many at a time. Raises UserError naming the row that cannot be used."""
        held: list[RawObject] = []
        for place, row in self._rows():
            if not row["id"]:
                what = f"{place}, {self._wanted['id']!r}: no id"
                raise UserError(what, "give every object one", EX_DATAERR)
            text, title, image = (row.get(name) or "" for name in ("text", "title", "image"))
            file = str(self._path.parent / image) if image else ""
            held.append(RawObject(row["id"], place, file, text=text, title=title))
            if len(held) == size:
                yield held
                held = []
        if held:
            yield held

    def _rows(self) -> Iterator[tuple[str, dict[str, str | None]]]:
        rows = self._lines if self._path.name.lower().endswith(LINES) else self._table
        try:
            yield from rows()
        except TableError as error:
            raise UserError(error.message, error.remedy, EX_DATAERR) from None

    def _table(self) -> Iterator[tuple[str, dict[str, str | None]]]:
        names = list(dict.fromkeys(self._wanted.values()))
        for batch in Table(self._path, names, words_are_null=False).batches(names):
            try:
                values = {name: text_values(batch.columns[name]) for name in names}
            except ValueError as error:
                what = f"{batch.place(0)}: a column {error}"
                raise UserError(what, "export it as text", EX_DATAERR) from None
            for row in range(len(values[names[0]])):
                yield batch.place(row), {key: values[name][row] for key, name in self._wanted.items()}

    def _lines(self) -> Iterator[tuple[str, dict[str, str | None]]]:
        with self._path.open("rb") as file:
            place = str(self._path)
            try:
                for number, line in numbered_lines(file):
                    place = f"{self._path}, line {number}"
                    found = read_json(line)
                    if not isinstance(found, dict):
                        raise UserError(f"{place}: no object of JSON", "write one per line", EX_DATAERR)
                    yield place, {key: _text(found, name, place) for key, name in self._wanted.items()}
            except (ValueError, RecursionError) as error:
                raise UserError(f"{place}: {error}", "write an object of JSON per line", EX_DATAERR) from None


def _text(found: dict[str, Any], name: str, place: str) -> str | None:
    value = found.get(name)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise UserError(f"{place}, {name!r}: neither text nor a whole number", "write it as text", EX_DATAERR)
