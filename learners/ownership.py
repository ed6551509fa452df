"""Arrays of a saved state as a learner goes on from them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.errors import StateError


def to_write(array: NDArray[Any], name: str, copy: bool) -> NDArray[Any]:
    """The array as steps write it: a copy in C order, or itself, for which it must be writable. Raises
    StateError with its name."""
    if copy:
        return np.array(array, order="C")
    if not (array.flags.writeable and array.flags.c_contiguous and array.flags.aligned):
        raise StateError(f"{name} cannot be taken over: it is read-only or not contiguous; use copy=True")
    return array
