"""What steps on dense rows and their replays share: a row of W times a vector, and the update of W.

One arithmetic for all, so that replaying a step gives the bits of the step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from learners.kernels.compile import inlined

from numba import njit  # isort: skip


@njit(nogil=True, fastmath={"reassoc", "contract", "nsz"})
def row_dot(W: Any, row: int, e: Any) -> Any:
    """Row of W times e in float32. The compiler chooses the order once, for all events: NaN and infinity
    still count."""
    total = np.float32(0.0)
    for column in range(len(e)):
        total += W[row, column] * e[column]
    return total


@inlined
def add(W: Any, tau: Any, query: Any, t: int, e: Any) -> None:
    """W <- W + tau q e^T."""
    for row in range(W.shape[0]):
        factor = tau * query[t, row]
        if factor != 0:
            for column in range(len(e)):
                W[row, column] += factor * e[column]


@inlined
def add_symmetric(W: Any, tau: Any, query: Any, t: int, e: Any) -> None:
    """W <- W + tau/2 (q e^T + e q^T); (i, j) and (j, i) get the same bits: rounded products, one commutative
    sum."""
    half = np.float32(0.5) * tau
    for row in range(W.shape[0]):
        q_row, e_row = query[t, row], e[row]
        for column in range(len(e)):
            W[row, column] += half * (q_row * e[column] + e_row * query[t, column])
