"""Slow float64 oracles, written from the formulas alone; they share no code with the package."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]


class Step(NamedTuple):
    """What one OASIS step gives."""

    W: Doubles
    loss: float
    tau: float
    margin: float


def oasis_step(W: Doubles, q: Doubles, c: Doubles, s: Doubles, C: float, symmetric: bool = False) -> Step:
    """l = max(0, 1 - S(q,c) + S(q,s)); V = q (c-s)^T; tau = min(C, l/||V||^2); W + tau V (or its symmetric
    part)."""
    margin = float(q @ W @ c - q @ W @ s)
    loss = max(0.0, 1.0 - margin)
    V = np.outer(q, c - s)
    norm = float(np.sum(V * V))
    tau = min(C, loss / norm) if loss > 0 and norm > 0 else 0.0
    return Step(W + tau * ((V + V.T) / 2 if symmetric else V), loss, tau, margin)


def oasis_run(
    rows: tuple[Doubles, Doubles, Doubles], C: float, symmetric: bool = False, psd_every: int = 0
) -> tuple[Doubles, list[Step]]:
    """Steps in order from W = I; W is projected after each `psd_every` events."""
    W, steps = np.eye(rows[0].shape[1]), []
    for t, (q, c, s) in enumerate(zip(*rows, strict=True), start=1):
        steps.append(oasis_step(W, q, c, s, C, symmetric))
        W = steps[-1].W
        if psd_every and t % psd_every == 0:
            W = psd(W)
    return W, steps


def psd(W: Doubles, power: float = 1.0) -> Doubles:
    """The nearest symmetric PSD matrix in the Frobenius norm: negative eigenvalues of sym(W) become 0. The
    others to a power, the largest stays."""
    values, vectors = np.linalg.eigh((W + W.T) / 2)
    largest = max(float(values[-1]), 1e-300)
    raised: Doubles = largest * (np.maximum(values, 0) / largest) ** power
    matrix: Doubles = (vectors * raised) @ vectors.T
    return matrix


def normalised(S: Doubles, queries: Doubles, items: Doubles) -> Doubles:
    """q^T S p / sqrt(q^T S q p^T S p), 0 where a self score is not positive."""
    out = np.zeros((len(queries), len(items)))
    for i, q in enumerate(queries):
        for j, p in enumerate(items):
            own = (q @ S @ q) * (p @ S @ p)
            out[i, j] = q @ S @ p / np.sqrt(own) if q @ S @ q > 0 and p @ S @ p > 0 else 0.0
    return out


def unit(x: Doubles) -> Doubles:
    """x / ||x||, 0 for 0."""
    norm = np.sqrt(np.sum(x * x))
    return x / norm if norm > 0 else x


def tfidf(counts: Doubles, sample: Doubles) -> Doubles:
    """count ln((1 + n)/(1 + n_j)) + count, rows of unit length."""
    idf = np.log((1 + len(sample)) / (1 + np.sum(sample != 0, axis=0))) + 1
    return np.array([unit(row * idf) for row in counts])


def negative_pairs(W: Doubles) -> tuple[Doubles, Doubles]:
    """The negative eigenvalues of (W + W^T) / 2, most negative first, and their eigenvectors as columns."""
    values, vectors = np.linalg.eigh((W + W.T) / 2)
    negative = values < -1e-6 * np.abs(values).max()
    return values[negative], vectors[:, negative]
