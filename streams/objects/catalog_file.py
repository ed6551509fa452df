"""The catalog as a file, tripletd.catalog/1: written in one pass with little memory, mapped to be read.

A `.safetensors` file; FORMAT.md has its arrays and metadata. All processes that map it share one copy in the
page cache.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import struct
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np

from streams.event import UNNAMED_VIEW, Column, DenseColumn, SpaceSpec, SparseColumn, ViewSpec, kind_of
from streams.ids import Packed
from streams.objects.rows import CatalogError, ObjectRows, RowChecks

FORMAT = "tripletd.catalog/1"
DEFAULT_SPACE = "default"

Arrays = dict[str, np.ndarray[Any, Any]]

_TYPES: dict[str, Any] = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": [("BF16", "<u2")], "BOOL": "|b1",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1",
}  # fmt: skip
"""Types of numbers by their code. What numpy has not is a field of that name: bfloat16, the upper half of a
float32, and what is not read, such as numbers of 8 and fewer bits, which means nothing without its scale."""
BF16 = np.dtype(_TYPES["BF16"])
_CODES: dict[np.dtype[Any], str] = {np.dtype(kind): code for code, kind in _TYPES.items()}
_ALIGNED = 64
_CHUNK = 4 << 20
_MOST_HEADER = 10_000_000
"""A hundred thousand arrays; read as JSON it takes ten times as much."""


@dataclass(frozen=True, slots=True)
class CatalogFile:
    """What a file holds: ids and packed display data by row (None without any), columns, space, metadata."""

    ids: Packed
    shown: Packed | None
    views: dict[str, Column]
    space: SpaceSpec
    metadata: dict[str, str]


def map_arrays(path: Path) -> tuple[Arrays, dict[str, str]]:
    """The arrays of any safetensors file, read-only and mapped, and its metadata. CatalogError, OSError."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < 8:
            raise _no_safetensors(path, "it is too short")
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    (length,) = struct.unpack("<Q", data[:8])
    if length > min(size - 8, _MOST_HEADER):
        raise _no_safetensors(path, f"its header is longer than the file or {_MOST_HEADER:,} bytes")
    try:
        header = json.loads(data[8 : 8 + length])
        metadata = {str(key): str(value) for key, value in header.pop("__metadata__", {}).items()}
        arrays = {name: _array(data, 8 + length, entry) for name, entry in header.items()}
        ends = [8 + length + entry["data_offsets"][1] for entry in header.values()]
    except Exception as error:  # noqa: BLE001  whatever a header of others leads to
        raise _no_safetensors(path, str(error)[:80]) from None
    if max(ends, default=8 + length) != size:
        raise _no_safetensors(path, "it is shorter or longer than its header says")
    return arrays, metadata


def write_arrays(out: IO[bytes], arrays: Arrays) -> None:
    """Write a safetensors file that `map_arrays` reads, each array at a place that suits its type; `is_whole`
    finds whether it stays as it is."""
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    data = sha256()
    for name in order:
        data.update(np.ascontiguousarray(arrays[name]).data)
    forms = ((name, arrays[name].dtype, arrays[name].shape) for name in order)
    out.write(_packed_header({"data": data.hexdigest()}, forms))
    for name in order:
        out.write(np.ascontiguousarray(arrays[name]).data)


