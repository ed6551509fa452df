"""Steps of learned distances: Dissim-OASIS (Chechik et al., JMLR 11 (2010), section 6) on CSR rows (on dense
ones: `learners.kernels.delayed`), and LEGO.

Dissim-OASIS: the distance (a - b)^T W (a - b) sees a triplet as m = (q - c) + (q - s) and e = c - s: margin
m^T W e for a symmetric W, step W <- W + tau (e m^T + m e^T)/2. A step is OASIS's symmetric one with m in
place of q, and on CSR rows bound by memory as that is: q, c and s of 70 entries each meet in four times as
many entries of W as q and e.

LEGO: the exact minimum of LogDet divergence plus squared hinge, per triplet, on a relative distance. For m =
(q - c) + (q - s), e = c - s and a symmetric positive definite A, with M = A m, E = A e, p = m^T M, r = e^T E,
k = m^T E, the step of size g is A' = (A^-1 - g (m e^T + e m^T)/2)^-1, by Woodbury's identity

    A' = A + t (x y^T + y x^T)/2,  h = 1 - g k/2,  D = h^2 - g^2 p r/4,  w = h + sqrt(D),
    t = g w / (2 D),  x = M + g p/(2 w) E,  y = E + g r/(2 w) M,

positive definite while g < 2 / (k + sqrt(p r)). All terms of x, y and t are positive there: nothing cancels,
also for c close to s. The margin after it is u(g) = (k h + g p r/2) / D, which rises with g without bound;
g = eta (1 - u(g)) is therefore solved by one number, found by halving an interval.

Every entry of A changes at every step, so a step reads A once or twice and writes it once, whatever the
vectors' sparsity; A m and A e read only the rows where m or e is not zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from learners.kernels.checks import (
    DEGENERATE,
    NONE,
    PASSIVE,
    UPDATED,
    rejected,
    scan_triplet_dense,
    scan_triplet_sparse,
    scan_weight,
    step_size,
)
from learners.kernels.compile import (
    CSR,
    DOUBLES,
    FLOATS_OUT,
    ROWS,
    ROWS_OUT,
    STEPS_OUT,
    Csr,
    Steps,
    inlined,
    kernel,
)
from learners.kernels.matrix_rows import (
    add_symmetric_sparse,
    difference,
    prefetch_ahead,
)
from learners.kernels.oasis import CSR_OUT

# ruff: noqa: PLR0917  (kernels take plain arrays)


NORMS_OUT = types.float64[:, ::1]


@kernel(types.void(ROWS, ROWS, ROWS, ROWS_OUT, ROWS_OUT, NORMS_OUT, types.uint8[::1]))
def pairs_dense(
    query: Any, clicked: Any, skipped: Any, sums: Any, errors: Any, norms: Any, reason: Any
) -> None:
    """m and e of each triplet, zeros where it is refused, and norms float64 [n, 3]: ||m||^2, ||e||^2, e^T m.

    sums, errors: float32 [n, dim]; overwritten, as are norms and reason uint8 [n].
    """
    for row in range(query.shape[0]):
        reason[row], _ = scan_triplet_dense(query, clicked, skipped, row)
        norms[row, :] = 0.0
        if reason[row] != NONE:
            sums[row, :], errors[row, :] = 0.0, 0.0
            continue
        for column in range(query.shape[1]):
            q, c, s = query[row, column], clicked[row, column], skipped[row, column]
            sums[row, column], errors[row, column] = (q - c) + (q - s), c - s
            m, e = np.float64(sums[row, column]), np.float64(errors[row, column])
            norms[row, 0] += m * m
            norms[row, 1] += e * e
            norms[row, 2] += m * e


@inlined
def _at(rows: Csr, row: int, place: int) -> Any:
    """The index at a place, beyond all indices where the row has ended."""
    return np.int64(rows[1][place]) if place < rows[0][row + 1] else np.int64(2**31)


@inlined
def _sum_of_differences(
    query: Csr, clicked: Csr, skipped: Csr, row: int, columns: Any, values: Any, start: int
) -> tuple[int, float]:
    """Merge m = (q - c) + (q - s) into columns/values from `start`; (entries, ||m||^2 in float64)."""
    i, j, k = query[0][row], clicked[0][row], skipped[0][row]
    place, squares = start, 0.0
    while True:
        column = min(_at(query, row, i), _at(clicked, row, j), _at(skipped, row, k))
        if column == 2**31:
            return place - start, squares
        q = c = s = np.float32(0.0)
        if _at(query, row, i) == column:
            q = query[2][i]
            i += 1
        if _at(clicked, row, j) == column:
            c = clicked[2][j]
            j += 1
        if _at(skipped, row, k) == column:
            s = skipped[2][k]
            k += 1
        value = (q - c) + (q - s)
        if value != 0:
            columns[place], values[place] = np.int32(column), value
            squares += np.float64(value) * np.float64(value)
            place += 1


@inlined
def _product(left: Csr, right: Csr, row: int) -> float:
    """Inner product of two rows in float64."""
    i, j = left[0][row], right[0][row]
    total = 0.0
    while i < left[0][row + 1] and j < right[0][row + 1]:
        if left[1][i] < right[1][j]:
            i += 1
        elif right[1][j] < left[1][i]:
            j += 1
        else:
            total += np.float64(left[2][i]) * np.float64(right[2][j])
            i += 1
            j += 1
    return total


@kernel(types.void(types.int64, CSR, CSR, CSR, CSR_OUT, CSR_OUT, NORMS_OUT, types.uint8[::1]))
def pairs_sparse(
    dim: int, query: Csr, clicked: Csr, skipped: Csr, sums: Csr, errors: Csr, norms: Any, reason: Any
) -> None:
    """m and e of each triplet, empty where it is refused, and norms float64 [n, 3]: ||m||^2, ||e||^2, e^T m.

    sums, errors: CSR rows with pointers [n + 1] that begin with 0 and room for the entries; overwritten, as
    are norms and reason uint8 [n].
    """
    for row in range(len(query[0]) - 1):
        reason[row], _ = scan_triplet_sparse(dim, query, clicked, skipped, row)
        m_entries = e_entries = 0
        norms[row, :] = 0.0
        if reason[row] == NONE:
            m_entries, norms[row, 0] = _sum_of_differences(
                query, clicked, skipped, row, sums[1], sums[2], sums[0][row]
            )
            e_entries, norms[row, 1] = difference(clicked, skipped, row, errors[1], errors[2], errors[0][row])
        sums[0][row + 1], errors[0][row + 1] = sums[0][row] + m_entries, errors[0][row] + e_entries
        norms[row, 2] = _product(sums, errors, row)


@inlined
def _row_dot(W: Any, base: Any, rows: Csr, first: int, stop: int) -> float:
    """A row of W times some entries of CSR rows, in float64: four interleaved sums, joined pairwise."""
    _, columns, values = rows
    body = first + (stop - first) // 4 * 4
    sum0 = sum1 = sum2 = sum3 = 0.0
    for place in range(first, body, 4):
        sum0 += np.float64(W[base + np.uint64(columns[place])]) * np.float64(values[place])
        sum1 += np.float64(W[base + np.uint64(columns[place + 1])]) * np.float64(values[place + 1])
        sum2 += np.float64(W[base + np.uint64(columns[place + 2])]) * np.float64(values[place + 2])
        sum3 += np.float64(W[base + np.uint64(columns[place + 3])]) * np.float64(values[place + 3])
    for place in range(body, stop):
        sum0 += np.float64(W[base + np.uint64(columns[place])]) * np.float64(values[place])
    return (sum0 + sum1) + (sum2 + sum3)


@inlined
def _across(W: Any, dim: Any, left: Csr, right: Csr, t: int) -> float:
    """l^T W r of row t in float64, asking for rows and pages ahead."""
    l_ptr, l_ind, l_val = left
    r_ptr, r_ind, _ = right
    start, count = np.uint64(r_ptr[t]), np.uint64(r_ptr[t + 1] - r_ptr[t])
    here, nothing = (r_ind, l_val, start, count), (start, np.uint64(0))
    last, total = l_ptr[t + 1], 0.0
    for i in range(l_ptr[t], last):
        prefetch_ahead(W, dim, l_ind, i, last, last, here, nothing)
        base = np.uint64(l_ind[i]) * dim
        total += np.float64(l_val[i]) * _row_dot(W, base, right, r_ptr[t], r_ptr[t + 1])
    return total


@inlined
def _margin_sparse(W: Any, dim: Any, triplets: Any, errors: Csr, t: int) -> Any:
    """m^T W e = 2 q^T W e - c^T W c + s^T W s for a symmetric W: half as many entries of W as m and e meet
    in. In float64, since the self scores of objects nearly alike share most of their digits.
    """
    query, clicked, skipped = triplets
    own = _across(W, dim, skipped, skipped, t) - _across(W, dim, clicked, clicked, t)
    return 2.0 * _across(W, dim, query, errors, t) + own


@kernel(
    types.UniTuple(types.int64, 2)(
        FLOATS_OUT, types.int64, types.float64, types.int64,
        types.UniTuple(CSR, 3), CSR, CSR, DOUBLES, DOUBLES, STEPS_OUT,
    )
)  # fmt: skip
def step_pairs_sparse(
    W: Any, dim: int, C: float, budget: int,
    triplets: Any, sums: Csr, errors: Csr, squares: Any, weights: Any, steps: Steps,
) -> tuple[int, int]:  # fmt: skip
    """Apply steps in order until `budget` events were accepted; (rows consumed, rows accepted).

    W: float32 [dim * dim], symmetric, overwritten. C: aggressiveness. triplets: (query, clicked, skipped).
    sums, errors: m and e as `pairs_sparse` gives them; squares: ||V'||^2, float64 [n]. weights: float64 [n],
    scales C, or empty. steps: reason as `pairs_sparse` left it; all are written per event.
    """
    outcome, loss, tau, _ = steps
    e_ptr, e_ind, e_val = errors
    rows, stride = len(e_ptr) - 1, np.uint64(dim)
    accepted = 0
    for t in range(rows):
        if accepted == budget:
            return t, accepted
        fault, weight = scan_weight(weights, t)
        if rejected(fault, t, steps):
            continue
        accepted += 1
        margin = _margin_sparse(W, stride, triplets, errors, t)
        outcome[t], loss[t], tau[t] = step_size(margin, squares[t], C * weight)
        if outcome[t] == UPDATED:
            here = (e_ind, e_val, np.uint64(e_ptr[t]), np.uint64(e_ptr[t + 1] - e_ptr[t]))
            add_symmetric_sparse(W, stride, tau[t], sums, t, here)
    return rows, accepted


# ruff: noqa: PLR0917  (kernels take plain arrays)


HALVINGS = 80
"""Of the interval of step sizes: beyond the precision of float64, and nothing beside the d^2 of a step."""


@inlined
def _after(size: float, k: float, pr: float) -> tuple[float, float, float]:
    """(h, D, margin after a step of this size); D <= 0 where A' would not be positive definite."""
    half = 1.0 - 0.5 * size * k
    root = half * half - 0.25 * size * size * pr
    if half <= 0.0 or root <= 0.0:
        return half, 0.0, np.inf
    return half, root, (k * half + 0.5 * size * pr) / root


