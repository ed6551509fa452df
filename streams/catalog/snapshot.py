"""The catalog: an immutable snapshot of objects' features, by id, with a digest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256

import numpy as np

from streams.event import Column, DenseColumn, SpaceSpec, SparseColumn, ViewSpec


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
        raise CatalogError(f"view {view.name!r}: indptr does not fit {len(indices)} entries; write it anew")
    if len(column.values) != len(indices):
        raise CatalogError(f"view {view.name!r}: {len(indices)} indices for {len(column.values)} values")
    if len(indices) and (indices.min() < 0 or indices.max() >= view.dim):
        raise CatalogError(f"view {view.name!r}: an index is not within 0..{view.dim - 1}; correct it")
    rising = indices[1:] > indices[:-1]
    starts = indptr[1:-1]
    rising[starts[(starts > 0) & (starts < len(indices))] - 1] = True  # a new row may start lower
    if not rising.all():
        raise CatalogError(f"view {view.name!r}: the indices of a row are not strictly increasing; sort them")
