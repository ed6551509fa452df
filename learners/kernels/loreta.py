"""Rank-one steps of a low-rank correction of a shared matrix (see `learners.loreta`).

The factors lie as rows, so that every sum runs along memory. A passive event costs the product with the
shared matrix, d^2, and 2 d k; an update 8 d k more and, of the small systems of k unknowns, k^3 / 3. The Gram
matrices, float64, are kept up with the factors by rank-two updates and formed anew after every `REFRESH`
updates, so that no rounding adds up; when that is depends on the number of updates alone.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from learners.kernels.checks import NONE, UPDATED, rejected, step_size
from learners.kernels.compile import (
    DOUBLES,
    POINTERS_OUT,
    ROWS,
    ROWS_OUT,
    STEPS_OUT,
    Steps,
    inlined,
    kernel,
    reassociated,
)

REFRESH = 64
"""Updates after which the Gram matrices are formed anew."""

WITHIN = 1e-6
"""A vector whose squared distance to a space is below this part of its own square lies in it."""

PIVOT = 1e-12
"""A pivot below this part of its diagonal entry is 0: the system has no such direction."""

GRAM = types.float64[:, :, ::1]


@reassociated
def _dot(x: Any, y: Any) -> Any:
    """x^T y, in float32."""
    total = np.float32(0)
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@reassociated
def _product(x: Any, y: Any) -> float:
    """x^T y, in float64."""
    total = 0.0
    for i in range(len(x)):
        total += np.float64(x[i]) * np.float64(y[i])
    return total


@inlined
def _solve(gram: Any, k: int, right: Any, L: Any, out: Any) -> None:
    """out[:k] = G^-1 right for the leading k x k of a Gram matrix, by Cholesky's factor in L; a direction
    that is not there gets 0."""
    for j in range(k):
        pivot = gram[j, j]
        for m in range(j):
            pivot -= L[j, m] * L[j, m]
        there = pivot > PIVOT * gram[j, j]
        L[j, j] = np.sqrt(pivot) if there else 0.0
        for i in range(j + 1, k):
            value = gram[i, j]
            for m in range(j):
                value -= L[i, m] * L[j, m]
            L[i, j] = value / L[j, j] if there else 0.0
        value = right[j]
        for m in range(j):
            value -= L[j, m] * out[m]
        out[j] = value / L[j, j] if there else 0.0
    for i in range(k - 1, -1, -1):
        value = out[i]
        for m in range(i + 1, k):
            value -= L[m, i] * out[m]
        out[i] = value / L[i, i] if L[i, i] > 0 else 0.0


@inlined
def _residual(rows: Any, k: int, along: Any, x: Any, out: Any) -> float:
    """out = x - sum_j along_j rows_j; its square."""
    out[:] = x
    for j in range(k):
        factor = np.float32(along[j])
        for i in range(len(x)):
            out[i] -= factor * rows[j, i]
    return float(_product(out, out))


@inlined
def _add(rows: Any, gram: Any, k: int, by: Any, x: Any, work: Any) -> None:
    """rows_j += by_j x for j < k, and the Gram matrix of the rows with them."""
    square = _product(x, x)
    for j in range(k):
        work[j] = _product(rows[j], x)
    for i in range(k):
        for j in range(k):
            gram[i, j] += by[i] * work[j] + by[j] * work[i] + by[i] * by[j] * square
    for j in range(k):
        factor = np.float32(by[j])
        for i in range(len(x)):
            rows[j, i] += factor * x[i]


@inlined
def _begin(rows: Any, gram: Any, k: int, factor: float, x: Any) -> None:
    """rows_k = factor x, and the Gram matrix with it."""
    for i in range(len(x)):
        rows[k, i] = np.float32(factor * np.float64(x[i]))
    for j in range(k + 1):
        gram[k, j] = gram[j, k] = _product(rows[k], rows[j])


@inlined
def _form(rows: Any, gram: Any, k: int) -> None:
    """The Gram matrix of k rows."""
    for i in range(k):
        for j in range(i + 1):
            gram[i, j] = gram[j, i] = _product(rows[i], rows[j])


@inlined
def _take(
    U: Any, V: Any, gram: Any, k: int, eta: float,
    q: Any, e: Any, q_square: float, e_square: float, of_q: Any, of_e: Any, work: Any,
) -> int:  # fmt: skip
    """The step of size eta along q e^T; the rank after it. of_q, of_e: U q and V e. work: the workplace,
    overwritten."""
    L, a, b, row, q_rest, e_rest = work
    room = len(U)
    _solve(gram[0], k, of_q, L, a)
    _solve(gram[1], k, of_e, L, b)
    q_new = _residual(U, k, a, q, q_rest) > WITHIN * q_square
    e_new = _residual(V, k, b, e, e_rest) > WITHIN * e_square
    if q_new and e_new and k < room:
        factor = np.sqrt(eta * np.sqrt(e_square / q_square))
        _begin(U, gram[0], k, factor, q)
        _begin(V, gram[1], k, eta / factor, e)
        return k + 1
    if not q_new:
        for j in range(k):
            a[j] *= eta
        _add(V, gram[1], k, a, e, row)
    elif not e_new:
        for j in range(k):
            b[j] *= eta
        _add(U, gram[0], k, b, q, row)
    else:
        s = 0.0
        for j in range(k):
            s += a[j] * b[j]
        if eta * abs(s) > 1:
            eta = 1 / abs(s)
        inside, outside = np.float32(0.5 - eta * s / 8), np.float32(1 - eta * s / 2)
        for i in range(len(q)):
            q_rest[i] = inside * (q[i] - q_rest[i]) + outside * q_rest[i]
            e_rest[i] = inside * (e[i] - e_rest[i]) + outside * e_rest[i]
        for j in range(k):
            a[j] *= eta
            b[j] *= eta
        _add(U, gram[0], k, b, q_rest, row)
        _add(V, gram[1], k, a, e_rest, row)
    return k


@kernel(
    types.int64(
        ROWS, ROWS_OUT, ROWS_OUT, GRAM, POINTERS_OUT, types.float64, ROWS, ROWS, ROWS, DOUBLES, STEPS_OUT
    )
)
def step_low_rank(
    start: Any, U: Any, V: Any, gram: Any, counts: Any, C: float,
    query: Any, clicked: Any, skipped: Any, weights: Any, steps: Steps,
) -> int:  # fmt: skip
    """Apply triplets in order; how many were accepted.

    start: W_0, float32 [d, d]. U, V: float32 [r, d], the factors as rows. gram: float64 [2, r, r], of U and
    of V. counts: int64 [2], the rank reached and the updates so far. All but `start` are overwritten. C:
    aggressiveness. query, clicked, skipped: float32 [n, d]. weights: float64 [n], scales C. steps: written
    per event; faults of rows and weights stand in their reason already. Precision: products with rows of W_0
    in float32, their sum and all others in float64; factors in float32.
    """
    outcome, loss, tau, _ = steps
    room, dim = U.shape
    e, q_rest, e_rest = np.empty(dim, np.float32), np.empty(dim, np.float32), np.empty(dim, np.float32)
    of_q, of_e = np.zeros(room), np.zeros(room)
    work = (np.zeros((room, room)), np.zeros(room), np.zeros(room), np.zeros(room), q_rest, e_rest)
    accepted = 0
    for t in range(len(query)):
        if rejected(NONE, t, steps):
            continue
        accepted += 1
        q, k = query[t], counts[0]
        for i in range(dim):
            e[i] = clicked[t, i] - skipped[t, i]
        margin = 0.0
        for i in range(dim):
            if q[i] != 0:
                margin += np.float64(q[i]) * np.float64(_dot(start[i], e))
        for j in range(k):
            of_q[j], of_e[j] = _product(U[j], q), _product(V[j], e)
            margin += of_q[j] * of_e[j]
        q_square, e_square = _product(q, q), _product(e, e)
        outcome[t], loss[t], tau[t] = step_size(margin, q_square * e_square, C * weights[t])
        if outcome[t] != UPDATED:
            continue
        counts[0] = _take(U, V, gram, k, np.float64(tau[t]), q, e, q_square, e_square, of_q, of_e, work)
        counts[1] += 1
        if counts[1] % REFRESH == 0:
            _form(U, gram[0], counts[0])
            _form(V, gram[1], counts[0])
    return accepted
