"""What clicks say of a ranking, on NumPy arrays: average precision, nDCG, AUC, hinge loss, position-balanced
accuracy. Pure.

Conventions are those of `learners.measures`, where average precision and P@k over a whole catalog are: a
higher score ranks first, **ties go to the lower place**, scores are finite, ranks are 1-based. `shown_*`
works on many short shown lists at once, padded to a common length (`valid` is False on padding).
"""

from __future__ import annotations

import numpy as np

from daemon.validate.shown import Float, Mask, Rows, Scores, ShownLists

TOP = 10
"""The k of P@k and nDCG@k in every report."""


def shown_ranks(scores: Scores, valid: Mask) -> Rows:
    """1-based rank of every object inside its shown list; padding ranks last.

    scores [n, L], valid bool[n, L] -> int64[n, L]; ties to the lower place in the shown order.
    """
    order = np.argsort(np.where(valid, -scores, np.inf), axis=1, kind="stable")
    ranks = np.empty(order.shape, dtype=np.int64)
    places = np.tile(np.arange(1, order.shape[1] + 1), (len(order), 1))
    np.put_along_axis(ranks, order, places, axis=1)
    return ranks


def shown_average_precision(ranks: Rows, clicked: Mask, weights: Float | None = None) -> Float:
    """Average precision inside each shown list with the clicked objects as the relevant ones.

    `AP_w = sum_j w_j P(r_j) / sum_j w_j`, P(r) = share of clicked among the first r places: the
    self-normalised inverse-propensity mean of the precision at each click; equal weights give plain AP.
    ranks int64[n, L], clicked bool[n, L], weights float64[n, L] -> float64[n]; NaN for a list without a
    click.
    """
    length = ranks.shape[1]
    hits = np.zeros(ranks.shape, dtype=np.float64)
    np.put_along_axis(hits, ranks - 1, clicked.astype(np.float64), axis=1)
    precision = np.cumsum(hits, axis=1) / np.arange(1, length + 1)
    at_object = np.take_along_axis(precision, ranks - 1, axis=1)
    share = clicked.astype(np.float64) if weights is None else np.where(clicked, weights, 0.0)
    total = share.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(total > 0, (share * at_object).sum(axis=1) / total, np.nan)


def shown_ndcg(ranks: Rows, clicked: Mask, k: int = 10) -> Float:
    """nDCG@k inside each shown list, gain 1 for a click, discount `1/log2(1 + rank)`.

    ranks int64[n, L], clicked bool[n, L] -> float64[n]; NaN for a list without a click.
    """
    discount = np.where(ranks <= k, 1.0 / np.log2(1.0 + ranks), 0.0)
    dcg = np.where(clicked, discount, 0.0).sum(axis=1)
    ideal = np.concatenate([[0.0], np.cumsum(1.0 / np.log2(1.0 + np.arange(1, k + 1)))])
    best = ideal[np.minimum(clicked.sum(axis=1), k)]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(best > 0, dcg / best, np.nan)


def shown_hinge(scores: Scores, lists: ShownLists) -> Float:
    """Mean hinge `max(0, 1 - s_c + s_u)` over all (clicked c, unclicked u) pairs of each shown list.

    scores [n, L] -> float64[n]; NaN for a list without such a pair.
    """
    out = np.full(len(scores), np.nan)
    for pairs, _ in lists.pairs:
        own, other = pairs.scores(scores)
        loss = np.maximum(0.0, 1.0 - own.astype(np.float64) + other)
        total, count = pairs.summed(loss), pairs.summed(np.ones(len(loss)))
        np.divide(total, count, out=out[pairs.part], where=count > 0)
    return out


def auc_per_list(scores: Scores, clicked: Mask, random: Scores, counts: Mask) -> Float:
    """Share of (clicked, random) pairs of each list with the clicked one scored higher, ties one half.

    scores [n, L], clicked bool[n, L], random [n, R], counts bool[n, R] (the random objects that count) ->
    float64[n]; NaN without a pair.
    """
    owner, rank = np.nonzero(clicked)
    own, other = scores[owner, rank][:, None], random[owner]
    won = (((own > other) + 0.5 * (own == other)) * counts[owner]).sum(axis=1)
    pairs = clicked.sum(axis=1) * counts.sum(axis=1)
    total = np.bincount(owner, won, minlength=len(scores))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(pairs > 0, total / pairs, np.nan)


def position_balanced(scores: Scores, lists: ShownLists) -> float:
    """Accuracy on pairs of a clicked and an unclicked object, ties one half, balanced per pair of ranks.

    Mean over rank pairs of the mean of both accuracies, weighted by a b / (a + b) for the number of lists a
    with the upper and b with the lower rank clicked: the inverse variance of such a mean, up to a factor. NaN
    when no rank pair has both. scores [n, L].
    """
    counts, won = np.zeros((2, *(scores.shape[1],) * 2))
    for pairs, _ in lists.pairs:
        counts += pairs.by_ranks(np.ones(len(pairs.owner)))
        won += pairs.by_ranks(pairs.above(scores))
    upper = np.triu_indices(len(counts), 1)
    a, b = counts[upper], counts.T[upper]
    both = (a > 0) & (b > 0)
    if not both.any():
        return float("nan")
    a, b = a[both], b[both]
    accuracy: Float = (won[upper][both] / a + won.T[upper][both] / b) / 2
    return float(np.average(accuracy, weights=a * b / (a + b)))
