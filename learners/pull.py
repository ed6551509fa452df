"""A matrix pulled towards W = I, see `learners.tether`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from learners.block import Float32s
from learners.kernels.compile import ROWS, kernel

from numba import types  # isort: skip


def pull(W: Float32s, decay: float, radius: float) -> None:
    """One pull, in place, as the module says. W: float32 [d, d]. Up to three passes, with no memory of its
    size; the same bits on every machine: elementwise in float32, the norm in float64 in a fixed order."""
    keep = np.float32(1.0 - decay)
    _towards_identity(W, keep)
    distance = math.sqrt(_squared_distance(W)) if radius else 0.0
    if distance > radius:
        _towards_identity(W, np.float32(radius / distance))


def _towards_identity(W: Float32s, keep: np.float32) -> None:
    if keep != 1:
        W *= keep
        W.reshape(-1)[:: len(W) + 1] += np.float32(1) - keep


@kernel(types.float64(ROWS))
def _squared_distance(W: Any) -> float:
    """||W - I||_F^2 in float64, row by row."""
    total = 0.0
    for row in range(W.shape[0]):
        along = 0.0
        for column in range(W.shape[1]):
            entry = np.float64(W[row, column]) - (1.0 if row == column else 0.0)
            along += entry * entry
        total += along
    return total
