"""Folded queries in the space of the given vectors: for an index that holds these as they are.

Where every map is linear up to a factor of the row's own, z(x) = c(x) (x - b) M, the product of a folded
query f with a mapped object is c(p) ((f M^T) . p - f M^T b): besides f M^T . p, its inner product with the
given vector, there are only factors and terms of the object alone or of the query alone. So f M^T can be sent
to an index of given vectors. Of several views it is that with the given vectors side by side, in the order of
the space's views, each at unit length where its map brings it there; a map that scales rows in another way
has no such factor to leave out, since that of one view is not that of another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from learners.block import Block, Float32s, SparseBlock, as_block
from learners.maps.base import LinearRows, to_unit
from learners.maps.space import FittedSpaceMap, joined


@dataclass(frozen=True, slots=True)
class LinearView:
    """One view of the joined given vectors. columns: of it there. mapped: of it in the mapped vectors. unit:
    whether an index holds it at unit length, since the map does, or since its length does not matter. linear:
    its map and the space's weight of it."""

    name: str
    columns: slice
    mapped: slice
    unit: bool
    linear: LinearRows


@dataclass(frozen=True, slots=True)
class LinearSpace:
    """A space whose maps are linear. views: in the order of the space. sparse: whether given vectors are."""

    views: tuple[LinearView, ...]
    sparse: bool

    @property
    def dim(self) -> int:
        """The dimension of the given vectors of all views side by side."""
        return int(self.views[-1].columns.stop)

    def back(self, folded: Float32s) -> Float32s:
        """Take folded queries in the columns of the map, float32 [n, d], to given vectors, [n, dim]."""
        parts = [view.linear.back(folded[:, view.mapped]) for view in self.views]
        return np.concatenate(parts, axis=1).astype(np.float32)

    def adapter(self, S: Float32s) -> tuple[Float32s, Float32s | None]:
        """F and b with F x + b the folded query of a given vector x, for given vectors too: M S M^T, float32
        [dim, dim], and what the shifts of the maps add, float32 [dim] or None. S: float32 [d, d], symmetric.
        A factor of the query's own is left out."""
        F = self.back(np.ascontiguousarray(self.back(S).T))
        if all(view.linear.shift is None for view in self.views):
            return F, None
        shift = np.zeros(self.dim)
        for view in self.views:
            if view.linear.shift is not None:
                shift[view.columns] = view.linear.shift
        return F, np.asarray(-(F @ shift), np.float32)

    def given(self, views: Mapping[str, Any]) -> Block:
        """What the index holds of objects: their given vectors side by side, those of a view at unit length
        where its map brings them there; a view that is absent is zeros. Raises BlockError on another
        dimension."""
        parts: list[tuple[Block | None, int]] = []
        for view in self.views:
            dim = view.columns.stop - view.columns.start
            rows = None if view.name not in views else as_block(views[view.name], dim, f"view {view.name}")
            parts.append((rows if rows is None or not view.unit else _unit(rows), dim))
        count = next(len(rows) for rows, _ in parts if rows is not None)
        return joined(parts, count, any(isinstance(rows, SparseBlock) for rows, _ in parts))


def linear_space(fitted: FittedSpaceMap) -> LinearSpace | None:
    """How folded queries are taken back to given vectors; None where a map is not linear, or where one of
    several views is scaled row by row in another way than to unit length."""
    views: list[LinearView] = []
    start, column, alone = 0, 0, len(fitted.views) == 1
    for name, view in fitted.views.items():
        found = view.linear()
        if found is None:
            return None
        if fitted.unit and not fitted.effective:  # each view is brought to unit length behind its map
            found = found.then(LinearRows(np.ones(view.dim), rows="unit"))
            assert found is not None
        if found.rows == "scaled" and not alone:
            return None
        scaled = replace(found, matrix=found.matrix * fitted.scales.get(name, 1.0))
        columns, mapped = slice(column, column + view.dim_in), slice(start, start + view.dim)
        any_length = alone and found.shift is None and (fitted.unit or found.rows == "scaled")
        unit = found.rows == "unit" or any_length
        views.append(LinearView(name, columns, mapped, unit, scaled))
        start, column = mapped.stop, columns.stop
    return LinearSpace(tuple(views), fitted.sparse)


def _unit(rows: Block) -> Block:
    copied = rows.with_values(rows.values.copy())
    to_unit(copied)
    return copied
