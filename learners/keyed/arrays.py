"""Arrays of many models: those of one, with an axis of slots in front."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.errors import StateError
from learners.ownership import to_write

CHECKED = 1 << 22
"""Numbers of an array that are looked at together."""


def repeated(array: NDArray[Any], slots: int) -> NDArray[Any]:
    """[slots, ...] of copies of an array; pages of zeros stay untouched."""
    repeated = np.zeros((slots, *array.shape), array.dtype)
    if array.any():
        repeated[...] = array
    return repeated


def taken_over(
    arrays: Mapping[str, NDArray[Any]], name: str, one: NDArray[Any], slots: int, copy: bool
) -> NDArray[Any]:
    """The array of that name, which holds `slots` like `one`. Raises StateError."""
    array = arrays.get(name)
    if array is None:
        raise StateError(f"array {name} is missing")
    if array.dtype != one.dtype or array.shape != (slots, *one.shape):
        raise StateError(
            f"array {name} is {array.dtype} {array.shape}, not {one.dtype} {(slots, *one.shape)}"
        )
    flat = array.reshape(-1)
    for start in range(0, flat.size if array.dtype.kind == "f" else 0, CHECKED):
        if not np.isfinite(flat[start : start + CHECKED]).all():
            raise StateError(f"array {name} holds values that are not finite")
    return to_write(array, name, copy)
