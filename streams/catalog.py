"""The catalog: an immutable snapshot of objects' features by id, with a digest, and its files.

On disk it is `.safetensors` (format tripletd.catalog/1) or `.jsonl`, a line per object:
`{"id": ..., "x": vector}` or `{"id": ..., "views": {name: vector}}`. A vector is a list of numbers (dense) or
`{"indices": [...], "values": [...]}` (sparse).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from streams.event import (
    UNNAMED_VIEW,
    Column,
    DenseColumn,
    SpaceSpec,
    SparseColumn,
    SparseVector,
    Vector,
    ViewSpec,
)


class CatalogError(Exception):
    """A catalog that cannot be used; the message names the file, the line or array, and the remedy."""


class Catalog:
    """Objects' features by id: row i of every column belongs to `ids[i]`.

    `digest` is the SHA-256 over space, ids and arrays: two catalogs with the same digest give every
    object the same features. Raises CatalogError when ids repeat or columns do not fit the space.
    """

    def __init__(self, ids: Sequence[str], views: Mapping[str, Column], space: SpaceSpec) -> None:
        self.ids = list(ids)
        self.views = dict(views)
        self.space = space
        self._rows = {object_id: row for row, object_id in enumerate(self.ids)}
        self._check()
        self.digest = self._digest()

    def __len__(self) -> int:
        return len(self.ids)

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

    def _digest(self) -> str:
        digest = sha256(f"tripletd.catalog/1\n{self.space.id}\n".encode())
        for object_id in self.ids:
            encoded = object_id.encode()
            digest.update(len(encoded).to_bytes(4, "little"))
            digest.update(encoded)
        for view in self.space.views:
            column = self.views[view.name]
            digest.update(f"{view.name}\n{view.kind}\n{view.dim}\n".encode())
            if isinstance(column, DenseColumn):
                digest.update(np.ascontiguousarray(column.values, "<f4").data)
            else:
                digest.update(np.ascontiguousarray(column.indptr, "<i8").data)
                digest.update(np.ascontiguousarray(column.indices, "<i4").data)
                digest.update(np.ascontiguousarray(column.values, "<f4").data)
        return digest.hexdigest()


def _check_column(column: Column, view: ViewSpec, rows: int) -> None:
    """Shape, finite values, and for sparse views strictly increasing indices within the view's size."""
    kind = "dense" if isinstance(column, DenseColumn) else "sparse"
    if kind != view.kind or column.dim != view.dim:
        raise CatalogError(
            f"view {view.name!r} is {kind} with {column.dim} coordinates in the catalog, "
            f"{view.kind} with {view.dim} in the space; make them agree"
        )
    if len(column) != rows:
        raise CatalogError(f"view {view.name!r} has {len(column)} rows for {rows} ids; write one row per id")
    if not np.isfinite(column.values).all():
        raise CatalogError(f"view {view.name!r} holds NaN or an infinity; remove it")
    if isinstance(column, SparseColumn):
        _check_sparse(column, view)


def _check_sparse(column: SparseColumn, view: ViewSpec) -> None:
    indptr, indices = column.indptr, column.indices
    if indptr[0] != 0 or np.any(np.diff(indptr) < 0) or indptr[-1] != len(indices):
        raise CatalogError(f"view {view.name!r}: indptr does not fit {len(indices)} entries; write it again")
    if len(column.values) != len(indices):
        raise CatalogError(f"view {view.name!r}: {len(indices)} indices for {len(column.values)} values")
    if len(indices) and (indices.min() < 0 or indices.max() >= view.dim):
        raise CatalogError(f"view {view.name!r}: an index is not within 0..{view.dim - 1}; correct it")
    rising = indices[1:] > indices[:-1]
    starts = indptr[1:-1]
    rising[starts[(starts > 0) & (starts < len(indices))] - 1] = True  # a new row may start lower
    if not rising.all():
        raise CatalogError(f"view {view.name!r}: the indices of a row are not strictly increasing; sort them")


FIELDS = ("id", "x", "views")

_Row = dict[str, Vector]


def load_lines(path: Path, space: SpaceSpec | None, default_space: str) -> Catalog:
    """Read a catalog of JSON lines (see `streams.catalog.load_catalog`)."""
    ids: list[str] = []
    rows: list[_Row] = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                fields = read_fields(line, FIELDS)
                row = read_features(fields)
                _check_like_first(row, rows)
            except ValueError as error:
                raise CatalogError(f"{path}, line {number}: {error}") from None
            ids.append(fields["id"])
            rows.append(row)
    if not rows:
        raise CatalogError(f"{path}: no objects; write one JSON object per line")
    if space is None:
        space = SpaceSpec(default_space, tuple(_spec_of_rows(name, rows) for name in rows[0]))
    return Catalog(ids, {name: _column(name, rows, space) for name in rows[0]}, space)


