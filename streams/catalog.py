"""The catalog: an immutable snapshot of objects' features by id, with a digest; and what it is read by."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from safetensors.numpy import save_file

from streams.event import Column, DenseColumn, SpaceSpec, SparseColumn, ViewSpec, kind_of
from streams.ids import Packed
from streams.objects.catalog_file import (
    DEFAULT_SPACE,
    FORMAT,
    CatalogFile,
    content_digest,
    texts_of,
)
from streams.objects.columns import ObjectColumns
from streams.objects.from_arrays import ArrayReader, CatalogFileReader, beside, is_catalog
from streams.objects.from_lines import LineReader
from streams.objects.rows import (
    CatalogError,
    ObjectReader,
    ObjectRows,
    RowChecks,
    concatenated,
    faulty_rows,
)


class Catalog:
    """Objects' features by id: row i of every column belongs to `ids[i]`.

    `digest` is the SHA-256 over space, ids and arrays: two catalogs with the same digest give every
    object the same features. `shown`: packed display data by row, None where the source has none; no part of
    the digest. Raises CatalogError when ids repeat or columns do not fit the space.
    """

    def __init__(
        self,
        ids: Sequence[str],
        views: Mapping[str, Column],
        space: SpaceSpec,
        shown: Packed | None = None,
    ) -> None:
        self.binary: Path | None = None  # the file that it is mapped from, where one was made of its source
        self.ids = list(ids)
        self.views = dict(views)
        self.space = space
        self.shown = shown
        self._check()
        self.digest = content_digest(space, self._id_pieces(), self._view_pieces)

    @classmethod
    def mapped(cls, file: CatalogFile, space: SpaceSpec, digest: str) -> Self:
        """What a `CatalogWriter` wrote of a source, and nobody changed since: checked when it was written."""
        catalog = cls.__new__(cls)
        catalog.binary = None
        catalog.ids = texts_of(file.ids, "the catalog")
        catalog.views, catalog.space, catalog.shown, catalog.digest = file.views, space, file.shown, digest
        return catalog

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {object_id: row for row, object_id in enumerate(self.ids)}

    def row_of(self, object_id: str) -> int | None:
        """The row of an object, or None when the catalog does not know it."""
        return self._rows.get(object_id)

    def _check(self) -> None:
        if len(self._rows) != len(self.ids):
            repeated = next(one for row, one in enumerate(self.ids) if self._rows[one] != row)
            raise CatalogError(f"the catalog holds id {repeated!r} twice; keep one of them")
        if set(self.views) != {view.name for view in self.space.views}:
            raise CatalogError(
                f"the catalog has views {sorted(self.views)}, the space "
                f"{sorted(view.name for view in self.space.views)}; make them agree"
            )
        for view in self.space.views:
            _check_column(self.views[view.name], view, len(self.ids))

    def _id_pieces(self) -> Iterator[bytes]:
        for object_id in self.ids:
            encoded = object_id.encode()
            yield len(encoded).to_bytes(4, "little") + encoded

    def _view_pieces(self, view: ViewSpec) -> Iterator[Any]:
        column = self.views[view.name]
        if isinstance(column, DenseColumn):
            yield np.ascontiguousarray(column.values, "<f4").data
        else:
            yield np.ascontiguousarray(column.indptr, "<i8").data
            yield np.ascontiguousarray(column.indices, "<i4").data
            yield np.ascontiguousarray(column.values, "<f4").data


def _check_column(column: Column, view: ViewSpec, rows: int) -> None:
    """Kind and shape, finite values, and for sparse views rising indices within the view's size."""
    kind = kind_of(column)
    if kind != view.kind or column.dim != view.dim:
        raise CatalogError(
            f"view {view.name!r} is {kind} with {column.dim} coordinates in the catalog, "
            f"{view.kind} with {view.dim} in the space; make them agree"
        )
    if len(column) != rows:
        raise CatalogError(f"view {view.name!r} has {len(column)} rows for {rows} ids; write one row per id")
    if isinstance(column, SparseColumn):
        indptr, indices = column.indptr, column.indices
        if indptr[0] != 0 or np.any(np.diff(indptr) < 0) or indptr[-1] != len(indices):
            raise CatalogError(
                f"view {view.name!r}: indptr does not fit {len(indices)} entries; write it again"
            )
        if len(column.values) != len(indices):
            raise CatalogError(f"view {view.name!r}: {len(indices)} indices for {len(column.values)} values")
    wrong = faulty_rows(column, view.dim)
    if wrong:
        raise CatalogError(f"view {view.name!r}, object {wrong[0][0]}: {wrong[0][1]}")


def load_catalog(
    path: str | Path,
    space: SpaceSpec | None = None,
    *,
    ids: str | Path | None = None,
    columns: ObjectColumns | None = None,
    each: Callable[[int], None] = lambda _: None,
) -> Catalog:
    """Read a catalog of any kind into memory; with a space, it must be of that space (id, views, sizes).

    ids: the file of the ids of arrays. columns: what is what; by default, what the names say. each: called
    with how many objects there are so far. Without a space, a catalog in its own format states one; another's
    is taken from its first object, sparse views reaching to their largest index. Raises CatalogError naming
    the file, the place in it, and the remedy.
    """
    place = Path(path)
    try:
        reader = open_objects(place, None if ids is None else Path(ids), columns or ObjectColumns(), space)
        return _in_memory(reader, space, each)
    except OSError as error:
        raise CatalogError(
            f"{place}: {error.strerror or error}; correct the path or its permissions"
        ) from None
    except CatalogError as error:
        if str(error).startswith((str(place), str(ids))):
            raise
        raise CatalogError(f"{place}: {error}") from None


