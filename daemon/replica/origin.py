"""The space and the map that a store's versions share."""

from __future__ import annotations

from checkpoints.versions import VersionStore
from daemon.replica.model import ModelSpace
from learners.maps import FittedSpaceMap


def read_space(versions: VersionStore) -> tuple[ModelSpace, FittedSpaceMap] | None:
    """Space and frozen map of the newest version that can be read, without its W; None without a version.

    All versions of a store share their map; a replica refuses those that do not.
    """
    raise NotImplementedError