def read_fields(line: bytes, known: Sequence[str]) -> dict[str, Any]:
    """The fields of a line about one object: `id`, a text that UTF-8 can write, and none that is not `known`.

    Raises ValueError saying what is wrong, and the remedy.
    """
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("not JSON; write one object per line") from None
    if not isinstance(fields, dict) or not isinstance(fields.get("id"), str) or not fields["id"]:
        raise ValueError('needs an "id" that is a text; add it')
    if any("\ud800" <= character <= "\udfff" for character in fields["id"]):
        raise ValueError('"id" holds half a character (a lone surrogate), which UTF-8 cannot write')
    unknown = sorted(set(fields) - set(known))
    if unknown:
        raise ValueError(f"unknown key {unknown[0][:40]!a}; known are {', '.join(known)}")
    return fields


def read_features(fields: Mapping[str, Any]) -> dict[str, Vector]:
    """The vectors of an object by view, from its `x` or its `views`; ValueError naming what is wrong."""
    if ("x" in fields) == ("views" in fields):
        raise ValueError('needs exactly one of "x" and "views"')
    views = {UNNAMED_VIEW: fields["x"]} if "x" in fields else fields["views"]
    if not isinstance(views, dict) or not views:
        raise ValueError('"views" is not an object of at least one view')
    return {name: read_vector(name, raw) for name, raw in views.items()}


def read_vector(name: str, raw: Any) -> Vector:
    """The vector of view `name` as JSON gives it; raises ValueError naming the view and what is wrong."""
    if isinstance(raw, dict):
        if set(raw) != {"indices", "values"}:
            raise ValueError(f'view {name[:40]!a}: a sparse vector has "indices" and "values"')
        indices, values = _numbers(name, raw["indices"], np.int64), _numbers(name, raw["values"], np.float32)
        if len(indices) != len(values):
            raise ValueError(f"view {name[:40]!a}: {len(indices)} indices for {len(values)} values")
        if len(indices) and not (indices.min() >= 0 and indices.max() < 2**31):
            raise ValueError(f"view {name[:40]!a}: an index is negative or too large")
        if np.any(np.diff(indices) <= 0):
            raise ValueError(f"view {name[:40]!a}: indices are not strictly increasing; sort them")
        return SparseVector(indices.astype(np.int32), values)
    return _numbers(name, raw, np.float32)


def _numbers(name: str, raw: Any, kind: type[Any]) -> np.ndarray[Any, Any]:
    wanted = int if kind is np.int64 else (int, float)
    if not isinstance(raw, list) or any(isinstance(one, bool) or not isinstance(one, wanted) for one in raw):
        raise ValueError(f"view {name[:40]!a}: not a list of {'whole ' if wanted is int else ''}numbers")
    try:
        with np.errstate(over="ignore"):
            found = np.array(raw, kind)
    except OverflowError:
        raise ValueError(f"view {name[:40]!a}: a number is too large") from None
    if kind is np.float32 and not np.isfinite(found).all():
        raise ValueError(f"view {name[:40]!a}: a number is not finite in float32")
    return found


def _check_like_first(row: _Row, rows: list[_Row]) -> None:
    first = rows[0] if rows else row
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


def _spec_of_rows(name: str, rows: list[_Row]) -> ViewSpec:
    first = rows[0][name]
    if not isinstance(first, SparseVector):
        return ViewSpec(name, "dense", len(first))
    largest = max((int(one.indices[-1]) for one in _sparse(name, rows) if len(one.indices)), default=0)
    return ViewSpec(name, "sparse", largest + 1)


def _column(name: str, rows: list[_Row], space: SpaceSpec) -> Column:
    if not isinstance(rows[0][name], SparseVector):
        return DenseColumn(np.stack([row[name] for row in rows]))  # type: ignore[misc]
    vectors = _sparse(name, rows)
    indptr = np.zeros(len(vectors) + 1, np.int64)
    np.cumsum([len(one.indices) for one in vectors], out=indptr[1:])
    dim = next((view.dim for view in space.views if view.name == name), 0)
    indices = np.concatenate([one.indices for one in vectors])
    return SparseColumn(indptr, indices, np.concatenate([one.values for one in vectors]), dim)


def _sparse(name: str, rows: list[_Row]) -> list[SparseVector]:
    return [vector for row in rows if isinstance(vector := row[name], SparseVector)]


FORMAT = "tripletd.catalog/1"
DEFAULT_SPACE = "default"

_Arrays = dict[str, np.ndarray[Any, Any]]


def load_catalog(path: str | Path, space: SpaceSpec | None = None) -> Catalog:
    """Read a catalog; with a space, it must be of that space (id, views, kinds, sizes).

    Without one, a `.safetensors` catalog states its own; a `.jsonl` catalog's is taken from its first
    object, sparse views reaching to their largest index. float16 is widened to float32. Raises
    CatalogError naming the file, the line or array, and the remedy.
    """
    place = Path(path)
    try:
        if place.suffix == ".safetensors":
            return _load_safetensors(place, space)
        if place.suffix == ".jsonl":
            return load_lines(place, space, DEFAULT_SPACE)
    except OSError as error:
        raise CatalogError(
            f"{place}: {error.strerror or error}; correct the path or its permissions"
        ) from None
    except CatalogError as error:
        if str(error).startswith(str(place)):
            raise
        raise CatalogError(f"{place}: {error}") from None
    raise CatalogError(f"{place}: a catalog ends in .safetensors or .jsonl; rename or convert it")


