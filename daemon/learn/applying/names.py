"""What events are known by, and what they name: 64 bits for each, its source, its query and both items."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from learners.caps import NAMES
from streams.compiled.hashing import hash_each
from streams.decode import DecodedBatch
from streams.event import Column, DenseColumn
from streams.resolve import RoleColumns

Names = npt.NDArray[np.uint64]

FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""An odd number: joined hashes of several parts differ when the parts change places."""
NUMBER = 4
"""Bytes of an index, and of a value."""


def event_ids(decoded: DecodedBatch, at: slice) -> Names:
    """uint64 [k], of the decoded events `at`: what each is known by when it is sent again.

    That is its id; where one model per key is learned, its id and its key: nobody's ids are taken by another
    key, and an event that named none or a wrong one is learned when it is sent again with its own.
    """
    ids = decoded.ids[at]
    return ids if decoded.keys is None else ids * FACTOR + _of_keys(decoded.keys[at])


def event_names(decoded: DecodedBatch) -> Names:
    """uint64 [n, 4], in the order of `learners.caps.NAMES`.

    Events without a `src` have one source in common, 0. An object of the catalog is known by its row, since a
    version's catalog never changes; one that brings its features by their bytes (xxh64), whatever id stands
    beside them: the features are what is learned. Where one model per key is learned, each key has names of
    its own: what its events do to its model uses up no other's cap.
    """
    names = np.empty((len(decoded), NAMES), np.uint64)
    names[:, 0] = decoded.sources
    for place, role in enumerate((decoded.query, decoded.clicked, decoded.skipped), start=1):
        names[:, place] = _objects(role)
    if decoded.keys is not None:
        names = names * FACTOR + _of_keys(decoded.keys)[:, None]
    return names


def _of_keys(keys: npt.NDArray[np.bytes_]) -> Names:
    texts = np.ascontiguousarray(keys)
    bounds = np.arange(len(texts) + 1, dtype=np.int64) * texts.itemsize
    return _hash_each(texts.view(np.uint8), bounds)


def _objects(role: RoleColumns) -> Names:
    rows = role.rows.astype(np.uint64)
    if role.inline is None:
        return rows
    hashes = np.zeros(len(role), np.uint64)
    for column in role.inline.values():
        for part in _hashes(column):
            hashes = hashes * FACTOR + part
    named: Names = np.where(role.rows >= 0, rows, hashes)
    return named


def _hashes(column: Column) -> list[Names]:
    """Hashes of the bytes of each row: its values, and its indices where it has any."""
    if isinstance(column, DenseColumn):
        n, dim = column.values.shape
        return [_hash_each(column.values, np.arange(n + 1, dtype=np.int64) * (dim * NUMBER))]
    bounds = column.indptr * NUMBER
    return [_hash_each(column.indices, bounds), _hash_each(column.values, bounds)]


def _hash_each(
    array: npt.NDArray[np.float32] | npt.NDArray[np.int32] | npt.NDArray[np.uint8],
    bounds: npt.NDArray[np.int64],
) -> Names:
    hashes = np.empty(len(bounds) - 1, np.uint64)
    hash_each(np.ascontiguousarray(array).reshape(-1).view(np.uint8), bounds, hashes)
    return hashes
