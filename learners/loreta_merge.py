"""Corrections of LORETA merged: factors do not add up, what they stand for does.

The mean of corrections U_k V_k^T, weighed by updates, is of a higher rank than r, and is brought back to the
nearest matrix of rank r by a decomposition of its small core (Eckart and Young, 1936). It is the mean also
where other learners would take the sum of all steps. W_0 is the same for all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learners.merge import Arrays, MergeRule, State

OF_A_CORRECTION = dict.fromkeys(("start", "U", "V", "gram", "counts"), MergeRule.OWN)
"""What `corrections` and `correction_goes_on` then put in their place."""

NOTHING = 1e-7
"""A singular value below this part of the largest is rounding."""


def corrections(
    rank: int, base: State, states: Sequence[State], shares: Sequence[float], merged: Arrays
) -> Arrays:
    """The mean of the states by `shares`, as `StateMerge.also`; that of one learner where only one moved, to
    the bit, and the base where none did."""
    moved = [(one, share) for one, share in zip(states, shares, strict=True) if share]
    if len(moved) < 2:
        return {}
    updates = int(base["counts"][1]) + sum(int(one["counts"][1] - base["counts"][1]) for one in states)
    return _nearest(rank, moved, updates)


def correction_goes_on(rank: int, current: State, counted: State, merged: State, own: Arrays) -> Arrays:
    """current + merged - counted, as `StateMerge.goes_on`."""
    if np.array_equal(counted["counts"], merged["counts"]) and np.array_equal(counted["U"], merged["U"]):
        return {}
    if np.array_equal(current["counts"], counted["counts"]) and np.array_equal(current["U"], counted["U"]):
        return {name: np.array(merged[name]) for name in OF_A_CORRECTION}
    updates = max(0, int(current["counts"][1] + merged["counts"][1] - counted["counts"][1]))
    return _nearest(rank, [(current, 1.0), (merged, 1.0), (counted, -1.0)], updates)


def _nearest(rank: int, parts: Sequence[tuple[State, float]], updates: int) -> Arrays:
    used = [(one, by, int(one["counts"][0])) for one, by in parts]
    U = np.concatenate([by * one["U"][:k].astype(np.float64) for one, by, k in used])
    V = np.concatenate([one["V"][:k].astype(np.float64) for one, _, k in used])
    dim = U.shape[1]
    out_U, out_V = np.zeros((rank, dim), np.float32), np.zeros((rank, dim), np.float32)
    kept = 0
    if len(U):
        left, R = np.linalg.qr(U.T)
        right, S = np.linalg.qr(V.T)
        u, sizes, v = np.linalg.svd(R @ S.T)
        kept = min(rank, updates, int((sizes > NOTHING * sizes[0]).sum()))
        roots = np.sqrt(sizes[:kept])
        out_U[:kept] = ((left @ u[:, :kept]) * roots).T
        out_V[:kept] = ((right @ v[:kept].T) * roots).T
    gram = np.zeros((2, rank, rank))
    for place, rows in zip(gram, (out_U, out_V), strict=True):
        place[...] = rows.astype(np.float64) @ rows.T.astype(np.float64)
    return {"U": out_U, "V": out_V, "gram": gram, "counts": np.array([kept, updates], np.int64)}
