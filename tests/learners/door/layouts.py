"""The same rows in every shape people have them in, and what can be no rows at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

Floats = NDArray[np.float32]
Layout = Callable[[Floats], Any]

N, DIM = 7, 12


def exact_rows(seed: int, n: int = N, dim: int = DIM) -> Floats:
    """Rows of sixteenths, which float16 holds and whose halves add up without rounding; one is empty."""
    rng = np.random.default_rng(seed)
    values = rng.integers(1, 17, (n, dim)) * (rng.random((n, dim)) < 0.6) / 16
    values[1] = 0
    return values.astype(np.float32)


def _parts(values: Floats) -> tuple[NDArray[np.int64], NDArray[np.int32], Floats]:
    rows = sparse.csr_array(values)
    return rows.indptr.astype(np.int64), rows.indices.astype(np.int32), rows.data


def unsorted(values: Floats, index: type = np.int32) -> sparse.csr_array:
    """Each row backwards."""
    indptr, indices, data = _parts(values)
    order = np.concatenate([np.arange(b - 1, a - 1, -1) for a, b in pairwise(indptr)])
    order = order.astype(np.int64)
    return sparse.csr_array((data[order], indices[order].astype(index), indptr), shape=values.shape)


def doubled(values: Floats, index: type = np.int32) -> sparse.csr_array:
    """Each entry as a quarter and three quarters, one behind the other."""
    indptr, indices, data = _parts(values)
    halves = np.column_stack([data / 4, data * 3 / 4]).reshape(-1)
    return sparse.csr_array((halves, np.repeat(indices, 2).astype(index), 2 * indptr), shape=values.shape)


def scattered(values: Floats) -> sparse.csr_array:
    """Both: all quarters of a row, then all three quarters, backwards."""
    indptr, indices, data = _parts(values)
    columns, parts = [], []
    for start, stop in pairwise(indptr):
        columns += [*indices[start:stop], *indices[start:stop][::-1]]
        parts += [*data[start:stop] / 4, *data[start:stop][::-1] * 3 / 4]
    made = (np.array(parts, np.float32), np.array(columns, np.int32), 2 * indptr)
    return sparse.csr_array(made, shape=values.shape)


def _with_flag(values: Floats) -> sparse.csr_array:
    """Unsorted, said to be canonical."""
    rows = unsorted(values)
    rows.has_canonical_format = True
    return rows


def _read_only(rows: Any) -> Any:
    for array in _arrays(rows):
        array.flags.writeable = False
    return rows


def _with_zeros(values: Floats) -> sparse.csr_array:
    """Every entry stored, also those that are 0."""
    n, dim = values.shape
    places = (np.tile(np.arange(dim, dtype=np.int32), n), np.arange(n + 1) * dim)
    return sparse.csr_array((values.reshape(-1).copy(), *places), shape=values.shape)


def _coo(values: Floats) -> sparse.coo_array:
    """Each entry twice, as halves, in any order."""
    rows = sparse.coo_array(values)
    order = np.random.default_rng(0).permutation(2 * rows.nnz)
    row, column = np.tile(rows.row, 2)[order], np.tile(rows.col, 2)[order]
    return sparse.coo_array((np.tile(rows.data / 2, 2)[order], (row, column)), shape=values.shape)


def _csc(values: Floats) -> sparse.csc_array:
    """Columns whose rows come backwards, each entry as two halves."""
    other = scattered(np.ascontiguousarray(values.T))
    return sparse.csc_array((other.data, other.indices, other.indptr), shape=values.shape)


def _unaligned(values: Floats) -> Floats:
    return np.frombuffer(b"x" + values.tobytes(), np.float32, offset=1).reshape(values.shape)


DENSE: dict[str, Layout] = {
    "float32": lambda v: v.copy(),
    "float64": lambda v: v.astype(np.float64),
    "float16": lambda v: v.astype(np.float16),
    "longdouble": lambda v: v.astype(np.longdouble),
    "big-endian": lambda v: v.astype(">f4"),
    "Fortran": np.asfortranarray,
    "every other column": lambda v: np.repeat(v, 2, axis=1)[:, ::2],
    "reversed": lambda v: v[::-1, ::-1].copy()[::-1, ::-1],
    "read-only": lambda v: _read_only(v.copy()),
    "unaligned": _unaligned,
    "list": lambda v: v.tolist(),
    "rows in a list": lambda v: list(v.copy()),
    "not masked": np.ma.masked_array,
}

SPARSE: dict[str, Layout] = {
    "csr_array": sparse.csr_array,
    "csr_matrix": sparse.csr_matrix,
    "float64": lambda v: sparse.csr_array(v.astype(np.float64)),
    "unsorted": unsorted,
    "unsorted int64": lambda v: unsorted(v, np.int64),
    "doubled": doubled,
    "doubled float64 int64": lambda v: doubled(v, np.int64).astype(np.float64),
    "scattered": scattered,
    "scattered csr_matrix": lambda v: sparse.csr_matrix(scattered(v)),
    "scattered read-only": lambda v: _read_only(scattered(v)),
    "scattered int64": lambda v: sparse.csr_array(
        (scattered(v).data, scattered(v).indices.astype(np.int64), scattered(v).indptr), shape=v.shape
    ),
    "said to be canonical": _with_flag,
    "product with eye": lambda v: sparse.csr_array(v) @ sparse.eye_array(v.shape[1], dtype=np.float32),
    "a part of a larger one": lambda v: scattered(np.vstack([v + 1, v, v]))[len(v) : 2 * len(v)],
    "stored zeros": _with_zeros,
    "coo": _coo,
    "csc": _csc,
    "csc_matrix": lambda v: sparse.csc_matrix(_csc(v)),
    "lil": sparse.lil_array,
    "dok": sparse.dok_array,
    "dia": sparse.dia_array,
    "bsr": sparse.bsr_array,
}

LAYOUTS = {"dense": DENSE, "sparse": SPARSE}


def _damaged_pointers(v: Floats) -> sparse.csr_array:
    rows = sparse.csr_array(v)
    rows.indptr = rows.indptr.copy()
    rows.indptr[-1] += 1000
    return rows


def _falling_pointers(v: Floats) -> sparse.csr_array:
    rows = sparse.csr_array(v)
    rows.indptr = rows.indptr[[0, *range(len(rows.indptr) - 1, 0, -1)]].copy()
    return rows


def _cut(v: Floats) -> sparse.csr_array:
    rows = sparse.csr_array(v)
    rows.data = rows.data[:-1]
    return rows


def _far_column(v: Floats) -> sparse.csc_array:
    rows = sparse.csc_array(v)
    rows.indices = rows.indices.copy()
    rows.indices[-1] = 10**6
    return rows


def _far_index(v: Floats) -> sparse.csr_array:
    rows = sparse.csr_array(v)
    return sparse.csr_array((rows.data, rows.indices + np.int64(2**40), rows.indptr), shape=v.shape)


def _masked(v: Floats) -> Any:
    return np.ma.masked_array(v, v == v.max())


NO_ROWS: dict[str, Layout] = {
    "None": lambda v: None,
    "text": lambda v: "vectors",
    "bytes": lambda v: v.tobytes(),
    "a dict": lambda v: {"x": v},
    "a number": lambda v: 0.5,
    "objects": lambda v: v.astype(object),
    "texts": lambda v: v.astype(str),
    "complex": lambda v: v.astype(np.complex64),
    "dates": lambda v: (v * 16).astype("M8[s]"),
    "records": lambda v: np.zeros(len(v), [("x", "f4"), ("y", "f4")]),
    "unequal": lambda v: [list(v[0]), list(v[0, :3])],
    "masked": _masked,
    "three axes": lambda v: v[None],
    "no columns": lambda v: v[:, :0],
    "a column less": lambda v: v[:, :-1].copy(),
    "a column more": lambda v: np.hstack([v, v[:, :1]]),
    "csr of a column more": lambda v: sparse.csr_array(np.hstack([v, v[:, :1]])),
    "csr of complex": lambda v: sparse.csr_array(v.astype(np.complex64)),
    "coo of three axes": lambda v: sparse.coo_array(v[None]),
    "csr with damaged pointers": _damaged_pointers,
    "csr with falling pointers": _falling_pointers,
    "csr with a value less": _cut,
    "csr with indices beyond int32": _far_index,
    "csc with a row too many": _far_column,
    "rows in an object array": lambda v: np.array([*v[:2], None], object),
    "a list of csr": lambda v: [sparse.csr_array(v[:1])] * 2,
    "an iterator": iter,
}


def _bad_values(value: float) -> Layout:
    def made(v: Floats) -> Floats:
        bad = v.copy()
        bad[BAD_ROW, 5] = value
        return bad

    return made


NOT_FINITE = {"NaN": np.nan, "inf": np.inf, "-inf": -np.inf}
BAD_ROW = 2
"""Of `BAD_VALUES` and `BAD_INDICES`: the one row that is wrong."""
BAD_VALUES: dict[str, Layout] = {name: _bad_values(value) for name, value in NOT_FINITE.items()}


def _bad_indices(index: int) -> Layout:
    """An index out of range, in a row whose order is also wrong."""

    def made(v: Floats) -> sparse.csr_array:
        rows = unsorted(v)
        indices = rows.indices.copy()
        indices[rows.indptr[BAD_ROW]] = index
        return sparse.csr_array((rows.data, indices, rows.indptr), shape=v.shape)

    return made


BAD_INDICES: dict[str, Layout] = {str(index): _bad_indices(index) for index in (-1, DIM, 2**31 - 1, -(2**31))}


def _arrays(rows: Any) -> list[NDArray[Any]]:
    if isinstance(rows, np.ndarray):
        return [rows]
    names = ("data", "indices", "indptr", "row", "col", "offsets", "rows")
    return [one for one in (getattr(rows, name, None) for name in names) if isinstance(one, np.ndarray)]


def _seen(rows: Any) -> list[Any]:
    return [(id(array), array.dtype, array.shape, array.tobytes()) for array in _arrays(rows)] + [
        repr(rows) if isinstance(rows, list) else type(rows)
    ]


@contextmanager
def named(what: str) -> Iterator[None]:
    """A failure inside says what was given."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"given: {what}")
        raise


@contextmanager
def unchanged(what: str, *given: Any) -> Iterator[None]:
    """What the caller gave is what it was; a failure names the layout."""
    before = [_seen(one) for one in given]
    with named(what):
        yield
    assert [_seen(one) for one in given] == before, f"{what} was changed"


def refuses(what: str, error: type[Exception], call: Callable[[], Any], *words: str) -> None:
    """A call raises that class of error and no other, and its message has one of the words."""
    with named(what), pytest.raises(error) as told:
        call()
    assert not words or any(word in str(told.value) for word in words), f"{what}: {told.value}"
