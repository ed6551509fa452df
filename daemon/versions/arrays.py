"""How a version's arrays are named: the learner's under their own names, the others with a prefix.

`map.` is the frozen map, `dedupe.` the window of known event ids, `caps.` the window of steps by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
from xxhash import xxh3_128

from checkpoints.manifest import ArraySpec, Manifest

Arrays = dict[str, npt.NDArray[Any]]

MAP_PREFIX = "map."
WINDOW_PREFIX = "dedupe."
CAPS_PREFIX = "caps."
OTHERS = (MAP_PREFIX, WINDOW_PREFIX, CAPS_PREFIX)


def pack(
    learner: Mapping[str, npt.NDArray[Any]],
    window: Mapping[str, npt.NDArray[Any]],
    fitted: Mapping[str, npt.NDArray[Any]],
    caps: Mapping[str, npt.NDArray[Any]],
) -> Arrays:
    """The arrays of a version, without copying."""
    return {
        **learner,
        **{WINDOW_PREFIX + name: array for name, array in window.items()},
        **{MAP_PREFIX + name: array for name, array in fitted.items()},
        **{CAPS_PREFIX + name: array for name, array in caps.items()},
    }


def learner_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """The learner's part of a version's arrays."""
    return {name: array for name, array in arrays.items() if not name.startswith(OTHERS)}


def learner_specs(manifest: Manifest) -> tuple[ArraySpec, ...]:
    """The learner's part of what a manifest says of arrays."""
    return tuple(spec for spec in manifest.arrays if not spec.name.startswith(OTHERS))


def one_digest(digests: Mapping[str, str]) -> str:
    """One digest for several arrays, by name: the digest itself where there is one, else the xxh3_128 (hex)
    of the lines "name digest" in the order of the names.
    """
    if len(digests) == 1:
        return next(iter(digests.values()))
    lines = "".join(f"{name} {digest}\n" for name, digest in sorted(digests.items()))
    return xxh3_128(lines.encode()).hexdigest()


def map_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """The map's part of a version's arrays."""
    return _part(arrays, MAP_PREFIX)


def caps_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """The part of the window of steps by name; empty where a version has no caps."""
    return _part(arrays, CAPS_PREFIX)


def window_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """The part of the window of known event ids; empty where a version has none."""
    return _part(arrays, WINDOW_PREFIX)


def _part(arrays: Mapping[str, npt.NDArray[Any]], prefix: str) -> Arrays:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
