"""Approximate search of dense items: cells of directions that faiss finds, of which only the nearest are
searched.

The cells know no version. Which of them are nearest, and every score in them, is computed with the form and
the norms of the version that asks, so that what is missed lies in other cells and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daemon.exits import EX_UNAVAILABLE, UserError
from learners.block import DenseBlock, Int64s
from learners.search import DenseItems

TRAINING, ROUNDS = 64, 10
"""Items per cell that its centre is found from, and rounds of k-means: more change little and cost much."""

SEED = 20100


@dataclass(frozen=True, slots=True)
class AnnSettings:
    """recall: share of the exact top 10 that has to be found, on the guard's sample. least: parts with fewer
    items are searched exactly, which takes no longer there.
    """

    recall: float = 0.95
    least: int = 20_000


class AnnIndex:
    """The items of a part by cells, sqrt(n) of them; read by any thread.

    centres: unit vectors, one per cell.
    """

    def __init__(self, items: DenseItems) -> None:
        faiss = load_faiss()
        cells = max(1, round(float(np.sqrt(len(items)))))
        units = _units(items)
        means = faiss.Kmeans(
            items.dim,
            cells,
            niter=ROUNDS,
            spherical=True,
            seed=SEED,
            max_points_per_centroid=TRAINING,
            min_points_per_centroid=1,
        )
        means.train(units)
        self.centres = DenseBlock(means.centroids)
        owners = means.index.search(units, 1)[1][:, 0]
        self._rows: Int64s = np.argsort(owners, kind="stable")
        self._starts = np.searchsorted(owners[self._rows], np.arange(cells + 1))

    def rows_of(self, cells: Int64s) -> Int64s:
        """The rows of all items in these cells."""
        return np.concatenate([self._rows[self._starts[cell] : self._starts[cell + 1]] for cell in cells])


def load_faiss() -> Any:
    """The library, with one thread. Raises UserError where it is not installed."""
    try:
        import faiss
    except ImportError as error:
        raise UserError(
            f"serve.ann is on, but faiss cannot be imported: {error}",
            "pip install 'tripletd[ann]', or set serve.ann to off: search is then exact",
            EX_UNAVAILABLE,
        ) from error
    faiss.omp_set_num_threads(1)
    return faiss


def _units(items: DenseItems) -> NDArray[np.float32]:
    """The items' directions; a row of zeros stays, and one that is too short for float32 becomes one."""
    norms = items.bounds[:, 1]
    inverse = np.divide(1, norms, out=np.zeros_like(norms), where=norms > np.finfo(np.float32).tiny)
    return np.asarray(items.values * inverse[:, None].astype(np.float32), np.float32)
