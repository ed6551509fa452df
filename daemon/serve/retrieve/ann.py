"""Approximate search of dense items with faiss: an inverted file over unit vectors, for a shortlist.

The index holds the items' directions in 8 bits per number and knows no version: every folded query searches
the same one. What it names is scored exactly, with the norms of the version that asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daemon.exits import EX_UNAVAILABLE, UserError
from learners.block import Float32s, Int64s
from learners.search import DenseItems

TRAINING = 64
"""Items per cell that its centre is found from; more change little and cost much."""

SEED = 20100


@dataclass(frozen=True, slots=True)
class AnnSettings:
    """recall: share of the exact top 10 that has to be found, on the guard's sample. least: parts with fewer
    items are searched exactly, which takes no longer there.
    """

    recall: float = 0.95
    least: int = 20_000


class AnnIndex:
    """An inverted file of the items' directions in `cells` cells; `shortlist` may be called by many
    threads."""

    def __init__(self, items: DenseItems) -> None:
        faiss = load_faiss()
        self.cells = max(1, round(float(np.sqrt(len(items)))))
        units = _units(items)
        quantiser = faiss.IndexFlatIP(items.dim)
        kind = faiss.ScalarQuantizer.QT_8bit
        self._index = faiss.IndexIVFScalarQuantizer(
            quantiser, items.dim, self.cells, kind, faiss.METRIC_INNER_PRODUCT
        )
        self._index.cp.spherical, self._index.cp.seed = True, SEED
        self._index.cp.max_points_per_centroid = TRAINING
        self._index.train(units)
        self._index.add(units)
        self._parameters = faiss.SearchParametersIVF

    def shortlist(self, folded: Float32s, width: int, count: int) -> Int64s:
        """Rows int64 [m, count] of the best directions in the `width` cells nearest to each folded query,
        float32 [m, d]; -1 where there are fewer.
        """
        count = min(count, self._index.ntotal)
        _, rows = self._index.search(folded, count, params=self._parameters(nprobe=width))
        return np.asarray(rows, np.int64)


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
    """The items' directions; a row of zeros stays."""
    norms = items.bounds[:, 1]
    inverse = np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)
    return np.asarray(items.values * inverse[:, None].astype(np.float32), np.float32)
