"""What is two clicks away: a guard of searches, for forms that do not give way to the user's own ranking
(docs/decisions/085).

An object that another query's users clicked, where both queries share a clicked object, was not chosen for
this query, so that no version gains on it by agreeing with the list maker. Versions whose retrieval over the
catalog collapsed lose on it, also where they order the shown lists better: a learner with too bold a step,
raw scores that were learned without random negatives.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from daemon.validate.judge import query_blocks
from daemon.validate.scorer import Panel, Scorer
from daemon.validate.shown import Float, Rows, Scores


def two_clicks_away(scorers: Sequence[Scorer], panel: Panel, size: int, max_queries: int) -> Float:
    """Of at most `max_queries` queries, the first of the panel: the weighted AUC of what is two clicks away
    in a catalog of `size` objects, against what was never shown to the query; float64 [scorers, queries], NaN
    where nothing is. Raises NotFinite.

    An object weighs the sum over other queries that clicked it of what both clicked, of that each object by
    1 / (number of queries that clicked it).
    """
    shape, known, own = (len(panel.queries), size), panel.shown >= 0, panel.query >= 0
    clicks = known & panel.lists.clicked
    clicked = _distinct(panel.group[np.nonzero(clicks)[0]], panel.shown[clicks], shape)
    seen = panel.group[np.nonzero(known)[0]]
    barred = _distinct(np.r_[seen, panel.group[own]], np.r_[panel.shown[known], panel.query[own]], shape)
    popularity = np.maximum(1.0, np.asarray(clicked.sum(axis=0)).reshape(-1))
    rare = sparse.csr_array(clicked.multiply(1.0 / popularity))
    found = np.full((len(scorers), min(len(panel.queries), max_queries)), np.nan)
    for part in query_blocks(found.shape[1], size):
        # What a query shares with itself leads only to what was shown to it, and that is taken out.
        hops = sparse.csr_array((rare[part] @ clicked.T) @ clicked)
        hops = sparse.csr_array(hops - hops.multiply(barred[part]))
        hops.eliminate_zeros()
        hops.sort_indices()
        for scorer, out in zip(scorers, found, strict=True):
            scores = scorer.catalog(scorer.fold(panel.queries[part]))
            for row, query in enumerate(range(part.start, part.stop)):
                places = slice(hops.indptr[row], hops.indptr[row + 1])
                targets, weights = hops.indices[places].astype(np.int64), hops.data[places]
                out[query] = weighted_auc(scores[row], targets, weights, _row(barred, query))
            del scores  # two blocks alive at once would double the memory
    return found


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


def _distinct(rows: Rows, columns: Rows, shape: tuple[int, int]) -> sparse.csr_array:
    """1 at each named place, however often it is named."""
    found = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)
    found.sum_duplicates()
    found.data[:] = 1.0
    return found


def _row(matrix: sparse.csr_array, row: int) -> Rows:
    return np.asarray(matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]], np.int64)
