"""From columns of a table to vectors: lists, pairs of lists, structs, texts, single numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streams.event import Column, DenseColumn, Float32Array, Int64Array, SparseColumn, Vector
from streams.objects.json_vectors import column_of, read_vector
from streams.text_files import read_json

if TYPE_CHECKING:
    import pyarrow


class RowError(ValueError):
    """A row that cannot be used: `row` counts from 0 within the batch."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


def holds_vectors(kind: pyarrow.DataType) -> bool:
    """Whether a column of this type is a vector by its type alone: a list of numbers, or a sparse struct."""
    from pyarrow import types

    kind = _storage(kind)
    if types.is_struct(kind):
        return {kind.field(n).name for n in range(kind.num_fields)} == {"indices", "values"}
    return _is_list(kind) and _is_number(kind.value_type)


def is_texts(kind: pyarrow.DataType) -> bool:
    """Whether a column of this type holds texts, plain or in a dictionary."""
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def vectors(array: pyarrow.Array[Any], name: str) -> Column:
    """The vectors of view `name` in one column. RowError, and ValueError for a type that holds none."""
    from pyarrow import types

    array = _plain(array)
    kind = array.type
    if types.is_struct(kind) and holds_vectors(kind):
        _no_nulls(array)
        return pair(array.field("indices"), array.field("values"))
    if _is_list(kind) and _is_number(kind.value_type):
        return DenseColumn(_rectangle(array))
    if is_texts(kind):
        return _of_texts(array, name)
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return DenseColumn(_unpacked(array))
    raise ValueError(f"is of type {kind}, which is no list of numbers")


def pair(indices: pyarrow.Array[Any], values: pyarrow.Array[Any]) -> SparseColumn:
    """Sparse vectors of two columns of lists; raises RowError and ValueError."""
    indices, values = _plain(indices), _plain(values)
    for one in (indices, values):
        if not _is_list(one.type) or not _is_number(one.type.value_type):
            raise ValueError(f"is of type {one.type}, which is no list of numbers")
    starts, own = _offsets(indices), _offsets(values)
    uneven = np.flatnonzero(np.diff(starts) != np.diff(own))
    if len(uneven):
        row = int(uneven[0])
        raise RowError(row, f"{starts[row + 1] - starts[row]} indices for {own[row + 1] - own[row]} values")
    found = _numbers(indices, starts)
    if found.dtype.kind not in "iu":
        if not (found == np.round(found)).all():
            entry = int(np.argmin(found == np.round(found)))
            raise RowError(int(np.searchsorted(starts, entry, "right")) - 1, "an index is no whole number")
        found = found.astype(np.int64)
    within = (found >= 0) & (found < 2**31)
    if not within.all():
        row = int(np.searchsorted(starts, int(np.argmin(within)), "right")) - 1
        raise RowError(row, "an index is negative or too large")
    return SparseColumn(starts, found.astype(np.int32), _float32(_numbers(values, own)), 2**31 - 1)


def side_by_side(arrays: Sequence[pyarrow.Array[Any]], names: Sequence[str]) -> DenseColumn:
    """A coordinate per column; raises RowError for a cell without a number, ValueError for a type of none."""
    found = np.empty((len(arrays[0]), len(arrays)), np.float32)
    for place, (array, name) in enumerate(zip(arrays, names, strict=True)):
        if not _is_number(array.type):
            raise ValueError(f"column {name!r} is of type {array.type}, no number")
        if array.null_count:
            raise RowError(_first_null(array), f"column {name!r} has no number")
        found[:, place] = _float32(array.to_numpy(zero_copy_only=False))
    return DenseColumn(found)


def _plain(array: pyarrow.Array[Any]) -> pyarrow.Array[Any]:
    return array if _storage(array.type) is array.type else array.storage


def _storage(kind: pyarrow.DataType) -> pyarrow.DataType:
    import pyarrow

    return kind.storage_type if isinstance(kind, pyarrow.BaseExtensionType) else kind


def _is_list(kind: pyarrow.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_number(kind: pyarrow.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _no_nulls(array: pyarrow.Array[Any]) -> None:
    if array.null_count:
        raise RowError(_first_null(array), "has no vector (null); fill it in, or leave the object out")


def _first_null(array: pyarrow.Array[Any]) -> int:
    return int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))


