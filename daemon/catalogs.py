"""The catalogs that a configuration names, opened, and their objects in the learner's space: each is read
once, then mapped by every process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import structlog

from daemon.config import Config
from learners.block import Block, DenseBlock, SparseBlock, concatenate
from learners.maps import FittedSpaceMap
from streams.catalog import Catalog
from streams.catalog_cache import CatalogSource, Tell, derived_arrays, open_catalog
from streams.event import Column, DenseColumn, SpaceSpec
from streams.objects.catalog_file import Arrays
from streams.objects.columns import ObjectColumns, SparsePair, VectorColumns

FOLDER = "catalogs"
"""Of the checkpoint folder: where what was read is kept."""

LEAST_NUMBERS = 1 << 20
"""Objects times dimensions: fewer are mapped in less time than a file takes."""

log = structlog.get_logger("tripletd.catalog")


def learner_catalog(config: Config, tell: Tell | None = None, *, whole: bool = False) -> Catalog | None:
    """The objects of catalog.path, of the configured space; None where it is empty.

    tell: is told how far reading is; by default a log line. whole: as of `open_catalog`. Raises CatalogError.
    """
    if not config.catalog.path:
        return None
    source = _source(config, config.catalog.path, config.catalog.ids, config.space_spec())
    return open_catalog(source, folders(config), tell or log.info, whole=whole)


def serving_catalog(config: Config, tell: Tell | None = None, *, whole: bool = False) -> Catalog | None:
    """The objects of serve.catalog, else of catalog.path; None where both are empty. Raises CatalogError."""
    if not config.serve.catalog:
        return learner_catalog(config, tell, whole=whole)
    source = _source(config, config.serve.catalog, "", config.space_spec())
    return open_catalog(source, folders(config), tell or log.info, whole=whole)


def catalog_without_space(config: Config, tell: Tell | None = None) -> Catalog | None:
    """The objects of catalog.path in the space that they state themselves. Raises CatalogError."""
    if not config.catalog.path:
        return None
    source = _source(config, config.catalog.path, config.catalog.ids, None)
    return open_catalog(source, folders(config), tell or log.info)


def _source(config: Config, path: str, ids: str, space: SpaceSpec | None) -> CatalogSource:
    return CatalogSource(Path(path), Path(ids) if ids else None, object_columns(config), space)


def folders(config: Config) -> list[Path]:
    """Where what was read may be kept: beside the versions, else in the user's cache.

    A command without a configuration makes no checkpoint folder.
    """
    found = []
    place = config.checkpoints.path
    if "://" not in place:
        named = config.file is not None or config.origin_of("checkpoints.path") != "default"
        if named or Path(place, "versions").is_dir():
            found.append(Path(place, FOLDER))
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if Path(user).is_absolute():
        found.append(Path(user, "tripletd", FOLDER))
    return found


def object_columns(config: Config) -> ObjectColumns:
    """[catalog.columns] as readers take it."""
    given = config.catalog.columns
    return ObjectColumns(
        id=given.id,
        x=_where(given.x),
        views={name: _where(where) for name, where in given.views.items()},
        title=given.title,
        text=given.text,
        image=given.image,
        tags=tuple(given.tags),
    )


def _where(given: str | list[str] | dict[str, str]) -> VectorColumns:
    if isinstance(given, dict):
        return SparsePair(given["indices"], given["values"])
    return given if isinstance(given, str) else tuple(given)


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
