"""The mean of several kernels, which is one itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from learners.kernels.compile import inlined
from learners.kernels.tiles import LANES


@inlined
def average(count: int, given: int, out: Any) -> None:
    """out[i, 0] = the mean of out[i, :count], for each of the given objects, lane by lane."""
    share = np.float32(1) / np.float32(count)
    for i in range(given):
        for lane in range(LANES):
            total = np.float32(0)
            for place in range(count):
                total += out[i, place, lane]
            out[i, 0, lane] = total * share
