"""The form that serves f as it was learned: what it refuses to be read from."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from learners.errors import StateError
from learners.multikernel import KernelConfig, Omks, one_kernel
from learners.multikernel.form import AsLearned

from ..examples import triplets
from .setups import DIM, GAMMA


def damaged(array: NDArray[np.generic]) -> list[NDArray[np.generic]]:
    """With another shape, of another type, and with numbers that are none."""
    made = [array.reshape(-1)[:-1], array.astype(np.int16)]
    return made if array.dtype.kind != "f" else [*made, array * np.array(np.nan, array.dtype)]


@pytest.mark.parametrize("name", ["rows", "triplets", "tau", "joined", "gamma", "theta", "normalised"])
def test_a_missing_or_damaged_array_is_named(name: str) -> None:
    learner = Omks(DIM, one_kernel(DIM, KernelConfig(), GAMMA, triplets=20, objects=60))
    learner.learn_many(triplets(3, 15, DIM, "dense"))
    arrays = learner.form(power=None).arrays()
    with pytest.raises(StateError, match=name):
        AsLearned.from_arrays({key: arrays[key] for key in arrays if key != name}, learner.config)
    for wrong in damaged(arrays[name]) if name != "normalised" else []:
        with pytest.raises(StateError, match=name):
            AsLearned.from_arrays({**arrays, name: wrong}, learner.config)
