"""How a version's arrays are named: the learner's under their own names, the frozen map's under `map.`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]

MAP_PREFIX = "map."


def pack(learner: Mapping[str, npt.NDArray[Any]], fitted: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """The arrays of a version, without copying."""
    return {**learner, **{MAP_PREFIX + name: array for name, array in fitted.items()}}


def learner_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """The learner's part of a version's arrays."""
    return {name: array for name, array in arrays.items() if not name.startswith(MAP_PREFIX)}


def map_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """The map's part of a version's arrays."""
    return {
        name.removeprefix(MAP_PREFIX): array for name, array in arrays.items() if name.startswith(MAP_PREFIX)
    }
