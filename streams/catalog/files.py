"""Catalogs on disk: `.safetensors` (format tripletd.catalog/1) and `.jsonl`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from streams.catalog.lines import load_lines
from streams.catalog.snapshot import Catalog, CatalogError
from streams.event import UNNAMED_VIEW, Column, DenseColumn, SpaceSpec, SparseColumn, ViewSpec

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
        raise CatalogError(f"{path}: not a safetensors file ({error}); write it anew") from None
    if metadata.get("format") != FORMAT:
        raise CatalogError(f"{path}: metadata `format` is not {FORMAT!r}; write it with save_catalog")
    ids = _read_ids(path, arrays)
    views = {name: _read_view(path, name, arrays, metadata) for name in _view_names(path, arrays, metadata)}
    own = SpaceSpec(metadata.get("space", DEFAULT_SPACE), tuple(_spec(name, views[name]) for name in views))
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
                f"{path}: array {name!r} is missing or not {np.dtype(kind)} [n]; write it anew"
            )
    text, offsets = arrays["ids"].tobytes(), arrays["ids_offsets"]
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(text) or np.any(np.diff(offsets) < 1):
        raise CatalogError(
            f"{path}: array 'ids_offsets' does not cut 'ids' into non-empty ids; write it anew"
        )
    try:
        return [text[first:last].decode() for first, last in pairwise(offsets.tolist())]
    except UnicodeDecodeError:
        raise CatalogError(f"{path}: array 'ids' is not UTF-8; write it anew") from None


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
        raise CatalogError(f"{path}: its views and metadata `views` do not agree; write it anew")
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
        raise CatalogError(f"{path}: metadata 'dim.{name}' is not the size of the view; write it anew")
    values = array(".values", "f2 f4", 1).astype(np.float32, copy=False)
    return SparseColumn(array(".indptr", "i8", 1), array(".indices", "i4", 1), values, int(dim))


def _spec(name: str, column: Column) -> ViewSpec:
    return ViewSpec(
        name or UNNAMED_VIEW, "dense" if isinstance(column, DenseColumn) else "sparse", column.dim
    )
