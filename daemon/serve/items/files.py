"""Files of items to be put: JSON lines, or a catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from daemon.exits import EX_DATAERR, EX_USAGE, UserError
from daemon.serve.items.decoding import fault
from daemon.serve.items.display import FIELDS, display_of
from streams.catalog import load_catalog
from streams.catalog.lines import FIELDS as FEATURES
from streams.catalog.lines import read_features, read_fields
from streams.codec import raw_vector
from streams.event import (
    UNNAMED_VIEW,
    Column,
    DenseColumn,
    Float32Array,
    ObjectRef,
    SpaceSpec,
    SparseVector,
    Vector,
)
from streams.items import ItemPut, ItemRemove, item_record
from streams.poison import Poison
from streams.resolve import Resolver
from streams.source import OutRecord

KNOWN = (*FEATURES, *FIELDS)

Read = Callable[[int], None]
"""Is told how many bytes of the file have been read."""


def records_to_put(path: Path, space: SpaceSpec, read: Read) -> Iterator[OutRecord]:
    """A record for every object of a `.jsonl` file (one object per line) or a `.safetensors` catalog.

    Every object is checked as whoever follows the topic will check it. Raises UserError naming file and line,
    after what came before it was handed out; CatalogError.
    """
    if not path.is_file():
        raise UserError(f"{path}: there is no such file", "correct the path", EX_DATAERR)
    if path.suffix == ".jsonl":
        return _lines(path, space, read)
    if path.suffix == ".safetensors":
        return _catalog(path, space)
    raise UserError(f"{path}: items come from .jsonl or .safetensors", "rename or convert the file", EX_USAGE)


def removals(ids: list[str]) -> list[OutRecord]:
    """A record for every id; raises UserError for one that no item can have."""
    try:
        return [item_record(ItemRemove(one)) for one in ids]
    except Poison as error:
        raise UserError(f"not an id: {error.detail}", "an id has 1 to 512 bytes of UTF-8", EX_USAGE) from None


def _lines(path: Path, space: SpaceSpec, read: Read) -> Iterator[OutRecord]:
    resolver = Resolver(space, None)
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                read(len(line))
                if line.strip():
                    try:
                        yield _record(_read_line(line), resolver)
                    except (ValueError, Poison) as error:
                        detail = error.detail if isinstance(error, Poison) else str(error)
                        message = f"{path}, line {number}: {detail}"
                        raise UserError(message, "correct the line, or leave it out", EX_DATAERR) from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}", "correct the path", EX_DATAERR) from None


def _read_line(line: bytes) -> ItemPut:
    fields = read_fields(line, KNOWN)
    views = read_features(fields)
    if "x" in fields:
        return ItemPut(ObjectRef(fields["id"], x=views[UNNAMED_VIEW]), display_of(fields))
    return ItemPut(ObjectRef(fields["id"], views=views), display_of(fields))


def _catalog(path: Path, space: SpaceSpec) -> Iterator[OutRecord]:
    catalog, resolver = load_catalog(path, space), Resolver(space, None)
    for row, object_id in enumerate(catalog.ids):
        views = {name: _row(column, row) for name, column in catalog.views.items()}
        try:
            yield _record(ItemPut(ObjectRef(object_id, views=views)), resolver)
        except Poison as error:
            message = f"{path}, object {row} ({object_id[:40]!a}): {error.detail}"
            raise UserError(message, "leave it out", EX_DATAERR) from None


def _row(column: Column, row: int) -> Vector:
    if isinstance(column, DenseColumn):
        values: Float32Array = column.values[row]
        return values
    part = slice(int(column.indptr[row]), int(column.indptr[row + 1]))
    return SparseVector(column.indices[part], column.values[part])


def _record(item: ItemPut, resolver: Resolver) -> OutRecord:
    record = item_record(item)
    features = {name: raw_vector(vector) for name, vector in (item.item.features() or {}).items()}
    problem = fault(resolver.inline(features, "the item"), resolver.space)
    if problem is not None:
        raise problem
    return record
