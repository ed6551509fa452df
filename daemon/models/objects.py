"""The configured catalog, mapped as a version maps it: what queries are drawn from and found in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from checkpoints import VersionStore
from daemon.config.model import Config
from daemon.objects.mapped import map_catalog
from daemon.objects.space import space_of
from daemon.versions.maps import read_map
from learners.block import Block
from streams.catalog import load_catalog


@dataclass(frozen=True, slots=True)
class Objects:
    """Ids in row order, and the objects in the learner's space by the map `map_id`."""

    ids: Sequence[str]
    mapped: Block
    map_id: str


def catalog_objects(config: Config, versions: VersionStore, number: int) -> Objects | None:
    """The objects of catalog.path by the map of version `number`; None where no catalog is configured.

    Raises CatalogError, and Damaged for a version that does not load.
    """
    if not config.catalog.path:
        return None
    _, fitted = read_map(versions, number)
    catalog = load_catalog(Path(config.catalog.path), space_of(config))
    return Objects(catalog.ids, map_catalog(catalog, fitted), fitted.id)
