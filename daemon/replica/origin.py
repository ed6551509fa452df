"""The space and the map that a store's versions share."""

from __future__ import annotations

from checkpoints.errors import CheckpointError, Report
from checkpoints.versions import VersionStore
from daemon.replica.model import ModelSpace
from daemon.versions.algorithms import columns_of
from daemon.versions.restore import read_map
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
            manifest, fitted = read_map(versions, number)
        except (CheckpointError, LearnerError) as error:
            if report is not None and isinstance(error, CheckpointError):
                report(error)
        else:
            return ModelSpace.of(manifest, fitted.dim, columns_of(fitted)), fitted
    return None
