"""The catalog's objects in the learner's space."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import structlog

from learners.block import Block, DenseBlock, SparseBlock, concatenate
from learners.maps import FittedSpaceMap
from streams.catalog import Catalog
from streams.catalog_cache import derived_arrays
from streams.event import Column, DenseColumn
from streams.objects.catalog_file import Arrays

LEAST_NUMBERS = 1 << 20
"""Objects times dimensions: fewer are mapped in less time than a file takes."""

log = structlog.get_logger("tripletd.catalog")


def as_blocks(views: Mapping[str, Column]) -> dict[str, Block]:
    """The same arrays under the learners' names."""
    return {name: as_block(column) for name, column in views.items()}


def as_block(column: Column) -> Block:
    """The same rows under the learners' name."""
    if isinstance(column, DenseColumn):
        return DenseBlock(column.values)
    return SparseBlock(column.indptr, column.indices, column.values, column.dim)


def map_catalog(catalog: Catalog, fitted: FittedSpaceMap, *, keep: bool = True) -> Block:
    """Every object of the catalog in the learner's space; row i is object i.

    keep: mapped objects are kept beside the catalog's own binary, where they take long to make, and every
    process that needs them has the same copy; False leaves nothing behind.
    """
    if not keep or len(catalog) * fitted.dim < LEAST_NUMBERS:
        return fitted.transform(as_blocks(catalog.views))

    def make() -> Arrays:
        return _arrays_of(fitted.transform(as_blocks(catalog.views)))

    return _block_of(derived_arrays(catalog, fitted.id[:16], make, log.info), fitted.dim)


def _arrays_of(block: Block) -> Arrays:
    if isinstance(block, DenseBlock):
        return {"values": block.values}
    return {"indptr": block.indptr, "indices": block.indices, "values": block.values}


def _block_of(arrays: Arrays, dim: int) -> Block:
    if "indptr" not in arrays:
        return DenseBlock(arrays["values"])
    return SparseBlock(arrays["indptr"], arrays["indices"], arrays["values"], dim)


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
    return concatenate([mapped, from_catalog]).take(places)
