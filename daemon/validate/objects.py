"""The objects of holdout impressions: checked on arrival, mapped into the learner's space when judged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from daemon.objects.mapped import as_blocks, map_catalog, overlay
from learners.block import Block, SparseBlock
from learners.maps import FittedSpaceMap
from streams.catalog import Catalog
from streams.event import Impression, ObjectRef, SpaceSpec
from streams.resolve import Resolver, gather_objects


def check_impression(impression: Impression, space: SpaceSpec, catalog: Catalog | None) -> None:
    """Raise Poison unless every object is in the catalog or brings all views of the space in the right
    size.
    """
    Resolver(space, catalog).check_space(impression.space)
    gather_objects((impression.query, *impression.shown), space, catalog)


class MappedObjects:
    """Objects in the learner's space under one frozen map.

    Holds the mapped catalog (4 bytes per dense value, 8 per sparse entry), made once per map: all versions of
    a store share their map. `catalog` is None without one.
    """

    def __init__(self, space: SpaceSpec, catalog: Catalog | None, fitted: FittedSpaceMap) -> None:
        self._space = space
        self._catalog = catalog
        self._fitted = fitted
        self.catalog: Block | None = None if catalog is None else map_catalog(catalog, fitted)

    @property
    def dim(self) -> int:
        """Dimension of the learner's space."""
        return self._fitted.dim

    @property
    def width(self) -> int:
        """Floats a mapped object takes: the dimension, or twice the mean entries of a sparse catalog's
        objects.
        """
        if not isinstance(self.catalog, SparseBlock):
            return self.dim
        return min(self.dim, 1 + 2 * len(self.catalog.values) // max(1, len(self.catalog)))

    @property
    def map_id(self) -> str:
        """Id of the map."""
        return self._fitted.id

    @property
    def ids(self) -> Sequence[str]:
        """Ids of the catalog in row order; empty without one."""
        return () if self._catalog is None else self._catalog.ids

    def row_of(self, ref: ObjectRef) -> int | None:
        """The catalog row with this object's id, whether or not it brought features of its own."""
        if self._catalog is None or ref.id is None:
            return None
        return self._catalog.row_of(ref.id)

    def block(self, refs: Sequence[ObjectRef]) -> tuple[Block, NDArray[np.int32]]:
        """Mapped features, one row per object in order, and the catalog rows they are from.

        A row is -1 where the object brought features of its own: they win over the catalog's. The objects
        must have passed `check_impression` with the same space and catalog.
        """
        role = gather_objects(refs, self._space, self._catalog)
        if role.inline is None:
            assert self.catalog is not None, "an object by id alone was checked against the catalog"
            return self.catalog.take(role.rows), role.rows
        mapped = self._fitted.transform(as_blocks(role.inline))
        named: NDArray[np.bool_] = role.rows >= 0
        if self.catalog is not None and named.any():
            mapped = overlay(mapped, self.catalog, role.rows, named)
        return mapped, role.rows