@inlined
def _size(k: float, pr: float, eta: float) -> float:
    """g = eta (1 - u(g)) for a margin k < 1: the only root, between 0 and eta (1 - k)."""
    low, high = 0.0, eta * (1.0 - k)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if middle < eta * (1.0 - _after(middle, k, pr)[2]):
            low = middle
        else:
            high = middle
    return low


@inlined
def _outcome(k: float, p: float, r: float, eta: float) -> tuple[int, Any, Any]:
    """(outcome, loss, g) of an accepted event; g is rounded to float32 before it is applied."""
    zero = np.float32(0.0)
    loss = max(0.0, 1.0 - k)
    if not (np.isfinite(k) and np.isfinite(p) and np.isfinite(r) and np.isfinite(np.float32(loss))):
        return DEGENERATE, zero, zero
    if loss == 0.0 or eta == 0.0:
        return PASSIVE, np.float32(loss), zero
    if p <= 0.0 or r <= 0.0:
        return DEGENERATE, np.float32(loss), zero
    pr = max(p * r, k * k)  # Cauchy and Schwarz, which rounding may break
    size = np.float32(_size(k, pr, eta))
    if size == zero or not np.isfinite(size) or _after(np.float64(size), k, pr)[1] <= 0.0:
        return DEGENERATE, np.float32(loss), zero
    return UPDATED, np.float32(loss), size


