"""The update of W on dense rows, which a step and its replay share: one arithmetic, so equal bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from learners.kernels.compile import inlined


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
