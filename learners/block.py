"""Rows of feature vectors, sparse (CSR) or dense, float32, as the kernels read them, and batches of triplets.

A block checks its own layout (types, shapes, row pointers), once and cheaply. What is *in* a row (finite
values, indices in range and increasing) is checked by the kernels event by event, so that one bad row never
stops the others. Scipy's matrices, whose rows may be in any order and hold a column twice, are read as what
they mean: `as_block` sorts and sums such rows into arrays of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from learners.errors import BlockError

Float32s: TypeAlias = NDArray[np.float32]
Int32s: TypeAlias = NDArray[np.int32]
Int64s: TypeAlias = NDArray[np.int64]
Part: TypeAlias = slice

MAX_DIM = np.iinfo(np.int32).max
"""Indices are int32."""


@dataclass(frozen=True, slots=True, eq=False)
class SparseBlock:
    """Rows as CSR.

    indptr: int64 [n + 1], not decreasing, need not start at 0 (a slice shares the arrays of its parent).
    indices: int32, strictly increasing within a row, in [0, dim); values: float32, same length; dim: columns.
    Row i is `indices[indptr[i]:indptr[i + 1]]`. Raises BlockError on a layout that would read out of bounds.
    """

    indptr: Int64s
    indices: Int32s
    values: Float32s
    dim: int

    def __post_init__(self) -> None:
        for name, dtype in (("indptr", np.int64), ("indices", np.int32), ("values", np.float32)):
            object.__setattr__(self, name, _flat(name, getattr(self, name), dtype))
        _check_dim(self.dim)
        pointers = self.indptr
        if len(pointers) == 0:
            raise BlockError("indptr is empty: give n + 1 row pointers, [0] for no rows")
        if len(self.indices) != len(self.values):
            raise BlockError(
                f"{len(self.indices)} indices but {len(self.values)} values: give one value per index"
            )
        if pointers[0] < 0 or pointers[-1] > len(self.indices) or np.any(pointers[1:] < pointers[:-1]):
            raise BlockError(
                f"indptr must not decrease and stay within 0..{len(self.indices)}: rebuild the rows"
            )

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def nbytes(self) -> int:
        """Bytes of the indices and values of its rows, without the rest that a slice shares."""
        return 8 * int(self.indptr[-1] - self.indptr[0])

    def slice(self, start: int, stop: int) -> SparseBlock:
        """Rows start..stop-1 without copying; bounds as in Python slices of non-negative numbers."""
        start, stop = _bounds(start, stop, len(self))
        block = object.__new__(SparseBlock)  # a part of what was checked needs no check
        for name, value in (
            ("indptr", self.indptr[start : stop + 1]),
            ("indices", self.indices),
            ("values", self.values),
            ("dim", self.dim),
        ):
            object.__setattr__(block, name, value)
        return block

    def take(self, rows: Any) -> SparseBlock:
        """The rows named by an integer array, in its order, copied. Raises BlockError outside the block."""
        chosen = row_numbers(rows, len(self), "a block")
        starts = self.indptr[chosen]
        lengths = self.indptr[chosen + 1] - starts
        indptr = np.zeros(len(chosen) + 1, np.int64)
        np.cumsum(lengths, out=indptr[1:])
        places = np.repeat(starts - indptr[:-1], lengths) + np.arange(indptr[-1])
        return SparseBlock(indptr, self.indices[places], self.values[places], self.dim)

    @property
    def entries(self) -> Part:
        """Where in `indices` and `values` its rows lie."""
        return slice(int(self.indptr[0]), int(self.indptr[-1]))

    def with_values(self, values: Float32s) -> SparseBlock:
        """The same places with other values."""
        return SparseBlock(self.indptr, self.indices, values, self.dim)

    def kernel_rows(self) -> tuple[Int64s, Int32s, Float32s]:
        """(indptr, indices, values), as kernels take CSR rows."""
        return self.indptr, self.indices, self.values

    def increasing(self) -> NDArray[np.bool_]:
        """Of each entry of the rows, whether it comes first in its row or behind a smaller index."""
        first, last = int(self.indptr[0]), int(self.indptr[-1])
        indices, kept = self.indices[first:last], np.ones(last - first, np.bool_)
        np.greater(indices[1:], indices[:-1], out=kept[1:])
        starts = self.indptr[:-1] - first
        kept[starts[starts < last - first]] = True
        return kept

    def check_indices(self) -> None:
        """Raises BlockError naming the first row with an index out of range, or not above the one before it,
        for code that trusts its indices."""
        first, last = int(self.indptr[0]), int(self.indptr[-1])
        indices, increasing = self.indices[first:last], self.increasing()
        outside = indices.view(np.uint32) >= self.dim  # a negative one is a large one
        if outside.any():
            place = int(outside.argmax())
            raise BlockError(f"row {self._row(place)}: index {indices[place]} is outside 0..{self.dim - 1}")
        if not increasing.all():
            place = int(increasing.argmin())
            raise BlockError(
                f"row {self._row(place)}: index {indices[place]} is not above the one before it, "
                f"{indices[place - 1]}: give the rows as scipy CSR, which is sorted and summed when read"
            )

    def _row(self, place: int) -> int:
        return int(np.searchsorted(self.indptr, int(self.indptr[0]) + place, side="right")) - 1

    def checked_csr(self) -> sparse.csr_array:
        """The rows as a scipy CSR array of float32. Raises BlockError as `check_indices` does."""
        self.check_indices()
        rows = (self.values[self.entries], self.indices[self.entries], self.indptr - self.indptr[0])
        return sparse.csr_array(rows, shape=(len(self), self.dim))


@dataclass(frozen=True, slots=True, eq=False)
class DenseBlock:
    """Rows as a C-contiguous float32 array [n, dim]. Raises BlockError on another number of axes."""

    values: Float32s

    def __post_init__(self) -> None:
        values = np.asarray(self.values)
        if values.ndim != 2 or values.dtype.kind not in "fiub":
            raise BlockError(
                f"dense rows must be a 2-d array of numbers, not {values.ndim}-d of {values.dtype}"
            )
        if values.dtype != np.float32 or not (values.flags.c_contiguous and values.flags.aligned):
            with np.errstate(over="ignore"):
                values = np.require(values, np.float32, ["C", "A"])
        object.__setattr__(self, "values", values)
        _check_dim(self.dim)

    @property
    def dim(self) -> int:
        """The number of columns."""
        return int(self.values.shape[1])

    def __len__(self) -> int:
        return int(self.values.shape[0])

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return self.values.nbytes

    def slice(self, start: int, stop: int) -> DenseBlock:
        """Rows start..stop-1 without copying; bounds as in Python slices of non-negative numbers."""
        start, stop = _bounds(start, stop, len(self))
        block = object.__new__(DenseBlock)
        object.__setattr__(block, "values", self.values[start:stop])
        return block

    def take(self, rows: Any) -> DenseBlock:
        """The rows named by an integer array, in its order, copied. Raises BlockError outside the block."""
        return DenseBlock(self.values.take(row_numbers(rows, len(self), "a block"), axis=0))

    def with_values(self, values: Float32s) -> DenseBlock:
        """A block of these values."""
        return DenseBlock(values)

    def kernel_rows(self) -> Float32s:
        """The values, as kernels take dense rows."""
        return self.values


Block: TypeAlias = SparseBlock | DenseBlock


def as_block(x: Any, dim: int | None = None, name: str = "vectors") -> Block:
    """Read vectors as a block: a block itself, a scipy sparse array, or numbers in one or two axes.

    x: one axis is one row; float64 is rounded to float32 (values beyond float32 become infinite and are then
    rejected by the step). A scipy sparse array of any kind is read as what it means: unsorted rows are sorted
    and entries of one place added up (in float64), in a copy; x itself never changes. dim: the expected
    columns. name: what an error calls x. Raises BlockError, naming what came, when x is none of these or has
    other columns than dim.
    """
    if isinstance(x, SparseBlock | DenseBlock):
        block: Block = x
    else:
        try:
            block = _read_sparse(x) if sparse.issparse(x) else _read(x)
        except BlockError as error:
            raise BlockError(f"{name}: {error}") from error
    if dim is not None and block.dim != dim:
        raise BlockError(f"{name} have {block.dim} dimensions where {dim} are expected")
    return block


def concatenate(blocks: Sequence[Block]) -> Block:
    """All rows of the blocks, one block below the other, copied.

    Raises BlockError without any block, or when kinds or dimensions differ.
    """
    if not len(blocks):
        raise BlockError("there are no blocks to put together: give at least one")
    blocks = [as_block(block) for block in blocks]
    dim = blocks[0].dim
    for block in blocks:
        if block.dim != dim:
            raise BlockError(f"blocks of {dim} and {block.dim} dimensions cannot be put together")
    dense = [block for block in blocks if isinstance(block, DenseBlock)]
    if len(dense) == len(blocks):
        return DenseBlock(np.concatenate([block.values for block in dense]))
    if dense:
        raise BlockError("dense and sparse blocks cannot be put together: use one kind")
    csr = [block for block in blocks if isinstance(block, SparseBlock)]
    indptr = np.zeros(sum(map(len, csr)) + 1, np.int64)
    np.cumsum(np.concatenate([np.diff(block.indptr) for block in csr]), out=indptr[1:])
    indices = np.concatenate([block.indices[block.entries] for block in csr])
    values = np.concatenate([block.values[block.entries] for block in csr])
    return SparseBlock(indptr, indices, values, dim)


def _read(x: Any) -> DenseBlock:
    try:
        values = np.asarray(x)
    except (ValueError, TypeError) as error:
        raise BlockError(f"cannot read rows of unequal length as vectors: {error}") from error
    if isinstance(x, np.ma.MaskedArray) and np.ma.getmaskarray(x).any():
        raise BlockError("the array has masked entries, which are no numbers: fill them, or leave rows out")
    if values.dtype.kind not in "fiub" or values.ndim not in (1, 2):
        raise BlockError(
            f"cannot read {type(x).__name__} ({values.ndim}-d, {values.dtype}) as vectors: "
            "give a numpy array with one or two axes, a scipy CSR array, or a block"
        )
    return DenseBlock(np.atleast_2d(values))


def _read_sparse(x: Any) -> SparseBlock:
    """The rows of a scipy sparse array, their indices increasing; x stays as it is."""
    if x.ndim not in {1, 2}:
        raise BlockError(f"cannot read a sparse array of {x.ndim} axes as vectors: give one or two")
    try:
        if x.format not in {"csr", "lil", "dok"}:  # what scipy converts without looking at the places
            x = type(x)(x)
            x.check_format() if hasattr(x, "check_format") else None
        rows = sparse.csr_array(x if x.ndim == 2 else x.reshape(1, -1))
    except (ValueError, TypeError, IndexError) as error:
        raise BlockError(f"cannot read this {x.format} array as rows of vectors: {error}") from error
    with np.errstate(over="ignore"):
        block = SparseBlock(rows.indptr, rows.indices, rows.data, int(rows.shape[1]))
    if block.increasing().all():
        return block
    kind = np.bool_ if rows.dtype == np.bool_ else np.float64
    summed = sparse.csr_array((rows.data.astype(kind), rows.indices.copy(), rows.indptr.copy()), rows.shape)
    summed.sum_duplicates()
    with np.errstate(over="ignore"):
        return SparseBlock(summed.indptr, summed.indices, summed.data, block.dim)


def numbers(name: str, given: Any) -> NDArray[Any]:
    """An array of numbers, whatever its shape. Raises BlockError naming what is none, such as text."""
    try:
        array = np.asarray(given)
    except (ValueError, TypeError) as error:
        raise BlockError(f"{name} cannot be read as numbers: {error}") from error
    if array.dtype.kind not in "fiub" or isinstance(given, np.ma.MaskedArray):
        raise BlockError(f"{name} must be an array of numbers, not {type(given).__name__} of {array.dtype}")
    return array


def row_numbers(rows: Any, length: int, of: str) -> Int64s:
    """Numbers of rows as int64 [n]. Raises BlockError for what is no whole number, such as a mask, and for
    one outside 0..length - 1; `of` says of what."""
    array = numbers("rows", rows).reshape(-1)
    if len(array) and array.dtype.kind not in "iu":
        raise BlockError(f"rows must be whole numbers, not {array.dtype}: use np.flatnonzero of a mask")
    if len(array) and (array.min() < 0 or array.max() >= length):
        raise BlockError(f"rows {array.min()}..{array.max()} asked from {of} of {length}")
    return np.require(array, np.int64, ["C", "A"])


def _flat(name: str, array: Any, dtype: Any) -> NDArray[Any]:
    values = np.asarray(array)
    if values.ndim != 1 or values.dtype.kind not in "fiub":
        raise BlockError(f"{name} must be a 1-d array of numbers, not {values.ndim}-d of {values.dtype}")
    if np.dtype(dtype).kind == "i":
        info = np.iinfo(dtype)
        if values.dtype.kind == "f":
            raise BlockError(f"{name} must be integers, not {values.dtype}")
        if values.dtype != dtype and len(values) and (values.min() < info.min or values.max() > info.max):
            raise BlockError(f"{name} holds numbers beyond {np.dtype(dtype)}")
    with np.errstate(over="ignore"):
        return np.require(values, dtype, ["C", "A"])


def _check_dim(dim: int) -> None:
    if not 1 <= dim <= MAX_DIM:
        raise BlockError(f"vectors need between 1 and {MAX_DIM} dimensions, not {dim}")


def _bounds(start: int, stop: int, length: int) -> tuple[int, int]:
    if start < 0 or stop < 0:
        raise BlockError(f"slice bounds must not be negative: {start}, {stop}")
    start = min(start, length)
    return start, max(start, min(stop, length))


@dataclass(frozen=True, slots=True, eq=False)
class TripletBatch:
    """Row i of the three blocks is triplet i. Anything that `as_block` reads becomes a block.

    keys: bytes of 64 [n], the UTF-8 of the key whose model an event is for, b"" without one; None where no
    event has one. Texts become that; see `as_keys`. Raises BlockError when lengths, dimensions or kinds
    differ.
    """

    query: Block
    clicked: Block
    skipped: Block
    keys: NDArray[np.bytes_] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("query", "clicked", "skipped"):
            if not isinstance(getattr(self, name), SparseBlock | DenseBlock):
                object.__setattr__(self, name, as_block(getattr(self, name), name=name))
        for name, block in (("clicked", self.clicked), ("skipped", self.skipped)):
            if type(block) is not type(self.query):
                raise BlockError(
                    f"{name} is a {type(block).__name__}, query a {type(self.query).__name__}: use one"
                )
            if len(block) != len(self.query):
                raise BlockError(
                    f"{name} has {len(block)} rows, query {len(self.query)}: give one each per triplet"
                )
            if block.dim != self.query.dim:
                raise BlockError(f"{name} has {block.dim} dimensions, query {self.query.dim}: map both alike")
        if self.keys is None:
            return
        object.__setattr__(self, "keys", as_keys(self.keys))
        if self.keys.shape != (len(self.query),):
            raise BlockError(f"keys have shape {self.keys.shape}: give one per triplet ({len(self.query)})")

    def __len__(self) -> int:
        return len(self.query)

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return self.query.dim

    def slice(self, start: int, stop: int) -> TripletBatch:
        """Triplets start..stop-1 without copying."""
        keys = None if self.keys is None else self.keys[start:stop]
        return self._part(
            [block.slice(start, stop) for block in (self.query, self.clicked, self.skipped)], keys
        )

    def take(self, rows: Any) -> TripletBatch:
        """The triplets named by an integer array, in its order, copied."""
        keys = None if self.keys is None else self.keys[rows]
        return self._part([block.take(rows) for block in (self.query, self.clicked, self.skipped)], keys)

    @staticmethod
    def _part(blocks: Sequence[Block], keys: NDArray[np.bytes_] | None) -> TripletBatch:
        batch = object.__new__(TripletBatch)  # a part of what was checked needs no check
        for name, value in zip(("query", "clicked", "skipped", "keys"), (*blocks, keys), strict=True):
            object.__setattr__(batch, name, value)
        return batch


BLOCK_FLOATS = 1 << 22
"""Floats of one intermediate block: 16 MB."""


def row_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Cut `rows` so that each part times `columns` stays within BLOCK_FLOATS (at least one row)."""
    step = max(1, BLOCK_FLOATS // max(1, columns))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def times(rows: Block, matrix: NDArray[Any]) -> Float32s:
    """rows @ matrix, float32 [n, columns]; matrix: C-contiguous [dim, columns]. Raises BlockError on a bad
    index."""
    if isinstance(rows, DenseBlock):
        return np.asarray(rows.values @ matrix, np.float32)
    return np.asarray(rows.checked_csr() @ matrix, np.float32)


def against(folded: Float32s, items: Block) -> Float32s:
    """folded @ items^T, float32 [queries, items], for folded queries [queries, dim]."""
    if isinstance(items, DenseBlock):
        return np.asarray(folded @ items.values.T, np.float32)
    return np.asarray((items.checked_csr() @ np.ascontiguousarray(folded.T)).T, np.float32)


def bilinear(W: Float32s, queries: Block, items: Block) -> Float32s:
    """q^T W p for all pairs, float32 [queries, items]; NaN where a vector is not finite."""
    scores = np.empty((len(queries), len(items)), np.float32)
    for part in row_blocks(len(queries), W.shape[0]):
        scores[part] = against(times(queries.slice(part.start, part.stop), W), items)
    return without_sense(scores, queries, items)


def without_sense(scores: Float32s, queries: Block, items: Block) -> Float32s:
    """`scores` [queries, items], NaN now where a vector holds a value that is not finite: an entry that a sum
    leaves out, as products of sparse rows do, must not make a number of it."""
    scores[not_finite(queries)] = np.nan
    scores[:, not_finite(items)] = np.nan
    return scores


def not_finite(block: Block) -> Int64s:
    """The rows that hold a value that is not finite, int64, ascending; quick where none does."""
    values = block.values[block.entries] if isinstance(block, SparseBlock) else block.values
    flat = values.reshape(-1)
    with np.errstate(all="ignore"):
        if np.isfinite(np.dot(flat, flat)):
            return np.zeros(0, np.int64)
    wrong = ~np.isfinite(values)
    if isinstance(block, DenseBlock):
        return np.flatnonzero(wrong.any(axis=1))
    places = int(block.indptr[0]) + np.flatnonzero(wrong)
    return np.unique(np.searchsorted(block.indptr, places, side="right")) - 1


MAX_KEY_BYTES = 64
"""Longest key of a model, bytes of UTF-8; none of them is 0."""


def as_triplets(*triplets: Any, keys: Sequence[str] | None = None) -> TripletBatch:
    """Read a batch: a `TripletBatch` itself, or queries, clicked and skipped, each anything that `as_block`
    reads.

    keys: of each triplet, at most MAX_KEY_BYTES bytes of UTF-8 without 0, "" for none. Raises BlockError.
    """
    if len(triplets) == 1 and isinstance(triplets[0], TripletBatch) and keys is None:
        return triplets[0]
    if len(triplets) != 3:
        raise BlockError(
            "give a TripletBatch with its own keys, or three arrays of rows: queries, clicked, skipped"
        )
    return TripletBatch(*triplets, keys=None if keys is None else as_keys(keys))


KEYS = np.dtype(f"S{MAX_KEY_BYTES}")


def as_keys(keys: Any) -> NDArray[np.bytes_]:
    """Keys of events as bytes of 64: texts or their UTF-8, in a sequence or a numpy array; bytes of 64
    themselves, not looked at. Raises BlockError for what `key_bytes` refuses, and for a single text."""
    if isinstance(keys, np.ndarray) and keys.dtype == KEYS:
        return keys
    if isinstance(keys, str | bytes) or not isinstance(keys, Sequence | np.ndarray):
        raise BlockError(f"keys must be a list of texts, one per triplet, not {keys!r:.80}")
    array = np.empty(np.shape(keys) if isinstance(keys, np.ndarray) else len(keys), KEYS)
    given = keys.reshape(-1).tolist() if isinstance(keys, np.ndarray) else keys
    array.reshape(-1)[:] = [key_bytes(key) for key in given]
    return array


def key_bytes(key: Any) -> bytes:
    """A key's UTF-8. Raises BlockError for what is no text, is longer than MAX_KEY_BYTES, or holds a byte
    0."""
    try:
        encoded = key.encode() if isinstance(key, str) else key
        if not isinstance(encoded, bytes):
            raise BlockError(f"a key must be text, not {key!r:.80}")
        encoded.decode()
    except UnicodeError as error:
        raise BlockError(f"the key {key!r:.80} is no UTF-8: {error}") from error
    if len(encoded) > MAX_KEY_BYTES or b"\0" in encoded:
        raise BlockError(f"the key {encoded!r} has a byte 0 or more than {MAX_KEY_BYTES} bytes")
    return encoded


def dense_rows(block: Block) -> Float32s:
    """The rows, dense. Raises BlockError on an index out of range."""
    return block.values if isinstance(block, DenseBlock) else np.asarray(block.checked_csr().toarray())