def save_catalog(catalog: Catalog, path: str | Path, *, half: bool = False) -> None:
    """Write a catalog as `.safetensors`; `half` stores values as float16, which rounds them."""
    value_type = np.float16 if half else np.float32
    encoded = [object_id.encode() for object_id in catalog.ids]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(one) for one in encoded], out=offsets[1:])
    arrays: _Arrays = {"ids": np.frombuffer(b"".join(encoded), np.uint8), "ids_offsets": offsets}
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
    save_file(arrays, str(path), metadata)


def _load_safetensors(path: Path, space: SpaceSpec | None) -> Catalog:
    if not path.is_file():
        raise CatalogError(f"{path}: there is no such file; correct the path")
    try:
        with safe_open(str(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays: _Arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except SafetensorError as error:
        raise CatalogError(f"{path}: not a safetensors file ({error}); write it again") from None
    if metadata.get("format") != FORMAT:
        raise CatalogError(f"{path}: metadata `format` is not {FORMAT!r}; write it with save_catalog")
    ids = _read_ids(path, arrays)
    views = {name: _read_view(path, name, arrays, metadata) for name in _view_names(path, arrays, metadata)}
    own = SpaceSpec(
        metadata.get("space", DEFAULT_SPACE), tuple(_spec_of_column(name, views[name]) for name in views)
    )
    if space is not None and own.id != space.id:
        raise CatalogError(
            f"{path}: made for space {own.id!r}, not {space.id!r}; use a catalog of that space"
        )
    return Catalog(ids, views, space or own)


def _read_ids(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> list[str]:
    """Ids from their concatenated UTF-8 and offsets."""
    for name, kind in (("ids", np.uint8), ("ids_offsets", np.int64)):
        if name not in arrays or arrays[name].dtype != kind or arrays[name].ndim != 1:
            raise CatalogError(
                f"{path}: array {name!r} is missing or not {np.dtype(kind)} [n]; write it again"
            )
    text, offsets = arrays["ids"].tobytes(), arrays["ids_offsets"]
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(text) or np.any(np.diff(offsets) < 1):
        raise CatalogError(
            f"{path}: array 'ids_offsets' does not cut 'ids' into non-empty ids; write it again"
        )
    try:
        return [text[first:last].decode() for first, last in pairwise(offsets.tolist())]
    except UnicodeDecodeError:
        raise CatalogError(f"{path}: array 'ids' is not UTF-8; write it again") from None


def _view_names(path: Path, arrays: Mapping[str, Any], metadata: Mapping[str, str]) -> list[str]:
    """View names in the order the writer gave them, else sorted."""
    found = {name.removeprefix("view.") for name in arrays if name.startswith("view.")}
    names = {
        name.rpartition(".")[0] if name.endswith((".indptr", ".indices", ".values")) else name
        for name in found
    }
    try:
        ordered = json.loads(metadata.get("views", "null")) or sorted(names)
    except ValueError:
        ordered = []
    if (
        not names
        or not isinstance(ordered, list)
        or len(ordered) != len(names)
        or set(map(str, ordered)) != names
    ):
        raise CatalogError(f"{path}: its views and metadata `views` do not agree; write it again")
    return [str(name) for name in ordered]


def _read_view(
    path: Path, name: str, arrays: Mapping[str, np.ndarray[Any, Any]], metadata: Mapping[str, str]
) -> Column:
    def array(suffix: str, kinds: str, ndim: int) -> np.ndarray[Any, Any]:
        found = arrays.get(f"view.{name}{suffix}")
        if found is None or found.dtype.str[1:] not in kinds.split() or found.ndim != ndim:
            raise CatalogError(
                f"{path}: array 'view.{name}{suffix}' is missing or not {kinds} of {ndim} axes"
            )
        return found

    if f"view.{name}" in arrays:
        return DenseColumn(array("", "f2 f4", 2).astype(np.float32, copy=False))
    dim = metadata.get(f"dim.{name}", "")
    if not dim.isascii() or not dim.isdigit() or not 0 < int(dim) < 2**31:
        raise CatalogError(f"{path}: metadata 'dim.{name}' is not the size of the view; write it again")
    values = array(".values", "f2 f4", 1).astype(np.float32, copy=False)
    return SparseColumn(array(".indptr", "i8", 1), array(".indices", "i4", 1), values, int(dim))


def _spec_of_column(name: str, column: Column) -> ViewSpec:
    return ViewSpec(
        name or UNNAMED_VIEW, "dense" if isinstance(column, DenseColumn) else "sparse", column.dim
    )
