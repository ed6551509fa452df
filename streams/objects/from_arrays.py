"""Objects from arrays: .npy, .npz and .safetensors, whose ids may stand in a file of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from streams.event import Column, DenseColumn, Float32Array, SpaceSpec, SparseColumn
from streams.objects.catalog_file import BF16, FORMAT, Arrays, map_arrays, map_catalog, texts_of
from streams.objects.columns import ObjectColumns, SparsePair, VectorColumns, listed, single_view
from streams.objects.rows import BATCH_ROWS, CatalogError, ObjectRows
from streams.text_files import read_text

_IDS_ENDINGS = ("{}.ids.txt", "{}.ids.npy", "ids.txt", "ids.npy")
_IDS = "ids"


class ArrayReader:
    """The objects of arrays: row i of each is object i."""

    def __init__(self, path: Path, ids: Path | None, columns: ObjectColumns, space: SpaceSpec | None) -> None:
        self._path, self.space = path, None
        arrays = load_arrays(path)
        self._views = self._found_views(arrays, columns, space)
        rows = {len(column) for column in self._views.values()}
        self._ids, source = self._found_ids(arrays, ids, columns)
        if rows != {len(self._ids)}:
            counts = ", ".join(f"{count:,}" for count in sorted(rows))
            raise CatalogError(
                f"{source}: {len(self._ids):,} ids for {counts} rows of vectors; give one id for each row"
            )

    def rows(self) -> int | None:
        """How many objects there are."""
        return len(self._ids)

    def batches(self) -> Iterator[ObjectRows]:
        """The objects in their order."""
        for at in range(0, len(self._ids), BATCH_ROWS):
            ids = self._ids[at : at + BATCH_ROWS]
            views = {name: piece(column, at, at + len(ids)) for name, column in self._views.items()}
            yield ObjectRows(ids, views, None, lambda row, at=at: f"{self._path}, row {at + row + 1}")  # type: ignore[misc]

    def _found_views(
        self, arrays: Arrays, columns: ObjectColumns, space: SpaceSpec | None
    ) -> dict[str, Column]:
        vectors = [name for name, one in arrays.items() if one.ndim == 2 and _is_numbers(one)]
        try:
            said = columns.vectors(space)
            if not said and space is not None and all(view.name in arrays for view in space.views):
                said = {view.name: view.name for view in space.views}
            if not said:
                if len(vectors) != 1:
                    raise ValueError(
                        f"there are {len(vectors)} arrays of vectors among {listed(list(arrays))}; name the "
                        "vectors' with catalog.columns.x, or of each view with catalog.columns.views.NAME"
                    )
                said = {single_view(space): vectors[0]}
            return {name: self._column(where, arrays) for name, where in said.items()}
        except ValueError as error:
            raise CatalogError(f"{self._path}: {error}") from None

    def _column(self, where: VectorColumns, arrays: Arrays) -> Column:
        if not isinstance(where, str):
            what = "a pair of indices and values" if isinstance(where, SparsePair) else "a list of columns"
            raise ValueError(f"{what} is for tables and lines; name one array of a row per object")
        if where not in arrays:
            raise ValueError(f"there is no array {where!r}; there are {listed(list(arrays))}")
        found = arrays[where]
        if found.dtype.names and found.dtype != BF16:
            kind = found.dtype.names[0]
            raise ValueError(f"array {where!r} is of type {kind}, which is not read; save it as BF16 or F32")
        if found.ndim != 2 or not _is_numbers(found):
            raise ValueError(
                f"array {where!r} is {found.dtype} of {found.ndim} axes; numbers of two are needed"
            )
        return DenseColumn(found)

    def _found_ids(self, arrays: Arrays, ids: Path | None, columns: ObjectColumns) -> tuple[list[str], Path]:
        name = columns.id or next((one for one in (_IDS, "id") if one in arrays), "")
        if ids is None and name in arrays and arrays[name].ndim == 1:
            return id_texts(arrays[name], self._path), self._path
        ids = ids or ids_file_of(self._path)
        if ids is None:
            raise CatalogError(
                f"{self._path}: the ids of its rows are not known; name a file with catalog.ids: a line "
                "for each row, or .npy"
            )
        if ids.name.endswith(".npy"):
            (found,) = load_arrays(ids).values()
            return id_texts(found, ids), ids
        try:
            return read_text(ids).splitlines(), ids
        except ValueError as error:
            raise CatalogError(f"{ids}: {error}") from None


def _is_numbers(array: np.ndarray[Any, Any]) -> bool:
    return array.dtype.kind in "fiu" or array.dtype == BF16


def _float32(array: np.ndarray[Any, Any]) -> Float32Array:
    if array.dtype == BF16:
        return (array["BF16"].astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore"):
        return array.astype(np.float32)


def ids_file_of(path: Path) -> Path | None:
    """The file of ids next to a file of vectors, by its name; None where there is none."""
    places = (path.with_name(one.format(path.stem)) for one in _IDS_ENDINGS)
    return next((place for place in places if place.is_file()), None)


def id_texts(found: np.ndarray[Any, Any], path: Path) -> list[str]:
    """An array of texts, bytes or whole numbers as ids."""
    if found.ndim != 1 or found.dtype.kind not in "UTSiu":
        raise CatalogError(
            f"{path}: ids are {found.dtype} of {found.ndim} axes; texts or whole numbers of one are needed"
        )
    if found.dtype.kind == "S":
        try:
            return [one.decode() for one in found.tolist()]
        except UnicodeDecodeError:
            raise CatalogError(f"{path}: an id is not UTF-8; write them as texts") from None
    return [str(one) for one in found.tolist()]


def load_arrays(path: Path) -> Arrays:
    """The arrays of a file by name, that of .npy under the file's; mapped, but not .npz. CatalogError."""
    name = path.name.lower()
    if name.endswith(".safetensors"):
        return map_arrays(path)[0]
    try:
        found = np.load(path, mmap_mode="r" if name.endswith(".npy") else None, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return {path.stem: found}
        with found as opened:
            return {one: opened[one] for one in opened.files}
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001  whatever a file of others leads numpy and zipfile to
        said = (
            "it holds Python objects"
            if "pickle" in str(error) or "objects" in str(error)
            else str(error)[:80]
        )
        raise CatalogError(
            f"{path}: not an array that can be read ({said}); save plain arrays, texts with .astype(str)"
        ) from None


def piece(column: Column, first: int, last: int) -> Column:
    """Rows `first` to `last` of a column, as numbers of 32 bits."""
    if isinstance(column, DenseColumn):
        return DenseColumn(_float32(column.values[first:last]))
    bounds = column.indptr[first : last + 1]
    entries = slice(int(bounds[0]), int(bounds[-1]))
    values = column.values[entries].astype(np.float32)
    return SparseColumn(bounds - bounds[0], column.indices[entries], values, column.dim)


class CatalogFileReader:
    """The objects of a catalog in its own format; the space is the one that it states."""

    def __init__(self, path: Path, space: SpaceSpec | None) -> None:
        self._path = path
        self._file = map_catalog(path)
        self.space = self._file.space
        if space is not None and self.space.id != space.id:
            raise CatalogError(
                f"{path}: made for space {self.space.id!r}, not {space.id!r}; use a catalog of that space"
            )

    def rows(self) -> int | None:
        """How many objects there are."""
        return len(self._file.ids)

    def batches(self) -> Iterator[ObjectRows]:
        """The objects in their order."""
        file = self._file
        ids = texts_of(file.ids, self._path)
        for at in range(0, max(1, len(ids)), BATCH_ROWS):
            some = ids[at : at + BATCH_ROWS]
            views = {name: piece(column, at, at + len(some)) for name, column in file.views.items()}
            shown = None if file.shown is None else [file.shown[at + row] for row in range(len(some))]
            yield ObjectRows(some, views, shown, lambda row, at=at: f"{self._path}, row {at + row + 1}")  # type: ignore[misc]


def is_catalog(metadata: Mapping[str, str]) -> bool:
    """Whether the metadata of a safetensors file say that it is a catalog of ours."""
    return "format" in metadata and metadata["format"].startswith(FORMAT.partition("/")[0])
