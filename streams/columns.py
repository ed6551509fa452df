"""Objects of one role (query, clicked or skipped) of many events, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from streams.space import SpaceSpec, ViewSpec
from streams.vectors import Column, DenseColumn, Int32Array, SparseColumn
from streams.wire import RawVector

Parts = tuple[RawVector, ...]
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


def build_role(space: SpaceSpec, rows: Sequence[int], parts: Sequence[Parts | None]) -> RoleColumns:
    """Columns from per-object catalog rows and inline bytes (None where the object is in the catalog)."""
    row_array = np.array(rows, np.int32)
    if not (row_array < 0).any():
        return RoleColumns(row_array, None)
    blank = tuple(_blank(view) for view in space.views)
    filled = [blank if one is None else one for one in parts]
    inline = {view.name: _column(view, [one[j] for one in filled]) for j, view in enumerate(space.views)}
    return RoleColumns(row_array, inline)


def _blank(view: ViewSpec) -> RawVector:
    return bytes(4 * view.dim) if view.kind == "dense" else [b"", b""]


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
