"""Objects from JSON lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from streams.event import SpaceSpec, SparseVector, Vector
from streams.items import Display
from streams.objects import json_vectors
from streams.objects.columns import ObjectColumns, SparsePair, VectorColumns, listed
from streams.objects.rows import BATCH_ROWS, CatalogError, ObjectRows, packed_display, shown_of, tags_of
from streams.text_files import numbered_lines

SHOWN = ("title", "text", "image", "tags")
"""What a line says of an object to people."""


DocumentRead = tuple[str, dict[str, Vector], bytes]
"""Of one object its id, its vectors by view, and its packed display data."""

At = TypeVar("At")


class LineReader:
    """The objects of a file of JSON lines: `{"id", "x" or "views", "title"?, "text"?, "image"?, "tags"?}`, or
    objects of any other form, of which the columns say what is what.
    """

    def __init__(self, path: Path, columns: ObjectColumns, space: SpaceSpec | None) -> None:
        self._path, self.space = path, None
        try:
            self._reading = document_reading(columns, space)
        except ValueError as error:
            raise CatalogError(f"{path}: {error}") from None
        path.open("rb").close()  # a file that cannot be opened is an error at once

    def rows(self) -> int | None:
        """Unknown."""
        return None

    def batches(self) -> Iterator[ObjectRows]:
        """The objects in the order of the lines. Raises CatalogError naming file and line."""
        some, reading = False, self._reading

        def read(line: bytes) -> DocumentRead:
            return reading(json_vectors.read_json(line))

        with self._path.open("rb") as file:
            for rows in object_rows(self._lines(file), read, lambda at: f"{self._path}, line {at}"):
                some = True
                yield rows
        if not some:
            raise CatalogError(f"{self._path}: no objects; write one JSON object per line")

    def _lines(self, file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
        try:
            yield from numbered_lines(file)
        except ValueError as error:
            raise CatalogError(f"{self._path}: {error}") from None


def object_rows(
    documents: Iterable[tuple[At, Any]], read: Callable[[Any], DocumentRead], place: Callable[[At], str]
) -> Iterator[ObjectRows]:
    """Documents, each with where it is, as batches of objects.

    read: raises ValueError. place: where one is, for messages. Raises CatalogError naming the place of the
    first that cannot be used, or that is unlike the first.
    """
    first: dict[str, Vector] | None = None
    held: list[tuple[At, DocumentRead]] = []
    for at, document in documents:
        try:
            found = read(document)
            first = first or found[1]
            _check_like(found[1], first)
        except ValueError as error:
            raise CatalogError(f"{place(at)}: {error}") from None
        except RecursionError:
            raise CatalogError(f"{place(at)}: too deep; an object is a flat one of JSON") from None
        held.append((at, found))
        if len(held) == BATCH_ROWS:
            yield _batch(held, place)
            held = []
    if held:
        yield _batch(held, place)


def _batch(held: list[tuple[At, DocumentRead]], place: Callable[[At], str]) -> ObjectRows:
    views = {name: json_vectors.column_of([one[1][name] for _, one in held]) for name in held[0][1][1]}
    shown = [one[2] for _, one in held]
    ids = [one[0] for _, one in held]
    return ObjectRows(ids, views, shown if any(shown) else None, lambda row: place(held[row][0]))


def document_reading(columns: ObjectColumns, space: SpaceSpec | None) -> Callable[[Any], DocumentRead]:
    """What reads one object of a JSON document by the columns that were given, else by our own keys; raises
    ValueError, also at once where the columns do not fit the space."""
    vectors = columns.vectors(space)
    return _Mapped(columns, vectors).read if columns else _read_own


def _read_own(document: Any) -> DocumentRead:
    fields = json_vectors.check_fields(document, (*json_vectors.FIELDS, *SHOWN))
    given = {name: fields.get(name) for name in SHOWN[:3]}
    tags = fields.get("tags", [])
    shown = packed_display(Display(**given, tags=tags_of([tags]))) if tags or any(given.values()) else b""
    return fields["id"], json_vectors.read_features(fields), shown


class _Mapped:
    def __init__(self, columns: ObjectColumns, vectors: Mapping[str, VectorColumns]) -> None:
        self._columns, self._vectors = columns, vectors

    def read(self, fields: Any) -> DocumentRead:
        if not isinstance(fields, dict):
            raise ValueError("not an object of JSON; write one object per line")
        texts = {name: getattr(self._columns, name) for name in SHOWN[:3]}
        found = {name: _at(fields, key, None) if key else None for name, key in texts.items()}
        given = {name: None if one is None or one == "" else str(one) for name, one in found.items()}
        tags = [_at(fields, key, None) for key in self._columns.tags]
        object_id = _at(fields, self._columns.id or "id")
        if isinstance(object_id, bool) or not isinstance(object_id, str | int):
            raise ValueError(f"{self._columns.id or 'id'!r} is neither text nor a whole number")
        views = (
            {name: self._vector(name, where, fields) for name, where in self._vectors.items()}
            if self._vectors
            else json_vectors.read_features({key: fields[key] for key in ("x", "views") if key in fields})
        )
        return str(object_id), views, shown_of(given, tags)

    def _vector(self, name: str, where: VectorColumns, fields: dict[str, Any]) -> Vector:
        if isinstance(where, SparsePair):
            raw = {"indices": _at(fields, where.indices), "values": _at(fields, where.values)}
            return json_vectors.read_vector(name, raw)
        if isinstance(where, tuple):
            return json_vectors.read_vector(name, [_at(fields, one) for one in where])
        return json_vectors.read_vector(name, _at(fields, where))


_NEEDED = object()


def _at(fields: dict[str, Any], name: str, default: Any = _NEEDED) -> Any:
    """The value of a key, or, of `a.b`, of the key `b` inside of `a`."""
    found: Any = fields
    if name in fields:
        return fields[name]
    for part in name.split("."):
        if not isinstance(found, dict) or part not in found:
            if default is not _NEEDED:
                return default
            raise ValueError(f"there is no {name!r}; the line has {listed(list(fields))}")
        found = found[part]
    return found


def _check_like(row: Mapping[str, Vector], first: Mapping[str, Vector]) -> None:
    if set(row) != set(first):
        raise ValueError(f"has views {sorted(row)!a}, the first object {sorted(first)!a}")
    for name, vector in row.items():
        like = first[name]
        if isinstance(vector, SparseVector) != isinstance(like, SparseVector):
            raise ValueError(f"view {name[:40]!a} is dense in one object and sparse in another")
        if isinstance(vector, np.ndarray) and isinstance(like, np.ndarray) and len(vector) != len(like):
            raise ValueError(
                f"view {name[:40]!a} has {len(vector)} coordinates, the first object {len(like)}"
            )