def _offsets(array: pyarrow.Array[Any]) -> Int64Array:
    """Where each row's numbers start among those of `_numbers`; int64 [rows + 1]. RowError for null."""
    from pyarrow import compute

    _no_nulls(array)
    starts = np.zeros(len(array) + 1, np.int64)
    np.cumsum(compute.list_value_length(array).to_numpy(zero_copy_only=False), out=starts[1:])
    return starts


def _numbers(array: pyarrow.Array[Any], starts: Int64Array) -> np.ndarray[Any, Any]:
    """All numbers of a column of lists, as they are; RowError for a null among them."""
    import pyarrow

    flat = array.flatten()
    if flat.null_count:
        row = int(np.searchsorted(starts, _first_null(flat), "right")) - 1
        raise RowError(row, "a number is missing (null); fill it in, or leave the object out")
    if pyarrow.types.is_decimal(flat.type):
        flat = flat.cast(pyarrow.float64())
    found: np.ndarray[Any, Any] = flat.to_numpy(zero_copy_only=False)
    return found


def _float32(found: np.ndarray[Any, Any]) -> Float32Array:
    with np.errstate(over="ignore"):  # numbers too large become infinite, which is reported with its place
        narrow: Float32Array = found.astype(np.float32)
    return narrow


def _rectangle(array: pyarrow.Array[Any]) -> Float32Array:
    """Dense vectors, float32 [rows, dim]; RowError for the first whose length is not the first one's."""
    starts = _offsets(array)
    lengths = np.diff(starts)
    uneven = np.flatnonzero(lengths != lengths[0]) if len(lengths) else lengths
    if len(uneven):
        row = int(uneven[0])
        raise RowError(row, f"has {lengths[row]} coordinates, others {lengths[0]}; make them alike")
    if len(lengths) and not lengths[0]:
        raise RowError(0, "has no coordinates; fill it in, or leave the object out")
    return _float32(_numbers(array, starts)).reshape(len(array), int(lengths[0]) if len(lengths) else 0)


def _unpacked(array: pyarrow.Array[Any]) -> Float32Array:
    """Dense vectors whose coordinates are float32 of four bytes each, little-endian."""
    _no_nulls(array)
    cells: list[bytes] = array.to_pylist()
    for row, cell in enumerate(cells):
        if not cell or len(cell) % 4 or len(cell) != len(cells[0]):
            raise RowError(row, f"has {len(cell)} bytes; a vector is 4 bytes (float32) for each coordinate")
    return np.frombuffer(b"".join(cells), "<f4").reshape(len(cells), -1).astype(np.float32)


def _of_texts(array: pyarrow.Array[Any], name: str) -> Column:
    """Vectors written as text: `[0.1, 0.2]`, `0.1 0.2`, or `{"indices": [...], "values": [...]}`."""
    import pyarrow

    _no_nulls(array)
    found: list[Vector] = []
    for row, text in enumerate(array.cast(pyarrow.string()).to_pylist()):
        try:
            found.append(_of_text(text.strip(), name))
        except ValueError as error:
            raise RowError(row, str(error)) from None
        if type(found[-1]) is not type(found[0]):
            raise RowError(row, "is dense in one object and sparse in another")
        if isinstance(found[-1], np.ndarray) and len(found[-1]) != len(found[0]):  # type: ignore[arg-type]
            raise RowError(row, f"has {len(found[-1])} coordinates, others {len(found[0])}; make them alike")  # type: ignore[arg-type]
    return column_of(found)


def _of_text(text: str, name: str) -> Vector:
    if text[:1] in ("[", "{"):
        try:
            return read_vector(name, read_json(text))
        except (json.JSONDecodeError, RecursionError):
            raise ValueError(f"{text[:30]!a} is no vector; write [0.1, 0.2]") from None
    try:
        return read_vector(name, [float(one) for one in text.replace(",", " ").replace(";", " ").split()])
    except ValueError:
        raise ValueError(f"{text[:30]!a} is no vector; write [0.1, 0.2]") from None
