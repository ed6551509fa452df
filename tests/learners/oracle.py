"""Slow float64 oracles of matrices, maps and scores, from the formulas alone; no code of the package."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]


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