def _in_memory(reader: ObjectReader, space: SpaceSpec | None, each: Callable[[int], None]) -> Catalog:
    checks, batches, count = RowChecks(space), [], 0
    for rows in reader.batches():
        checks.check(rows)
        batches.append(rows)
        each(count := count + len(rows))
    if not batches:
        raise CatalogError("no objects; there must be one at least")
    ids = [one for rows in batches for one in rows.ids]
    settled = (
        space
        or reader.space
        or SpaceSpec(DEFAULT_SPACE, tuple(_spec(name, batches) for name in batches[0].views))
    )
    dims = {view.name: view.dim for view in settled.views}
    names = batches[0].views
    views = {name: concatenated([rows.views[name] for rows in batches], dims.get(name, 0)) for name in names}
    return Catalog(ids, views, settled, _shown(batches))


def _spec(name: str, batches: Sequence[ObjectRows]) -> ViewSpec:
    """The view as its objects are: a sparse one reaches to their largest index."""
    first = batches[0].views[name]
    if isinstance(first, DenseColumn):
        return ViewSpec(name, "dense", first.dim)
    columns = [column for rows in batches if isinstance(column := rows.views[name], SparseColumn)]
    return ViewSpec(name, "sparse", 1 + max((int(one.indices.max(initial=0)) for one in columns), default=0))


def _shown(batches: Sequence[ObjectRows]) -> Packed | None:
    if all(rows.shown is None for rows in batches):
        return None
    return Packed.of([one for rows in batches for one in rows.shown or [b""] * len(rows)])


def save_catalog(catalog: Catalog, path: str | Path, *, half: bool = False) -> None:
    """Write a catalog as `.safetensors`; `half` stores values as float16, which rounds them."""
    value_type = np.float16 if half else np.float32
    encoded = [object_id.encode() for object_id in catalog.ids]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(one) for one in encoded], out=offsets[1:])
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "ids": np.frombuffer(b"".join(encoded), np.uint8),
        "ids_offsets": offsets,
    }
    metadata = {"format": FORMAT, "space": catalog.space.id}
    metadata["views"] = json.dumps([view.name for view in catalog.space.views])
    for name, column in catalog.views.items():
        if isinstance(column, DenseColumn):
            arrays[f"view.{name}"] = np.ascontiguousarray(column.values, value_type)
        else:
            arrays[f"view.{name}.indptr"] = np.ascontiguousarray(column.indptr)
            arrays[f"view.{name}.indices"] = np.ascontiguousarray(column.indices)
            arrays[f"view.{name}.values"] = np.ascontiguousarray(column.values, value_type)
            metadata[f"dim.{name}"] = str(column.dim)
    if catalog.shown is not None:
        arrays |= {"shown": catalog.shown.data, "shown_offsets": catalog.shown.bounds}
    save_file(arrays, str(path), metadata)


ENDINGS = ".parquet, .arrow, .feather, .csv, .tsv (also .gz), .jsonl, .npy, .npz or .safetensors"


def open_objects(
    path: Path, ids: Path | None, columns: ObjectColumns, space: SpaceSpec | None
) -> ObjectReader:
    """A reader of the objects at a path: a file, or a folder of tables of one kind.

    ids: the file of the ids of .npy, .npz and .safetensors, where they are not found by themselves. space:
    what the objects have to be of, where that is known. Raises CatalogError naming the file and the remedy.
    """
    try:
        return _opened(path, ids, columns, space)
    except OSError as error:
        place = error.filename or path
        raise CatalogError(
            f"{place}: {error.strerror or error}; correct the path or its permissions"
        ) from None


def _opened(path: Path, ids: Path | None, columns: ObjectColumns, space: SpaceSpec | None) -> ObjectReader:
    from streams.tables import is_table

    name = path.name.lower()
    if name.endswith(".jsonl"):
        return LineReader(path, columns, space)
    if name.endswith(".safetensors"):
        from streams.objects.catalog_file import map_arrays

        if ids is None and not columns and (is_catalog(map_arrays(path)[1]) or beside(path) is None):
            return CatalogFileReader(path, space)
        return ArrayReader(path, ids, columns, space)
    if name.endswith((".npy", ".npz")):
        return ArrayReader(path, ids, columns, space)
    path.stat()
    if is_table(path):
        from streams.objects.from_tables import TableReader

        return TableReader(path, columns, space)
    what = "a folder without tables" if path.is_dir() else "no catalog by its name"
    raise CatalogError(f"{path}: {what}; a catalog is a folder of tables, or ends in {ENDINGS}")


def source_files(path: Path, ids: Path | None) -> list[Path]:
    """The files that the objects are read from, in order: those of a folder, and the one of the ids.

    Raises CatalogError where there is none.
    """
    try:
        path.stat()
    except OSError as error:
        raise CatalogError(
            f"{path}: {error.strerror or error}; correct the path or its permissions"
        ) from None
    if path.is_dir():
        return sorted(one for one in path.rglob("*") if one.is_file())
    own = ids
    if own is None and path.name.lower().endswith((".npy", ".npz", ".safetensors")):
        own = beside(path)
    return [path] if own is None else [path, own]
