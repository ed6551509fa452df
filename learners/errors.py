"""What the learners refuse: their errors, and the checks of settings and saved arrays that raise them.

Every message names the place and the remedy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


class LearnerError(ValueError):
    """Anything the learners refuse. Never retriable: the same input is refused again."""


class BlockError(LearnerError):
    """An array cannot be read as rows of vectors: wrong type, shape, length or dimension."""


class ConfigError(LearnerError):
    """A setting of a learner or map is outside its stated range."""


class StateError(LearnerError):
    """Saved arrays are not a state of this learner: missing, or wrong shape, dtype or values."""


class MapError(LearnerError):
    """A map cannot be fitted, loaded, or applied to the views it was given."""


class CompileNotice(UserWarning):
    """Kernels are not in the cache and are compiled now, which takes a while. Not an error."""


def require_positive(name: str, value: float) -> None:
    """Raises ConfigError naming a setting that is no finite number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{name} must be a finite number above 0, not {value}")


CHECKED = 1 << 22
"""Numbers of an array that are looked at together."""


def saved(
    arrays: Mapping[str, NDArray[Any]], name: str, dtype: Any, shape: tuple[int | None, ...]
) -> NDArray[Any]:
    """The finite array of that name, type and shape (None: any length). Raises StateError naming what is
    missing or does not fit."""
    array = arrays.get(name)
    if array is None:
        raise StateError(f"array {name} is missing")
    fits = array.ndim == len(shape) and all(
        want in {None, have} for want, have in zip(shape, array.shape, strict=True)
    )
    wanted = f"{np.dtype(dtype)} [{', '.join('any' if want is None else str(want) for want in shape)}]"
    if not fits:
        raise StateError(f"array {name} has shape {array.shape}: it must be {wanted}")
    if array.dtype != dtype:
        raise StateError(f"array {name} has dtype {array.dtype}: it must be {wanted}")
    flat = array.reshape(-1)
    for start in range(0, flat.size if array.dtype.kind == "f" else 0, CHECKED):
        if not np.isfinite(flat[start : start + CHECKED]).all():
            raise StateError(f"array {name} holds values that are not finite")
    return array


def saved_count(arrays: Mapping[str, NDArray[Any]], name: str) -> int:
    """A count of a saved state, one int64 >= 0. Raises StateError naming it."""
    count = arrays.get(name)
    if count is None:
        raise StateError(f"array {name} is missing")
    if count.dtype != np.int64 or count.size != 1 or int(count.reshape(-1)[0]) < 0:
        raise StateError(f"array {name} must be one int64 >= 0, not {count.dtype} {count.shape}")
    return int(count.reshape(-1)[0])


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written through."""
    view = array.view()
    view.flags.writeable = False
    return view


def to_write(array: NDArray[Any], name: str, copy: bool) -> NDArray[Any]:
    """The array as steps write it: a copy in C order, or itself, for which it must be writable. Raises
    StateError with its name."""
    if copy:
        return np.array(array, order="C")
    if not (array.flags.writeable and array.flags.c_contiguous and array.flags.aligned):
        raise StateError(f"{name} cannot be taken over: it is read-only or not contiguous; use copy=True")
    return array
