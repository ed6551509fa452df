"""The space and the map that a store's versions share."""

from __future__ import annotations

from checkpoints.encoding import fresh
from checkpoints.errors import CheckpointError, Report
from checkpoints.manifest import Manifest
from checkpoints.versions import VersionStore
from daemon.replica.model import ModelSpace
from daemon.versions.arrays import MAP_PREFIX, map_arrays
from learners.errors import LearnerError
from learners.maps import FittedSpaceMap


def read_space(
    versions: VersionStore, report: Report | None = None
) -> tuple[ModelSpace, FittedSpaceMap] | None:
    """Space and frozen map of the newest version that can be read, without its W; None without a version.

    All versions of a store share their map; a replica refuses those that do not. Versions that cannot be
    read go to `report`.
    """
    for number in reversed(versions.listing.candidates()):
        try:
            return _space_of(versions, number)
        except (CheckpointError, LearnerError) as error:
            if report is not None and isinstance(error, CheckpointError):
                report(error)
    return None


def space_of(manifest: Manifest, dim: int) -> ModelSpace:
    """What a version says of its space; `dim` is that of its map."""
    return ModelSpace(manifest.space, str(manifest.map.get("id")), dim)


def _space_of(versions: VersionStore, number: int) -> tuple[ModelSpace, FittedSpaceMap]:
    version = versions.load(number, lambda spec: fresh(spec) if spec.name.startswith(MAP_PREFIX) else None)
    fitted = FittedSpaceMap.load(version.manifest.map.get("spec", {}), map_arrays(version.arrays))
    return space_of(version.manifest, fitted.dim), fitted
