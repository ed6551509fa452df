"""How a version's arrays are named: the learner's under their own names, the others with a prefix.

`map.` is the frozen map, `dedupe.` the window of known event ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from checkpoints.manifest import Manifest

Arrays = dict[str, npt.NDArray[Any]]

MATRIX = "W"
MAP_PREFIX = "map."
WINDOW_PREFIX = "dedupe."


def pack(
    learner: Mapping[str, npt.NDArray[Any]],
    window: Mapping[str, npt.NDArray[Any]],
    fitted: Mapping[str, npt.NDArray[Any]],
) -> Arrays:
    """The arrays of a version, without copying."""
    return {
        **learner,
        **{WINDOW_PREFIX + name: array for name, array in window.items()},
        **{MAP_PREFIX + name: array for name, array in fitted.items()},
    }


def learner_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """The learner's part of a version's arrays."""
    others = (MAP_PREFIX, WINDOW_PREFIX)
    return {name: array for name, array in arrays.items() if not name.startswith(others)}


def matrix_digest(manifest: Manifest) -> str:
    """The digest of a version's learned matrix; StopIteration for a version without one."""
    return next(spec.digest for spec in manifest.arrays if spec.name == MATRIX)


def map_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """The map's part of a version's arrays."""
    return _part(arrays, MAP_PREFIX)


def window_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """The part of the window of known event ids; empty where a version has none."""
    return _part(arrays, WINDOW_PREFIX)


def _part(arrays: Mapping[str, npt.NDArray[Any]], prefix: str) -> Arrays:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
