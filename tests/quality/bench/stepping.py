"""The steps of OASIS on dense rows, many at a time: exactly its recursion, as matrix products.

With k steps pending, W_t = W + sum_i tau_i q_i e_i^T (e = c - s), so the margin of step t is
q_t^T W e_t + sum_{i<t} tau_i (q_t . q_i)(e_i . e_t): one product with W, two Gram matrices, a recursion of
scalars, one product back. A test holds it against the product's learner.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from learners import Oasis, OasisConfig
from learners.block import SparseBlock, TripletBatch
from tests.quality.bench.sets import Floats, Ints

PENDING = 128


@njit(cache=True)
def _recursion(margins, gram, norms, C, tau):
    for t in range(len(margins)):
        margin = margins[t]
        for i in range(t):
            margin += tau[i] * gram[t, i]
        loss = 1 - margin
        tau[t] = min(C[t], loss / norms[t]) if loss > 0 and norms[t] > 0 else 0.0


def step_dense(W: Floats, Z: Floats, rows: Ints, C: npt.NDArray[np.float64]) -> None:
    """Take the steps of the triplets in order; W is overwritten. rows: [3, n]; C: of each step, [n]."""
    for start in range(0, rows.shape[1], PENDING):
        q, c, s = (Z[one] for one in rows[:, start : start + PENDING])
        e = c - s
        margins = np.einsum("nd,nd->n", q @ W, e).astype(np.float64)
        own = (q @ q.T) * (e @ e.T)
        tau = np.zeros(len(q))
        _recursion(margins, own, np.diag(own).astype(np.float64), C[start : start + PENDING], tau)
        moved = np.flatnonzero(tau)
        W += (q[moved] * tau[moved, None].astype(np.float32)).T @ e[moved]


def step_sparse(W: Floats, Z: Any, rows: Ints, C: npt.NDArray[np.float64]) -> Floats:
    """The same on CSR rows, by the product's learner; returns W."""
    block = SparseBlock(Z.indptr.astype(np.int64), Z.indices.astype(np.int32), Z.data, Z.shape[1])
    learner = Oasis.from_state({"W": W, "events": np.zeros((), np.int64)}, OasisConfig(C=1.0), copy=False)
    for start in range(0, rows.shape[1], 10_000):
        batch = TripletBatch(*(block.take(one) for one in rows[:, start : start + 10_000]))
        learner.learn_many(batch, C[start : start + 10_000])
    return learner.W
