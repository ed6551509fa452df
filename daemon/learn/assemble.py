"""Decoded columns -> one batch of triplets in the learner's space.

Objects named by id are rows of the catalog, mapped once at the start: a gather per role. Objects with
features of their own go through the frozen map.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from learners.batch import TripletBatch
from learners.block import Block, DenseBlock, SparseBlock
from learners.maps import FittedSpaceMap
from streams.catalog import Catalog
from streams.columns import RoleColumns
from streams.decode import DecodedBatch
from streams.vectors import Column, DenseColumn


def as_blocks(views: Mapping[str, Column]) -> dict[str, Block]:
    """The same arrays under the learners' names."""
    return {name: _as_block(column) for name, column in views.items()}


def map_catalog(catalog: Catalog, fitted: FittedSpaceMap) -> Block:
    """Every object of the catalog in the learner's space; row i is object i."""
    return fitted.transform(as_blocks(catalog.views))


class Assembler:
    """Turns decoded batches into triplets. Holds the mapped catalog, float32."""

    def __init__(self, fitted: FittedSpaceMap, catalog: Catalog | None) -> None:
        self._map = fitted
        self._catalog = None if catalog is None else map_catalog(catalog, fitted)

    def triplets(self, decoded: DecodedBatch) -> TripletBatch | None:
        """The batch's events in order; None when it has none (every record is poison)."""
        if len(decoded.offsets) == 0:
            return None
        return TripletBatch(
            self._role(decoded.query), self._role(decoded.clicked), self._role(decoded.skipped)
        )

    def _role(self, role: RoleColumns) -> Block:
        if role.inline is None:
            assert self._catalog is not None, "the decoder resolves ids only in a catalog"
            return self._catalog.take(role.rows)
        mapped = self._map.transform(as_blocks(role.inline))
        named = role.rows >= 0
        if self._catalog is None or not named.any():
            return mapped
        return overlay(mapped, self._catalog, role.rows, named)


def overlay(
    mapped: Block, catalog: Block, rows: npt.NDArray[np.int32], named: npt.NDArray[np.bool_]
) -> Block:
    """`mapped` with the rows marked in `named` taken from the catalog instead (`rows` are theirs there)."""
    if isinstance(mapped, DenseBlock):
        assert isinstance(catalog, DenseBlock)
        values = mapped.values.copy()
        values[named] = catalog.values[rows[named]]
        return DenseBlock(values)
    assert isinstance(catalog, SparseBlock)
    from_catalog = catalog.take(rows[named])
    places = np.arange(len(rows), dtype=np.int64)
    places[named] = len(rows) + np.arange(len(from_catalog))
    return _stack(mapped, from_catalog).take(places)


def _stack(above: SparseBlock, below: SparseBlock) -> SparseBlock:
    indptr = np.concatenate((above.indptr, below.indptr[1:] + len(above.indices)))
    indices = np.concatenate((above.indices, below.indices))
    return SparseBlock(indptr, indices, np.concatenate((above.values, below.values)), above.dim)


def _as_block(column: Column) -> Block:
    if isinstance(column, DenseColumn):
        return DenseBlock(column.values)
    return SparseBlock(column.indptr, column.indices, column.values, column.dim)