def _packed_header(
    metadata: Mapping[str, str], arrays: Iterable[tuple[str, np.dtype[Any], Sequence[int]]]
) -> bytes:
    """arrays: name, type and shape of each, in the order in which their bytes follow."""
    entries: dict[str, Any] = {"__metadata__": metadata}
    at = 0
    for name, kind, shape in arrays:
        end = at + kind.itemsize * math.prod(shape)
        entries[name] = {"dtype": _CODES[kind], "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNED)
    return struct.pack("<Q", len(text)) + text


def _array(data: mmap.mmap, start: int, entry: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    code = entry["dtype"]
    first, last = entry["data_offsets"]
    if code not in _TYPES:
        return np.empty(0, [(code, np.uint8)])
    kind = np.dtype(_TYPES[code])
    shape = [int(one) for one in entry["shape"]]
    if first < 0 or last - first != kind.itemsize * int(np.prod(shape, dtype=np.int64)):
        raise ValueError("an array's size and place do not agree")
    if first == last:
        return np.empty(shape, kind)
    return np.frombuffer(data, kind, (last - first) // kind.itemsize, start + first).reshape(shape)


def _no_safetensors(path: Path, why: str) -> CatalogError:
    return CatalogError(f"{path}: not a safetensors file ({why}); write it again")


def map_catalog(path: Path) -> CatalogFile:
    """A catalog's file, mapped; its arrays are checked for their form, not their numbers.

    Raises CatalogError naming the array, OSError where it cannot be opened.
    """
    arrays, metadata = map_arrays(path)
    if metadata.get("format") != FORMAT:
        raise CatalogError(f"{path}: metadata `format` is not {FORMAT!r}; write it again")
    names = _view_names(path, arrays, metadata)
    views = {name: _read_view(path, name, arrays, metadata) for name in names}
    space = SpaceSpec(
        metadata.get("space", DEFAULT_SPACE),
        tuple(ViewSpec(name or UNNAMED_VIEW, kind_of(one), one.dim) for name, one in views.items()),
    )
    ids = _read_packed(path, arrays, "ids", least=1)
    shown = _read_packed(path, arrays, "shown", least=0) if "shown" in arrays else None
    for name, column in [*views.items(), *([("shown", shown)] if shown is not None else [])]:
        if len(column) != len(ids):
            raise CatalogError(
                f"{path}: {name!r} has {len(column)} rows for {len(ids)} ids; write one row per id"
            )
    return CatalogFile(ids, shown, views, space, metadata)


def _read_packed(path: Path, arrays: Arrays, name: str, least: int) -> Packed:
    """Byte strings of at least `least` bytes from their concatenation and offsets."""
    for one, kind in ((name, np.uint8), (f"{name}_offsets", np.int64)):
        if one not in arrays or arrays[one].dtype != kind or arrays[one].ndim != 1:
            raise CatalogError(
                f"{path}: array {one!r} is missing or not {np.dtype(kind)} [n]; write it again"
            )
    data, offsets = arrays[name], arrays[f"{name}_offsets"]
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(data) or np.any(np.diff(offsets) < least):
        what = "non-empty ids" if least else "rows"
        raise CatalogError(
            f"{path}: array '{name}_offsets' does not cut {name!r} into {what}; write it again"
        )
    return Packed(data, offsets)


def texts_of(packed: Packed, path: Path | str) -> list[str]:
    """Byte strings as texts; CatalogError where they are not UTF-8."""
    data, bounds = packed.data.tobytes(), packed.bounds.tolist()
    try:
        return [data[first:last].decode() for first, last in pairwise(bounds)]
    except UnicodeDecodeError:
        raise CatalogError(f"{path}: array 'ids' is not UTF-8; write it again") from None


def _view_names(path: Path, arrays: Mapping[str, Any], metadata: Mapping[str, str]) -> list[str]:
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


class _Spool:
    """Bytes of one array until all are known: a file without a name, which no kill leaves behind."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (closed by the writer)
        self.kind = np.dtype(kind)
        self.nbytes = 0

    def add(self, array: np.ndarray[Any, Any]) -> None:
        self.file.write(np.ascontiguousarray(array, self.kind).data)
        self.nbytes += array.size * self.kind.itemsize

    def chunks(self) -> Iterable[bytes]:
        self.file.seek(0)
        while piece := self.file.read(_CHUNK):
            yield piece


class CatalogWriter:
    """Takes objects batch by batch and writes them as one file; memory is that of a batch and of the ids.

    space: what they must be of; None takes it from the first object, sparse views reaching to their largest
    index. folder: where what was taken waits, as long as the writer is open. half: values are rounded to
    float16. Same objects, same bytes.
    """

    def __init__(
        self, folder: Path, space: SpaceSpec | None, own: SpaceSpec | None = None, *, half: bool = False
    ) -> None:
        self._folder, self._space, self._own = folder, space, own
        self._kind = "<f2" if half else "<f4"
        self._checks = RowChecks(space)
        self._seen: set[str] = set()
        self._spools: dict[str, _Spool] = {}
        self._ends: dict[str, int] = {}
        self._sparse: dict[str, int] = {}
        self._dense: dict[str, int] = {}
        self._names: tuple[str, ...] = ()
        self._shown = False
        self.rows = 0

    def __enter__(self) -> CatalogWriter:
        return self

    def __exit__(self, *_: object) -> None:
        for spool in self._spools.values():
            spool.file.close()

    def add(self, rows: ObjectRows) -> None:
        """Take a batch; CatalogError naming the place of what cannot be used, OSError of the disk."""
        self._checks.check(rows)
        for row, object_id in enumerate(rows.ids):
            if object_id in self._seen:
                raise CatalogError(
                    f"{rows.place(row)}: the catalog holds id {object_id!r} twice; keep one of them"
                )
            self._seen.add(object_id)
        self._add_packed("ids", [one.encode() for one in rows.ids])
        if rows.shown is not None and not self._shown:
            self._shown = True
            self._add_packed("shown", [b""] * self.rows)
        if self._shown:
            self._add_packed("shown", rows.shown or [b""] * len(rows))
        self._names = self._names or tuple(rows.views)
        for name, column in rows.views.items():
            self._add_view(name, column)
        self.rows += len(rows)

    def _spool(self, name: str, kind: str) -> _Spool:
        if name not in self._spools:
            self._spools[name] = _Spool(self._folder, kind)
        return self._spools[name]

    def _add_packed(self, name: str, texts: Sequence[bytes]) -> None:
        self._spool(name, "|u1").add(np.frombuffer(b"".join(texts), np.uint8))
        self._add_bounds(f"{name}_offsets", np.array([len(one) for one in texts], np.int64))

    def _add_bounds(self, name: str, lengths: np.ndarray[Any, Any]) -> None:
        spool = self._spool(name, "<i8")
        if name not in self._ends:
            spool.add(np.zeros(1, np.int64))
        bounds = self._ends.get(name, 0) + np.cumsum(lengths)
        spool.add(bounds)
        self._ends[name] = int(bounds[-1]) if len(bounds) else self._ends.get(name, 0)

    def _add_view(self, name: str, column: Column) -> None:
        if isinstance(column, DenseColumn):
            self._dense[name] = column.dim
            self._spool(f"view.{name}", self._kind).add(column.values)
            return
        self._add_bounds(f"view.{name}.indptr", np.diff(column.indptr))
        self._spool(f"view.{name}.indices", "<i4").add(column.indices)
        self._spool(f"view.{name}.values", self._kind).add(column.values)
        largest = int(column.indices.max()) if len(column.indices) else 0
        self._sparse[name] = max(self._sparse.get(name, 0), largest)

    def settled_space(self) -> SpaceSpec:
        """The space of what was taken. CatalogError where it is not the one that was asked for."""
        if self._space is None and self._own is not None:
            return self._own
        found = {
            name: ViewSpec(name, "dense", self._dense[name])
            if name in self._dense
            else ViewSpec(name, "sparse", self._sparse[name] + 1)
            for name in self._names
        }
        if self._space is None:
            return SpaceSpec(DEFAULT_SPACE, tuple(found.values()))
        if set(found) != {view.name for view in self._space.views}:
            raise CatalogError(
                f"the catalog has views {sorted(found)}, the space "
                f"{sorted(view.name for view in self._space.views)}; make them agree"
            )
        return self._space

    def write(self, out: IO[bytes], more: Mapping[str, str] | None = None) -> None:
        """Write the file; `more` is added to its metadata. Raises CatalogError and OSError."""
        space = self.settled_space()
        digest = content_digest(space, self._id_pieces(), self._view_pieces)
        metadata = {"format": FORMAT, "space": space.id, "digest": digest, "data": "0" * 64, **(more or {})}
        metadata["views"] = json.dumps([view.name for view in space.views])
        metadata |= {f"dim.{view.name}": str(view.dim) for view in space.views if view.kind == "sparse"}
        # Larger numbers first, so that each array is aligned to its own.
        order = sorted(self._spools, key=lambda name: (-self._spools[name].kind.itemsize, name))
        header = self._header(order, metadata)
        out.write(header)
        data = sha256()
        for name in order:
            for piece in self._spools[name].chunks():
                data.update(piece)
                out.write(piece)
        out.seek(0)
        out.write(self._header(order, metadata | {"data": data.hexdigest()}))

    def _header(self, order: list[str], metadata: Mapping[str, str]) -> bytes:
        forms = []
        for name in order:
            kind, length = self._spools[name].kind, self._spools[name].nbytes
            dense = self._dense.get(name.removeprefix("view.")) if name.startswith("view.") else None
            forms.append((name, kind, [length // kind.itemsize] if dense is None else [self.rows, dense]))
        return _packed_header(dict(sorted(metadata.items())), forms)

    def _id_pieces(self) -> Iterable[bytes]:
        data = b"".join(self._spools["ids"].chunks()) if self.rows else b""
        bounds = np.frombuffer(b"".join(self._spools["ids_offsets"].chunks()), "<i8").tolist()
        for first, last in pairwise(bounds):
            yield (last - first).to_bytes(4, "little") + data[first:last]

    def _view_pieces(self, view: ViewSpec) -> Iterable[Any]:
        parts = ("",) if view.kind == "dense" else (".indptr", ".indices", ".values")
        for spool in (self._spools[f"view.{view.name}{part}"] for part in parts):
            for piece in spool.chunks():
                yield np.frombuffer(piece, "<f2").astype("<f4").data if spool.kind == np.float16 else piece


def content_digest(
    space: SpaceSpec, ids: Iterable[bytes], pieces: Callable[[ViewSpec], Iterable[Any]]
) -> str:
    """SHA-256 over space, ids and arrays: catalogs of one digest give every object the same features.

    ids: of each its length in four bytes, and its UTF-8. pieces: the bytes of a view's arrays: `<f4` values
    of a dense one, `<i8` indptr, `<i4` indices and `<f4` values of a sparse one.
    """
    digest = sha256(f"{FORMAT}\n{space.id}\n".encode())
    for one in ids:
        digest.update(one)
    for view in space.views:
        digest.update(f"{view.name}\n{view.kind}\n{view.dim}\n".encode())
        for piece in pieces(view):
            digest.update(piece)
    return digest.hexdigest()


def is_whole(path: Path) -> bool:
    """Whether every byte of a file of a `CatalogWriter`, or of `write_arrays`, is as it was written: a pass
    over all of them. Raises OSError, and ValueError of what has no header."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        metadata = json.loads(file.read(min(length, _MOST_HEADER))).get("__metadata__", {})
        data = sha256()
        while piece := file.read(_CHUNK):
            data.update(piece)
    return bool(metadata.get("data") == data.hexdigest())
