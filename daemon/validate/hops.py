"""What is two clicks away: a guard of searches, for forms that do not give way to the user's own ranking.

Clicks on shown lists confirm what the list maker chose. An object that another query's users clicked, where
both queries share a clicked object, was not chosen for this query, so that no version gains on it by agreeing
with the list maker. Versions whose retrieval over the catalog collapsed lose on it, also where they order
the shown lists better: a learner with too bold a step, raw scores that were learned without random negatives.

Forms that are mixed with the user's own ranking, and the more of it the less a query has in common with what
was learned, do not collapse so, and on lists that somebody else made the guard would keep them from being
served for being another ranking (docs/decisions/085).
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from daemon.validate.judge import query_blocks
from daemon.validate.scorer import Panel, Scorer
from daemon.validate.shown import Float, Rows, Scores


class CoClicks:
    """Clicks of a panel's Q distinct queries on the catalog's n objects, as sparse matrices [Q, n]."""

    def __init__(self, panel: Panel, size: int) -> None:
        shape = (len(panel.queries), size)
        known = panel.shown >= 0
        clicked = known & panel.lists.clicked
        self._panel, self._size = panel, size
        self._clicked = _distinct(_owners(panel, clicked), panel.shown[clicked], shape)
        own = panel.query >= 0
        self._barred = _distinct(
            np.r_[_owners(panel, known), panel.group[own]], np.r_[panel.shown[known], panel.query[own]], shape
        )
        popularity = np.maximum(1.0, np.asarray(self._clicked.sum(axis=0)).reshape(-1))
        self._rare = sparse.csr_array(self._clicked.multiply(1.0 / popularity))

    def away(self, scorer: Scorer, max_queries: int) -> Float:
        """Of at most `max_queries` queries, the first of the panel: the weighted AUC of what is two clicks
        away, against what was never shown to the query; float64 [queries], NaN where nothing is. Raises
        NotFinite.
        """
        found = np.full(min(len(self._panel.queries), max_queries), np.nan)
        for part in query_blocks(len(found), self._size):
            scores = scorer.catalog(scorer.fold(self._panel.queries[part]))
            hops = self._hops(part)
            for row, query in enumerate(range(part.start, part.stop)):
                places = slice(hops.indptr[row], hops.indptr[row + 1])
                targets, weights = hops.indices[places].astype(np.int64), hops.data[places]
                found[query] = weighted_auc(scores[row], targets, weights, _row(self._barred, query))
            del scores  # two blocks alive at once would double the memory
        return found

    def _hops(self, part: slice) -> sparse.csr_array:
        """float64 [queries, n]: sum over other queries o that clicked the object of the weight of what q and
        o both clicked, 1 / (number of queries that clicked it); nothing where shown to q.
        """
        # What a query shares with itself leads only to what was shown to it, and that is taken out.
        hops = sparse.csr_array((self._rare[part] @ self._clicked.T) @ self._clicked)
        hops = sparse.csr_array(hops - hops.multiply(self._barred[part]))
        hops.eliminate_zeros()
        hops.sort_indices()
        return hops


def weighted_auc(scores: Scores, targets: Rows, weights: Float, barred: Rows) -> float:
    """Weighted mean over `targets` of the share of other candidates scored lower, ties one half.

    Candidates are all of scores [n] but `barred` (int64, distinct, none a target); targets int64[k], weights
    float[k]. NaN without a target or another candidate.
    """
    others = len(scores) - len(barred) - 1
    if not len(targets) or others < 1:
        return float("nan")
    wanted, every, out = scores[targets], np.sort(scores), np.sort(scores[barred])
    below = np.searchsorted(every, wanted, side="left") - np.searchsorted(out, wanted, side="left")
    upto = np.searchsorted(every, wanted, side="right") - np.searchsorted(out, wanted, side="right")
    return float(np.average((below + 0.5 * (upto - below - 1)) / others, weights=weights))


def _owners(panel: Panel, places: np.ndarray) -> Rows:
    return np.repeat(panel.group, places.sum(axis=1))


def _distinct(rows: Rows, columns: Rows, shape: tuple[int, int]) -> sparse.csr_array:
    """1 at each named place, however often it is named."""
    found = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)
    found.sum_duplicates()
    found.data[:] = 1.0
    return found


def _row(matrix: sparse.csr_array, row: int) -> Rows:
    return np.asarray(matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]], np.int64)
