"""What arithmetic allows a dense step: fused products a second of its tile alone, all in the nearest cache.

A step that updates takes 2 d^2 of them, half to multiply and half to add; so this rate over 2 d^2, over
the rate of the step event by event, is the largest ratio that a dense step can have on the machine.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numba import types

from learners.kernels.compile import FLOATS, FLOATS_OUT, kernel
from learners.kernels.delayed_tiles import TALL, WIDE, product_tile

ROWS, TIMES, RUNS = 96, 20_000, 15


@kernel(types.void(FLOATS, FLOATS, FLOATS_OUT, types.int64))
def multiply(left: Any, panel: Any, sums: Any, times: int) -> None:
    """A tile again and again. left: float32 [TALL ROWS]; panel: float32 [ROWS WIDE]; sums: float32
    [TALL WIDE]."""
    for _ in range(times):
        product_tile(left, 0, ROWS, panel, 0, ROWS, sums, 0)


def products_per_second() -> float:
    """Of processor time, the best of several runs: what other work takes away is no bound."""
    left, panel = np.full(TALL * ROWS, 1e-3, np.float32), np.full(ROWS * WIDE, 1e-3, np.float32)
    sums, best = np.zeros(TALL * WIDE, np.float32), 0.0
    multiply(left, panel, sums, 1)
    for _ in range(RUNS):
        begin = time.process_time()
        multiply(left, panel, sums, TIMES)
        best = max(best, TIMES * TALL * ROWS * WIDE / (time.process_time() - begin))
    return best