@inlined
def _step(A: Any, k: float, p: float, r: float, given: float, images: Any) -> None:
    """A <- A + t (x y^T + y x^T)/2; (i, j) and (j, i) get the same bits. images: M and E, float64
    [2, dim]."""
    size = np.float64(given)
    half, root, _ = _after(size, k, max(p * r, k * k))
    w = half + np.sqrt(root)
    dim = A.shape[0]
    x, y = np.empty(dim, np.float32), np.empty(dim, np.float32)
    scale = np.sqrt(0.25 * size * w / root)
    for i in range(dim):
        x[i] = np.float32(scale * (images[0, i] + 0.5 * size * p / w * images[1, i]))
        y[i] = np.float32(scale * (images[1, i] + 0.5 * size * r / w * images[0, i]))
    for i in range(dim):
        x_row, y_row = x[i], y[i]
        for j in range(dim):
            A[i, j] += x_row * y[j] + y_row * x[j]


@inlined
def _learn(A: Any, eta: float, images: Any, products: Any, t: int, steps: Steps) -> None:
    """The step of one accepted event. products: (p, r, k)."""
    outcome, loss, tau, _ = steps
    p, r, k = products
    outcome[t], loss[t], tau[t] = _outcome(k, p, r, eta)
    if outcome[t] == UPDATED:
        _step(A, k, p, r, tau[t], images)


