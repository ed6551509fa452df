"""The catalogs that a configuration names, opened, and their objects in the learner's space: each is read
once, then mapped by every process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import structlog

from checkpoints import CheckpointError, KeyMissing, fetch_files
from checkpoints.store import BadKey
from daemon.config import Config
from daemon.config.objects import is_object_address
from daemon.config.values import POSTGRES, TOPICS
from daemon.versions.storage import object_settings
from learners.block import Block, DenseBlock, SparseBlock, concatenate
from learners.maps import FittedSpaceMap
from streams.catalog import Catalog
from streams.catalog_cache import CatalogSource, derived_arrays, open_catalog
from streams.event import Column, DenseColumn, SpaceSpec
from streams.objects.catalog_file import Arrays
from streams.objects.columns import ObjectColumns, SparsePair, VectorColumns
from streams.objects.rows import CatalogAway, CatalogError, LivePlace, Tell

FOLDER = "catalogs"
"""Of the checkpoint folder: where what was read is kept."""

OBJECTS = "objects"
"""Of the user's cache: where files of object stores are fetched to."""

LEAST_NUMBERS = 1 << 20
"""Objects times dimensions: fewer are mapped in less time than a file takes."""

log = structlog.get_logger("tripletd.catalog")


def learner_catalog(config: Config, tell: Tell | None = None, *, whole: bool = False) -> Catalog | None:
    """The objects of catalog.path, of the configured space; None where it is empty.

    Where they live in a database or a topic, those that were first read for this checkpoint folder: learning
    and judging continue with the objects that the versions were learned with, and the source is not asked
    again. tell: receives the progress of reading; by default a log line. whole: as of `open_catalog`. Raises
    CatalogError.
    """
    if not config.catalog.path:
        return None
    places, pinned = folders(config), ""
    if _live(config, config.catalog.path) is not None and _keeps_versions(config):
        pinned = config.checkpoints.path
        if "://" not in pinned:  # with the versions and nowhere else, so that both move together
            places, pinned = places[:1], "the versions next to it"
    source = _source(config, config.catalog.path, config.catalog.ids, config.space_spec(), pinned)
    return open_catalog(source, places, tell or log.info, whole=whole)


def serving_catalog(config: Config, tell: Tell | None = None, *, whole: bool = False) -> Catalog | None:
    """The objects of serve.catalog, else of catalog.path, as they are now; None where both are empty.

    Raises CatalogError.
    """
    if not config.serve.catalog and not config.catalog.path:
        return None
    path, ids = (
        (config.serve.catalog, "") if config.serve.catalog else (config.catalog.path, config.catalog.ids)
    )
    source = _source(config, path, ids, config.space_spec())
    return open_catalog(source, folders(config), tell or log.info, whole=whole)


def catalog_without_space(config: Config, tell: Tell | None = None) -> Catalog | None:
    """The objects of catalog.path in the space that they state themselves. Raises CatalogError."""
    if not config.catalog.path:
        return None
    source = _source(config, config.catalog.path, config.catalog.ids, None)
    return open_catalog(source, folders(config), tell or log.info)


def _source(config: Config, path: str, ids: str, space: SpaceSpec | None, pinned: str = "") -> CatalogSource:
    place = _file(path) if (live := _live(config, path)) is None else live
    return CatalogSource(place, _file(ids) if ids else None, object_columns(config), space, pinned)


def _file(path: str) -> Path:
    """A file or folder, or a local copy of one in an object store. Raises CatalogAway, CatalogError."""
    if not is_object_address(path):
        return Path(path)
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(user, "tripletd", OBJECTS)
    try:
        return fetch_files(path, object_settings(path), folder)
    except (KeyMissing, BadKey) as error:
        raise CatalogError(f"{error.place}: {error.problem}") from error
    except CheckpointError as error:
        raise CatalogAway(str(error)) from error


def _live(config: Config, path: str) -> LivePlace | None:
    if path.startswith(POSTGRES):
        from streams.objects.from_postgres import PostgresPlace

        address, _, table = path.partition("#")
        return PostgresPlace(address, table.strip(), config.catalog.secret.get_secret_value())
    if path.startswith(TOPICS):
        from streams.objects.from_topic import TopicPlace

        return TopicPlace(config.stream.reached(path))
    return None


def folders(config: Config) -> list[Path]:
    """Folders for what was read: next to the versions, else in the user's cache.

    A command without a configuration makes no checkpoint folder.
    """
    found = []
    if "://" not in config.checkpoints.path and _keeps_versions(config):
        found.append(Path(config.checkpoints.path, FOLDER))
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if Path(user).is_absolute():
        found.append(Path(user, "tripletd", FOLDER))
    return found


def _keeps_versions(config: Config) -> bool:
    if is_object_address(config.checkpoints.path):
        return True
    named = config.file is not None or config.origin_of("checkpoints.path") != "default"
    return named or Path(config.checkpoints.path, "versions").is_dir()


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

    keep: mapped objects that take long to make are kept next to the catalog's own binary, one copy for every
    process that needs them; False leaves nothing behind.
    """
    if not keep or len(catalog) * fitted.dim < LEAST_NUMBERS:
        return fitted.transform(as_blocks(catalog.views))

    def make() -> Arrays:
        block = fitted.transform(as_blocks(catalog.views))
        if isinstance(block, DenseBlock):
            return {"values": block.values}
        return {"indptr": block.indptr, "indices": block.indices, "values": block.values}

    arrays = derived_arrays(catalog, fitted.id[:16], make, log.info)
    if "indptr" not in arrays:
        return DenseBlock(arrays["values"])
    return SparseBlock(arrays["indptr"], arrays["indices"], arrays["values"], fitted.dim)


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
