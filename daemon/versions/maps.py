"""The frozen map that a version carries."""

from __future__ import annotations

from checkpoints.encoding import fresh
from checkpoints.manifest import Manifest
from checkpoints.versions import Version, VersionStore
from daemon.versions.arrays import MAP_PREFIX, map_arrays
from learners.maps import FittedSpaceMap


def map_of(version: Version) -> FittedSpaceMap:
    """The map of a loaded version, on its arrays. Raises MapError for what is none."""
    return FittedSpaceMap.load(version.manifest.map.get("spec", {}), map_arrays(version.arrays))


def read_map(versions: VersionStore, number: int) -> tuple[Manifest, FittedSpaceMap]:
    """A version's manifest and map; of its other arrays nothing is kept. Raises Damaged, and MapError as
    `map_of`.
    """
    version = versions.load(number, lambda spec: fresh(spec) if spec.name.startswith(MAP_PREFIX) else None)
    return version.manifest, map_of(version)