@kernel(types.int64(ROWS_OUT, types.float64, ROWS, ROWS, DOUBLES, STEPS_OUT))
def lego_dense(A: Any, eta: float, sums: Any, errors: Any, weights: Any, steps: Steps) -> int:
    """Apply triplets in order; how many were accepted.

    A: float32 [dim, dim], symmetric positive definite, overwritten. eta: > 0. sums, errors: m and e, float32
    [n, dim]. weights: float64 [n], scales eta, or empty. steps: reason as the triplets were scanned; all are
    written per event, tau with g. Precision: A m, A e and their products in float64, entries of A in float32.
    """
    accepted, dim = 0, A.shape[0]
    images = np.empty((2, dim), np.float64)
    for t in range(len(sums)):
        fault, weight = scan_weight(weights, t)
        if rejected(fault, t, steps):
            continue
        accepted += 1
        images[:] = 0.0
        for row in range(dim):
            m, e = np.float64(sums[t, row]), np.float64(errors[t, row])
            if m != 0 or e != 0:
                for column in range(dim):
                    value = np.float64(A[row, column])
                    images[0, column] += m * value
                    images[1, column] += e * value
        p = r = k = 0.0
        for row in range(dim):
            m, e = np.float64(sums[t, row]), np.float64(errors[t, row])
            p, r, k = p + m * images[0, row], r + e * images[1, row], k + m * images[1, row]
        _learn(A, eta * weight, images, (p, r, k), t, steps)
    return accepted


@inlined
def _image(A: Any, rows: Csr, t: int, image: Any) -> None:
    """image += A x for row t of a symmetric A: rows of A weighted by x, in float64."""
    for place in range(rows[0][t], rows[0][t + 1]):
        factor, row = np.float64(rows[2][place]), rows[1][place]
        for column in range(len(image)):
            image[column] += factor * np.float64(A[row, column])


@inlined
def _along(rows: Csr, t: int, image: Any) -> float:
    """The inner product of row t with a dense vector, in float64."""
    total = 0.0
    for place in range(rows[0][t], rows[0][t + 1]):
        total += np.float64(rows[2][place]) * image[rows[1][place]]
    return total


@kernel(types.int64(ROWS_OUT, types.float64, CSR, CSR, DOUBLES, STEPS_OUT))
def lego_sparse(A: Any, eta: float, sums: Csr, errors: Csr, weights: Any, steps: Steps) -> int:
    """`lego_dense` for m and e as CSR rows."""
    accepted = 0
    images = np.empty((2, A.shape[0]), np.float64)
    for t in range(len(sums[0]) - 1):
        fault, weight = scan_weight(weights, t)
        if rejected(fault, t, steps):
            continue
        accepted += 1
        images[:] = 0.0
        _image(A, sums, t, images[0])
        _image(A, errors, t, images[1])
        products = (
            _along(sums, t, images[0]), _along(errors, t, images[1]), _along(sums, t, images[1])
        )  # fmt: skip
        _learn(A, eta * weight, images, products, t, steps)
    return accepted
