"""LEGO steps on a relative distance: the exact minimum of LogDet divergence plus squared hinge, per triplet.

For m = (q - c) + (q - s), e = c - s and a symmetric positive definite A, with M = A m, E = A e, p = m^T M,
r = e^T E, k = m^T E, the step of size g is A' = (A^-1 - g (m e^T + e m^T)/2)^-1, by Woodbury's identity

    A' = A + t (x y^T + y x^T)/2,  h = 1 - g k/2,  D = h^2 - g^2 p r/4,  w = h + sqrt(D),
    t = g w / (2 D),  x = M + g p/(2 w) E,  y = E + g r/(2 w) M,

positive definite while g < 2 / (k + sqrt(p r)). All terms of x, y and t are positive there: nothing cancels,
also for c close to s. The margin after it is u(g) = (k h + g p r/2) / D, which rises with g without bound;
g = eta (1 - u(g)) is therefore solved by one number, found by halving an interval.

Every entry of A changes at every step, so a step reads A once or twice and writes it once, whatever the
vectors' sparsity; A m and A e read only the rows where m or e is not zero.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from learners.kernels.checks import DEGENERATE, PASSIVE, UPDATED, rejected, scan_weight
from learners.kernels.compile import CSR, DOUBLES, ROWS, ROWS_OUT, STEPS_OUT, Csr, Steps, inlined, kernel

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
