"""The serving form of one kernel, in float64 and with a map of its own: features of all points at hand from
the eigenvectors of their Gram matrix, W as a plain matrix in them, every eigenvalue."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..oracle_step import Doubles, Kernel

Triplet = tuple[float, Doubles, Doubles, Doubles]


def form_scores(
    kernel: Kernel, support: Sequence[Triplet], points: Doubles, power: float, centred: bool
) -> Doubles:
    """S of all pairs of points after the triplets (tau, q, c, s): sym(W) without its negative eigenvalues,
    the others raised to `power` about the largest; W orthogonal to the objects' mean where `centred`."""
    objects = np.unique(np.array([x for _, *triplet in support for x in triplet]), axis=0)
    everything = np.concatenate([objects, points])
    gram = np.array([[kernel(x, y) for y in everything] for x in everything])
    values, vectors = np.linalg.eigh(gram)
    phi = vectors * np.sqrt(np.maximum(values, 0))
    kept, asked = phi[: len(objects)], phi[len(objects) :]
    row = {x.tobytes(): kept[number] for number, x in enumerate(objects)}
    W = np.eye(len(everything))
    for tau, q, c, s in support:
        W += tau * np.outer(row[q.tobytes()], row[c.tobytes()] - row[s.tobytes()])
    W = (W + W.T) / 2
    if centred:
        mean = kept.mean(axis=0)
        away = np.eye(len(W)) - np.outer(mean, mean) / (mean @ mean)
        W = away @ W @ away
    spectrum, axes = np.linalg.eigh(W)
    largest = max(1.0, spectrum[-1])
    raised = largest * (np.maximum(spectrum, 0) / largest) ** power
    return np.asarray(asked @ (axes * raised) @ axes.T @ asked.T)
