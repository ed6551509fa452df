"""Kinds of queries that are held out as a whole: the neighbourhoods of a few objects of the catalog.

Of a query that is held out alone, others of its kind are learned, so that it does not show what a model does
on kinds that no click ever covered. Here the queries nearest to an object are held out together. The objects
at the centre are those whose seeded hashes are smallest, and how near is near enough is a quantile over the
catalog: the same catalog and seed give the same kinds in every run, without a memory of earlier ones. An
object that joins a catalog of n becomes one of c centres with probability c / n.

Near is by the cosine of the vectors as they were given, of several views by the mean of their cosines.
"""

from __future__ import annotations

import heapq
from hashlib import blake2b

import numpy as np

from streams.catalog import Catalog
from streams.event import Column, DenseColumn, Float64Array, Int64Array, ObjectRef, SparseVector, Vector
from streams.limits import MAX_TEXT_BYTES

NO_KIND = -1
ROWS_AT_ONCE = 8_192
"""Of a dense view, widened to float64 together."""


class HeldOutKinds:
    """`count` kinds of queries, each as large as `share` of the catalog.

    What is near to two centres belongs to the one with the smaller hash. A vector of zeros is of no kind, nor
    is a query that the catalog does not know, or whose features do not fit it. Memory: one int64 per object.
    """

    def __init__(self, catalog: Catalog, count: int, share: float, seed: int = 0) -> None:
        self._catalog, size = catalog, len(catalog)
        centres = _centres(catalog, count, seed)
        self.names = tuple(catalog.ids[row] for row in centres)
        """Of each kind, the id of the object at its centre."""
        self.rows: Int64Array = np.full(size, NO_KIND, np.int64)
        """Of each object of the catalog the place of its kind in `names`, -1 for none; int64 [n]."""
        self._kinds: list[tuple[dict[str, Float64Array], float]] = []
        inside = max(1, round(share * size))
        for kind, centre in enumerate(centres):
            views = {name: _unit_row(column, centre) for name, column in catalog.views.items()}
            near = np.mean([_cosines(catalog.views[name], one) for name, one in views.items()], axis=0)
            least = _least(near, inside)
            self._kinds.append((views, least))
            self.rows[(self.rows == NO_KIND) & (near >= least) & (near > 0)] = kind

    def of(self, query: ObjectRef) -> str | None:
        """The name of the query's kind; None for a query that is not held out so."""
        features = query.features()
        if features is not None:
            for name, (centre, least) in zip(self.names, self._kinds, strict=True):
                near = float(np.mean([_cosine(features.get(view), one) for view, one in centre.items()]))
                if near > 0 and near >= least:
                    return name
            return None
        row = None if query.id is None else self._catalog.row_of(query.id)
        kind = NO_KIND if row is None else int(self.rows[row])
        return None if kind == NO_KIND else self.names[kind]


def _least(near: Float64Array, inside: int) -> float:
    """What the `inside` largest similarities are above: half way to the next, far from any rounding."""
    if inside >= len(near):
        return -1.0
    ordered = np.partition(near, (len(near) - inside - 1, len(near) - inside))
    return float(ordered[-inside - 1] + ordered[-inside]) / 2


def _centres(catalog: Catalog, count: int, seed: int) -> list[int]:
    """Rows of the objects with the smallest seeded hashes, smallest first. None whose id is too long for a
    record."""
    salt = seed.to_bytes(16, "little", signed=True)

    def order(row: int) -> bytes:
        return blake2b(catalog.ids[row].encode(), digest_size=8, key=salt, person=b"kind").digest()

    named = (row for row, one in enumerate(catalog.ids) if len(one.encode()) <= MAX_TEXT_BYTES)
    return heapq.nsmallest(count, named, key=order)


def _unit_row(column: Column, row: int) -> Float64Array:
    """A row of a view, dense, of length 1, float64 [d]; zeros stay."""
    out: Float64Array = np.zeros(column.dim, np.float64)
    if isinstance(column, DenseColumn):
        out[:] = column.values[row]
    else:
        part = slice(column.indptr[row], column.indptr[row + 1])
        out[column.indices[part]] = column.values[part]
    return out / (float(np.linalg.norm(out)) or 1.0)


def _cosines(column: Column, centre: Float64Array) -> Float64Array:
    """Of each row with a vector of unit length, float64 [n]; 0 for a row of zeros."""
    size = len(column)
    products: Float64Array = np.zeros(size, np.float64)
    squares: Float64Array = np.zeros(size, np.float64)
    if isinstance(column, DenseColumn):
        for start in range(0, size, ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            values = column.values[part].astype(np.float64)
            products[part], squares[part] = values @ centre, np.einsum("nd,nd->n", values, values)
    else:
        owners, values = np.repeat(np.arange(size), np.diff(column.indptr)), column.values.astype(np.float64)
        products += np.bincount(owners, values * centre[column.indices], size)
        squares += np.bincount(owners, values * values, size)
    return _divided(products, squares)


def _cosine(vector: Vector | None, centre: Float64Array) -> float:
    """As `_cosines`, of one vector; 0 for one that does not fit."""
    if isinstance(vector, SparseVector):
        if len(vector.indices) and vector.indices[-1] >= len(centre):
            return 0.0
        values, others = vector.values.astype(np.float64), centre[vector.indices]
    elif vector is None or len(vector) != len(centre):
        return 0.0
    else:
        values, others = vector.astype(np.float64), centre
    return float(_divided(np.atleast_1d(values @ others), np.atleast_1d(values @ values))[0])


def _divided(products: Float64Array, squares: Float64Array) -> Float64Array:
    out: Float64Array = np.zeros(len(products), np.float64)
    return np.divide(products, np.sqrt(squares), out=out, where=squares > 0)
