"""Checks of the numbers inside a vector, for code that does not hand them to a learner's kernel."""

from __future__ import annotations

import numpy as np

from streams import poison
from streams.event import ObjectRef
from streams.poison import Poison
from streams.vectors import SparseVector, Vector

MAX_MAGNITUDE = 1e18
"""Largest absolute value of a coordinate: a product of two stays inside float32, which ends at 3.4e38."""


def check_vector(vector: Vector, where: str = "vector") -> None:
    """Raise Poison unless values are finite and small enough, and sparse indices strictly increase."""
    if isinstance(vector, SparseVector):
        if len(vector.indices) != len(vector.values):
            raise Poison(poison.BAD_VECTOR, f"{where}: indices and values differ in number")
        if len(vector.indices):
            if vector.indices[0] < 0:
                raise Poison(poison.INDEX_OUT_OF_RANGE, f"{where}: a negative index")
            if not np.all(vector.indices[1:] > vector.indices[:-1]):
                raise Poison(poison.INDICES_NOT_INCREASING, where)
        values = vector.values
    else:
        values = vector
    largest = np.abs(values).max(initial=0.0)  # NaN where any value is NaN, so one pass sees every fault
    if not largest <= MAX_MAGNITUDE:
        if not np.isfinite(largest):
            raise Poison(poison.NOT_FINITE, where)
        raise Poison(poison.MAGNITUDE, f"{where}: a value above {MAX_MAGNITUDE:g}")


def check_object(ref: ObjectRef, where: str = "object") -> None:
    """Raise Poison unless every inline vector of the object passes `check_vector`."""
    for vector in (ref.features() or {}).values():
        check_vector(vector, where)
