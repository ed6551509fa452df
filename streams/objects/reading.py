"""Which reader a catalog's source needs, by the name of its file."""

from __future__ import annotations

from pathlib import Path

from streams.event import SpaceSpec
from streams.objects.columns import ObjectColumns
from streams.objects.from_arrays import ArrayReader, CatalogFileReader, beside, is_catalog
from streams.objects.from_lines import LineReader
from streams.objects.rows import CatalogError, ObjectReader

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
