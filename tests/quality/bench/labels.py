"""What labels themselves teach, on the same split: triplets of Chechik et al., and ridge regression."""

from __future__ import annotations

import numpy as np

from tests.quality.bench.retrieval import Scores
from tests.quality.bench.sets import Floats, Ints, RawSet, unit


def triplets(data: RawSet, rows: Ints, count: int, seed: int) -> Ints:
    """q uniform over those of `rows` that are not alone in their class, c over the others of its class, s
    over the other classes (JMLR 11 (2010), section 2.3); int64 [3, count]."""
    rng = np.random.default_rng((seed, 9))
    labels = data.labels[rows]
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], np.arange(labels.max() + 2))
    place = np.empty(len(rows), np.int64)
    place[order] = np.arange(len(rows))
    asked = np.flatnonzero(np.diff(starts)[labels] > 1)
    q = asked[rng.integers(len(asked), size=count)]
    first, last = starts[labels[q]], starts[labels[q] + 1]
    # Uniform over what is left when q, or the class, which is one run of `order`, is cut out.
    drawn = first + (rng.random(count) * (last - first - 1)).astype(np.int64)
    c = order[drawn + (drawn >= place[q])]
    drawn = (rng.random(count) * (len(rows) - (last - first))).astype(np.int64)
    s = order[drawn + np.where(drawn >= first, last - first, 0)]
    return rows[np.stack([q, c, s])]


def ridge(X: Floats, data: RawSet, rows: Ints, rho: float) -> Scores:
    """Class indicators predicted from X, (X^T X + rho I)^-1 X^T Y on `rows`; objects are compared by the
    cosine of their predictions."""
    Y = (data.labels[rows][:, None] == np.unique(data.labels)).astype(np.float64)
    left = X[rows].astype(np.float64)
    B = np.linalg.solve(left.T @ left + rho * np.eye(X.shape[1]), left.T @ (Y - Y.mean(0)))
    predicted = unit(X @ B)
    return lambda chosen: predicted[chosen] @ predicted.T
