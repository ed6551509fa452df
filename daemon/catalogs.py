"""The catalogs that a configuration names, opened: each is read once, then mapped by every process."""

from __future__ import annotations

import os
from pathlib import Path

import structlog

from daemon.config import Config
from streams.catalog import Catalog
from streams.catalog_cache import CatalogSource, Tell, open_catalog
from streams.event import SpaceSpec
from streams.objects.columns import ObjectColumns, SparsePair, VectorColumns

FOLDER = "catalogs"
"""Of the checkpoint folder: where what was read is kept."""

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
