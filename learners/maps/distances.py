"""Distances in a sample, from which the widths of kernels are taken."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from learners.block import Block, DenseBlock
from learners.errors import BlockError, MapError
from learners.maps.base import require_sample

MOST_ROWS = 2000
"""Of a sample whose distances are all computed: 32 MB of them."""

NEIGHBOUR = 50
"""The Gaussian's width is the mean distance to this neighbour (Gong and Lazebnik, CVPR 2011, section 4.1)."""


def sample_rows(kind: str, sample: Block, most: int, seed: int) -> Any:
    """At most so many non-zero rows of a sample, drawn by the seed and in their order: float64, a 2-d array
    or scipy CSR. Raises MapError when none are left or a value is not finite."""
    if isinstance(sample, DenseBlock):
        rows: Any = require_sample(kind, sample)
    else:
        try:
            rows = sample.checked_csr().astype(np.float64)
        except BlockError as error:
            raise MapError(f"the sample of the map {kind} cannot be used: {error}") from error
        rows = rows[np.diff(rows.indptr) > 0]
        if not rows.shape[0] or not np.isfinite(rows.data).all():
            raise MapError(f"the map {kind} needs sample rows that are not zero, all of finite numbers")
    if rows.shape[0] > most:
        rows = rows[np.sort(np.random.default_rng(seed).choice(rows.shape[0], most, replace=False))]
    return rows


def dense_rows(rows: Any) -> NDArray[np.float64]:
    """The rows as a 2-d array."""
    return np.asarray(rows.toarray() if sparse.issparse(rows) else rows, np.float64)


def neighbour_distance(kind: str, rows: Any) -> float:
    """The mean distance of a row to its 50th neighbour, or to the farthest where there are fewer. Raises
    MapError when all rows are alike."""
    distances = np.sort(_distances(rows), axis=1)
    return _positive(kind, distances[:, min(NEIGHBOUR, len(distances) - 1)].mean())


def pair_distance(kind: str, rows: Any) -> float:
    """The mean distance of two different rows. Raises MapError when all rows are alike."""
    distances = _distances(rows)
    return _positive(kind, distances.sum() / max(1, distances.size - len(distances)))


def _distances(rows: Any) -> NDArray[np.float64]:
    from sklearn.metrics.pairwise import euclidean_distances

    return np.asarray(euclidean_distances(rows), np.float64)


def _positive(kind: str, distance: float) -> float:
    if not distance > 0:
        raise MapError(f"the map {kind} needs sample rows that differ: give it more objects, or bandwidth")
    return float(distance)
