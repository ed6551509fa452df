"""Relevance from other users' clicks: what is two clicks away from a query and was never shown to it.

Clicks on shown lists can only confirm what the list maker chose. An object that another query's users
clicked, where both queries share a clicked object, was not chosen for this query, so a version cannot gain
by agreeing with the list maker.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from daemon.validate.measures import Rows
from daemon.validate.panel import Panel


class CoClicks:
    """Clicks of a panel's Q distinct queries on the catalog's n objects, as sparse matrices [Q, n]."""

    def __init__(self, panel: Panel, size: int) -> None:
        shape = (len(panel.queries), size)
        known = panel.shown >= 0
        clicked = known & panel.lists.clicked
        self._clicked = _incidence(panel, clicked, shape)
        own = panel.query >= 0
        self._barred = _distinct(
            np.r_[_owners(panel, known), panel.group[own]], np.r_[panel.shown[known], panel.query[own]], shape
        )
        popularity = np.maximum(1.0, np.asarray(self._clicked.sum(axis=0)).reshape(-1))
        self._rare = sparse.csr_array(self._clicked.multiply(1.0 / popularity))

    def clicked(self, query: int) -> Rows:
        """Rows clicked for a query, int64."""
        return _row(self._clicked, query)

    def barred(self, query: int) -> Rows:
        """Rows ever shown to a query, and its own, int64."""
        return _row(self._barred, query)

    def hops(self, start: int, stop: int) -> sparse.csr_array:
        """float64 [stop - start, n]: sum over other queries o that clicked the object of the weight of what
        q and o both clicked, 1 / (number of queries that clicked it); nothing where shown to q.
        """
        # What a query shares with itself leads only to what was shown to it, and that is taken out.
        hops = sparse.csr_array((self._rare[start:stop] @ self._clicked.T) @ self._clicked)
        hops = sparse.csr_array(hops - hops.multiply(self._barred[start:stop]))
        hops.eliminate_zeros()
        hops.sort_indices()
        return hops


def _owners(panel: Panel, places: np.ndarray) -> Rows:
    return np.repeat(panel.group, places.sum(axis=1))


def _incidence(panel: Panel, places: np.ndarray, shape: tuple[int, int]) -> sparse.csr_array:
    return _distinct(_owners(panel, places), panel.shown[places], shape)


def _distinct(rows: Rows, columns: Rows, shape: tuple[int, int]) -> sparse.csr_array:
    """1 at each named place, however often it is named."""
    found = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)
    found.sum_duplicates()
    found.data[:] = 1.0
    return found


def _row(matrix: sparse.csr_array, row: int) -> Rows:
    return np.asarray(matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]], np.int64)
