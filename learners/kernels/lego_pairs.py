"""LEGO steps on pairs whose distance is to come near a given number (Jain, Kulis, Dhillon, Grauman: Online
metric learning and fast similarity search, NIPS 2008, section 3).

With z = u - v, image A z and d = z^T A z, the minimum of LogDet divergence plus eta/2 (d' - y)^2 has

    A'^-1 = A^-1 + g z z^T,  g = eta (d' - y),  d' = z^T A' z = d / (1 + g d),

a quadratic equation in d' with one root above 0: d' = (b + sqrt(b^2 + 4 eta d^2)) / (2 eta d), b = eta y d -
1, which is also 2 d / (sqrt(b^2 + 4 eta d^2) - b); the one is taken that does not cancel. By Sherman and
Morrison A' = A - g d'/d (A z)(A z)^T. d' > 0, so that A stays positive definite. Every entry of A changes.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from learners.kernels.checks import DEGENERATE, PASSIVE, UPDATED, rejected, scan_weight
from learners.kernels.compile import DOUBLES, DOUBLES_OUT, ROWS, ROWS_OUT, STEPS_OUT, Steps, inlined, kernel

TARGETS = types.UniTuple(types.float64, 2)


@inlined
def _distance(A: Any, left: Any, right: Any, row: int, image: Any) -> float:
    """z^T A z of z = left - right, and image = A z, float64 [dim]."""
    dim = A.shape[0]
    image[:] = 0.0
    for i in range(dim):
        z = np.float64(left[row, i]) - np.float64(right[row, i])
        if z != 0:
            for j in range(dim):
                image[j] += z * np.float64(A[i, j])
    found = 0.0
    for i in range(dim):
        found += (np.float64(left[row, i]) - np.float64(right[row, i])) * image[i]
    return found


@inlined
def _toward(A: Any, distance: float, target: float, eta: float, image: Any) -> float:
    """One step that brings a distance towards its target, in place; g, or 0 where there is no direction to
    go. (i, j) and (j, i) get the same bits. image: A z, overwritten."""
    if not (distance > 0.0 and np.isfinite(distance)):
        return 0.0
    b = eta * target * distance - 1.0
    root = np.sqrt(b * b + 4.0 * eta * distance * distance)
    after = (b + root) / (2.0 * eta * distance) if b > 0 else 2.0 * distance / (root - b)
    g = eta * (after - target)
    size = g * after / distance
    if not np.isfinite(size) or np.float32(g) == np.float32(0.0):
        return 0.0
    dim, scale = A.shape[0], np.sqrt(abs(size))
    scaled, sign = np.empty(dim, np.float32), np.float32(-1.0 if size > 0 else 1.0)
    for i in range(dim):
        scaled[i] = np.float32(scale * image[i])
    for i in range(dim):
        own = sign * scaled[i]
        for j in range(dim):
            A[i, j] += own * scaled[j]
    return float(g)


@kernel(types.int64(ROWS_OUT, types.float64, TARGETS, ROWS, ROWS, ROWS, DOUBLES, STEPS_OUT))
def lego_two_pairs(
    A: Any, eta: float, targets: Any, query: Any, clicked: Any, skipped: Any, weights: Any, steps: Steps
) -> int:
    """Apply triplets in order, each as the pairs (q, c), towards targets[0], and then (q, s), towards
    targets[1]; how many were accepted.

    A: float32 [dim, dim], symmetric positive definite, overwritten. eta: > 0. query, clicked, skipped:
    float32 [n, dim]. weights: float64 [n], scales eta, or empty. steps: reason as the rows were scanned; all
    are written per event: loss, the hinge of the margin before both steps, and tau, the larger |g|.
    Precision: A z and distances in float64, entries of A in float32.
    """
    accepted = 0
    outcome, loss, tau, _ = steps
    image = np.empty(A.shape[0], np.float64)
    for t in range(len(query)):
        fault, weight = scan_weight(weights, t)
        if rejected(fault, t, steps):
            continue
        accepted += 1
        far = _distance(A, query, skipped, t, image)
        near = _distance(A, query, clicked, t, image)
        hinge = max(0.0, 1.0 - (far - near))
        tau[t] = 0
        if not np.isfinite(np.float32(hinge)):
            outcome[t], loss[t] = DEGENERATE, 0
            continue
        loss[t] = hinge
        if weight == 0.0:
            outcome[t] = PASSIVE
            continue
        g = abs(_toward(A, near, targets[0], eta * weight, image))
        far = _distance(A, query, skipped, t, image)
        g = max(g, abs(_toward(A, far, targets[1], eta * weight, image)))
        outcome[t], tau[t] = UPDATED if g > 0 else DEGENERATE, g
    return accepted


@kernel(types.int64(ROWS_OUT, types.float64, DOUBLES, ROWS, ROWS, DOUBLES_OUT, STEPS_OUT))
def lego_pairs(A: Any, eta: float, targets: Any, left: Any, right: Any, weights: Any, steps: Steps) -> int:
    """The same of pairs of rows, each towards its own target, float64 [n]. loss: (d - y)^2 / 2 before the
    step."""
    accepted = 0
    outcome, loss, tau, _ = steps
    image = np.empty(A.shape[0], np.float64)
    for t in range(len(left)):
        fault, weight = scan_weight(weights, t)
        if rejected(fault, t, steps):
            continue
        accepted += 1
        distance = _distance(A, left, right, t, image)
        squared = np.float32(0.5 * (distance - targets[t]) ** 2)
        tau[t] = 0
        loss[t] = squared if np.isfinite(squared) else np.float32(0.0)
        if weight == 0.0:
            outcome[t] = PASSIVE
            continue
        g = abs(_toward(A, distance, targets[t], eta * weight, image))
        outcome[t], tau[t] = UPDATED if g > 0 else DEGENERATE, g
    return accepted
