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


class PrecisionNotice(UserWarning):
    """Steps are so small that float32 loses them: vectors are far from unit length. Not an error."""


def require_whole(name: str, value: Any, error: type[LearnerError] = ConfigError) -> None:
    """Raises `error` naming what is no whole number: 1.5, 2.0, True, "3", None."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise error(f"{name} must be a whole number, not {value!r}")


def require_number(name: str, value: Any) -> None:
    """Raises ConfigError naming a setting that is no single number; NaN and infinity are."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise ConfigError(f"{name} must be a number, not {value!r}")


def require_positive(name: str, value: float) -> None:
    """Raises ConfigError naming a setting that is no finite number above 0."""
    require_number(name, value)
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{name} must be a finite number above 0, not {value}")


CHECKED = 1 << 22
"""Numbers of an array that are looked at together."""

MAX_COUNT = 1 << 62
"""No count of a state is above this: no stream is that long, and as many events can follow before a count
leaves int64."""


def saved(
    arrays: Mapping[str, NDArray[Any]], name: str, dtype: Any, shape: tuple[int | None, ...]
) -> NDArray[Any]:
    """The finite array of that name, type and shape (None: any length), int64 ones within MAX_COUNT. Raises
    StateError naming what is missing or does not fit."""
    array = array_named(arrays, name)
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
    if array.dtype == np.int64 and array.size and not -MAX_COUNT <= array.min() <= array.max() <= MAX_COUNT:
        raise StateError(f"array {name} holds counts that no stream reaches: it was altered")
    return array


def array_named(arrays: Mapping[str, NDArray[Any]], name: str) -> NDArray[Any]:
    """The array of that name, whatever it holds. Raises StateError where there is none."""
    array = arrays.get(name)
    if array is None:
        raise StateError(f"array {name} is missing")
    if not isinstance(array, np.ndarray | np.generic):
        raise StateError(f"array {name} is no numpy array but {type(array).__name__}: give `state` as it was")
    return np.asarray(array)


def saved_count(arrays: Mapping[str, NDArray[Any]], name: str) -> int:
    """A count of a saved state, one int64 in 0..MAX_COUNT. Raises StateError naming it."""
    count = array_named(arrays, name)
    if count.dtype != np.int64 or count.size != 1 or int(count.reshape(-1)[0]) < 0:
        raise StateError(f"array {name} must be one int64 >= 0, not {count.dtype} {count.shape}")
    if int(count.reshape(-1)[0]) > MAX_COUNT:
        raise StateError(f"array {name} is {count}, a count that no stream reaches: it was altered")
    return int(count.reshape(-1)[0])


def saved_flag(arrays: Mapping[str, NDArray[Any]], name: str) -> bool:
    """A single 0 or 1 of a saved form. Raises StateError naming it."""
    flag = array_named(arrays, name)
    if flag.dtype.kind not in "bui" or flag.size != 1 or flag.reshape(-1)[0] not in {0, 1}:
        raise StateError(f"array {name} must be one 0 or 1, not {flag.dtype} {flag.shape}")
    return bool(flag.reshape(-1)[0])


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
