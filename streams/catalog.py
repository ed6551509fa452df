"""The catalog: an immutable snapshot of objects' features by id, with a digest; what it is read by;
and objects as sent, resolved to its rows or to checked inline vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self, cast

import numpy as np

from streams import poison
from streams.codec import raw_vector
from streams.event import (
    Column,
    DenseColumn,
    Int32Array,
    ObjectRef,
    SpaceSpec,
    SparseColumn,
    ViewSpec,
    kind_of,
)
from streams.ids import Packed
from streams.objects.catalog_file import (
    DEFAULT_SPACE,
    CatalogFile,
    content_digest,
    map_arrays,
    texts_of,
)
from streams.objects.columns import ObjectColumns
from streams.objects.from_arrays import ArrayReader, CatalogFileReader, ids_file_of, is_catalog
from streams.objects.from_lines import LineReader
from streams.objects.rows import (
    CatalogError,
    ObjectReader,
    ObjectRows,
    RowChecks,
    concatenated,
    faulty_rows,
    unreadable,
)
from streams.poison import Poison
from streams.wire import RawVector, read_object


class Catalog:
    """Objects' features by id: row i of every column belongs to `ids[i]`.

    `digest` is the SHA-256 over space, ids and arrays: two catalogs with the same digest give every
    object the same features. `shown`: packed display data by row, None where the source has none; no part of
    the digest. Raises CatalogError when ids repeat or columns do not fit the space.
    """

    def __init__(
        self, ids: Sequence[str], views: Mapping[str, Column], space: SpaceSpec, shown: Packed | None = None
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


def in_memory(reader: ObjectReader, space: SpaceSpec | None, each: Callable[[int], None]) -> Catalog:
    """All objects of a reader; `each` is called with how many there are so far. Raises CatalogError."""
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
        return in_memory(reader, space, each)
    except OSError as error:
        raise unreadable(place, error) from None
    except CatalogError as error:
        if str(error).startswith((str(place), str(ids))):
            raise
        raise CatalogError(f"{place}: {error}") from None


def _spec(name: str, batches: Sequence[ObjectRows]) -> ViewSpec:
    """The view as its objects are: a sparse one reaches to their largest index."""
    columns = [column for rows in batches if isinstance(column := rows.views[name], SparseColumn)]
    if not columns:
        return ViewSpec(name, "dense", batches[0].views[name].dim)
    return ViewSpec(name, "sparse", 1 + max((int(one.indices.max(initial=0)) for one in columns), default=0))


def _shown(batches: Sequence[ObjectRows]) -> Packed | None:
    if all(rows.shown is None for rows in batches):
        return None
    return Packed.of([one for rows in batches for one in rows.shown or [b""] * len(rows)])


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
        raise unreadable(error.filename or path, error) from None


def _opened(path: Path, ids: Path | None, columns: ObjectColumns, space: SpaceSpec | None) -> ObjectReader:
    from streams.tables import is_table

    name = path.name.lower()
    if name.endswith(".jsonl"):
        return LineReader(path, columns, space)
    if name.endswith(".safetensors"):
        if ids is None and not columns and (is_catalog(map_arrays(path)[1]) or ids_file_of(path) is None):
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
        raise unreadable(path, error) from None
    if path.is_dir():
        return sorted(one for one in path.rglob("*") if one.is_file())
    own = ids
    if own is None and path.name.lower().endswith((".npy", ".npz", ".safetensors")):
        own = ids_file_of(path)
    return [path] if own is None else [path, own]


RawParts = tuple[RawVector, ...]
"""One object's inline vectors as bytes, in the order of the space's views."""


@dataclass(frozen=True, slots=True)
class RoleColumns:
    """Where the features of n objects are.

    `rows` int32 [n]: the catalog row, or -1 where the object came with its features. `inline`: by
    view name, a column of n rows whose row i is all zero where `rows[i] >= 0`; None when every
    object came from the catalog.
    """

    rows: Int32Array
    inline: dict[str, Column] | None

    def __len__(self) -> int:
        return len(self.rows)


def build_role(space: SpaceSpec, rows: Sequence[int], parts: Sequence[RawParts | None]) -> RoleColumns:
    """Columns from per-object catalog rows and inline bytes (None where the object is in the catalog)."""
    row_array = np.array(rows, np.int32)
    if not (row_array < 0).any():
        return RoleColumns(row_array, None)
    empty: list[bytes] = [b"", b""]
    blank = tuple(bytes(4 * view.dim) if view.kind == "dense" else empty for view in space.views)
    filled = [blank if one is None else one for one in parts]
    inline = {view.name: _column(view, [one[j] for one in filled]) for j, view in enumerate(space.views)}
    return RoleColumns(row_array, inline)


def _column(view: ViewSpec, vectors: Sequence[RawVector]) -> Column:
    """One buffer per array: the bytes of all vectors joined, then read in place."""
    if view.kind == "dense":
        joined = b"".join(cast(Sequence[bytes], vectors))
        return DenseColumn(np.frombuffer(joined, "<f4").reshape(len(vectors), view.dim))
    pairs = cast(Sequence[list[bytes]], vectors)
    indices = [pair[0] for pair in pairs]
    indptr = np.zeros(len(pairs) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, indices), np.int64, len(pairs)) // 4, out=indptr[1:])
    values = np.frombuffer(b"".join([pair[1] for pair in pairs]), "<f4")
    return SparseColumn(indptr, np.frombuffer(b"".join(indices), "<i4"), values, view.dim)


class Resolver:
    """Checks objects against one space and looks ids up in one catalog (None: there is none)."""

    def __init__(self, space: SpaceSpec, catalog: Catalog | None) -> None:
        if catalog is not None and catalog.space != space:
            raise ValueError(f"the catalog's space {catalog.space.id!r} is not the configured {space.id!r}")
        self.space = space
        # per view: its name, and the bytes of its dense vectors or 0 for a sparse view
        self._sizes = [(view.name, 4 * view.dim if view.kind == "dense" else 0) for view in space.views]
        self._row_of = catalog.row_of if catalog is not None else None

    def check_space(self, space: str | None) -> None:
        """Refuse a record that names another space; one that names none is taken to be of this one."""
        if space is not None and space != self.space.id:
            raise Poison(poison.WRONG_SPACE, "sp is not the configured space")

    def locate(self, raw: Any, where: str) -> tuple[int, RawParts | None]:
        """`resolve` for an object as unpacked from the wire."""
        if type(raw) is tuple and len(raw) == 1 and self._row_of is not None:
            ((name, only),) = raw  # the common form, an id and nothing else, first
            if name == "id" and type(only) is str:
                row = self._row_of(only)
                if row is not None:
                    return row, None
        object_id, features = read_object(raw, where)
        return self.resolve(object_id, features, where)

    def resolve(
        self, object_id: str | None, features: Mapping[str, RawVector] | None, where: str
    ) -> tuple[int, RawParts | None]:
        """(catalog row, None), or (-1, vectors in the order of the space's views); raises Poison.

        Inline features win over the catalog. Numbers inside the vectors are not looked at.
        """
        if features is not None:
            return -1, self.inline(features, where)
        if object_id is None:
            raise Poison(poison.BAD_OBJECT, f"{where} has neither id nor features")
        if self._row_of is None:
            raise Poison(poison.NO_FEATURES, f"{where} is by id alone and no catalog is configured")
        row = self._row_of(object_id)
        if row is None:
            raise Poison(poison.UNKNOWN_OBJECT, f"{where}.id is not in the catalog")
        return row, None

    def inline(self, features: Mapping[str, RawVector], where: str) -> RawParts:
        """Vectors in the order of the space's views; raises Poison unless they are these, in their sizes."""
        parts = []
        for name, size in self._sizes:
            raw = features.get(name)
            # a dense vector on the wire is never empty, so that 0 fits sparse ones only
            if raw is None or (len(raw) != size if type(raw) is bytes else size):
                raise _misfit(raw, name, size, where)
            parts.append(raw)
        if len(features) != len(parts):
            raise Poison(poison.WRONG_VIEW, f"{where} has a view that space {self.space.id} does not know")
        return tuple(parts)


def _misfit(raw: RawVector | None, name: str, size: int, where: str) -> Poison:
    if raw is None:
        return Poison(poison.WRONG_VIEW, f"{where} lacks view {name}")
    if isinstance(raw, bytes) != (size > 0):
        return Poison(poison.WRONG_KIND, f"{where}: view {name} is {'dense' if size else 'sparse'}")
    return Poison(poison.WRONG_DIM, f"{where}: view {name} has {size // 4} coordinates")


def gather_objects(refs: Sequence[ObjectRef], space: SpaceSpec, catalog: Catalog | None) -> RoleColumns:
    """Where the features of these objects are, as columns; raises Poison naming the object's place.

    Only structure is checked: objects that came through `decode_impression` have checked numbers,
    except that a sparse index may lie beyond the view's size, which is refused here.
    """
    resolver = Resolver(space, catalog)
    rows: list[int] = []
    parts: list[RawParts | None] = []
    for place, ref in enumerate(refs):
        features = ref.features()
        raw = None if features is None else {name: raw_vector(vector) for name, vector in features.items()}
        where = f"object {place}"
        row, part = resolver.resolve(ref.id, raw, where)
        _check_indices(part, space, where)
        rows.append(row)
        parts.append(part)
    return build_role(space, rows, parts)


def check_features(ref: ObjectRef, space: SpaceSpec, where: str) -> None:
    """Raise Poison where an object brings features that are not of this space, in its views and sizes."""
    features = ref.features()
    if features is not None:
        raw = {name: raw_vector(vector) for name, vector in features.items()}
        _check_indices(Resolver(space, None).inline(raw, where), space, where)


def _check_indices(parts: RawParts | None, space: SpaceSpec, where: str) -> None:
    for view, raw in zip(space.views, parts or (), strict=False):
        # indices increase strictly, so the last one is the largest
        if isinstance(raw, list) and int.from_bytes(raw[0][-4:], "little", signed=True) >= view.dim:
            raise Poison(poison.INDEX_OUT_OF_RANGE, f"{where}: view {view.name} has size {view.dim}")
