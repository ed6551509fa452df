"""What people would do instead with the same clicks, each in the owner's own vectors.

Every rival gets the clicks of all lists so far and answers queries that never came. Where it has a
setting that clicks would have to choose, all values of its grid are judged and the best by labels is
reported: more than anybody could choose in advance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tests.quality.bench.forms import own_scores
from tests.quality.bench.retrieval import Scores
from tests.quality.bench.sets import Floats, Ints, unit


@dataclass(frozen=True)
class Pairs:
    """Clicks so far: rows of queries and of clicked objects, int64 [m]; shown and clicked counts of each
    object."""

    query: Ints
    clicked: Ints
    shown_count: Ints
    clicked_count: Ints


def ridge(X: Floats, pairs: Pairs) -> Iterator[Scores]:
    """Every night: A = argmin sum |q A - c|^2 + rho |A - I|^2, objects by the cosine with q A."""
    Q, P = X[pairs.query].astype(np.float64), X[pairs.clicked].astype(np.float64)
    gram, cross, eye = Q.T @ Q, Q.T @ P, np.eye(X.shape[1])
    for rho in (10.0, 100.0, 1000.0):
        folded = unit(X @ np.linalg.solve(gram + rho * eye, cross + rho * eye))
        yield _folded(folded, X)


def rocchio(X: Floats, pairs: Pairs) -> Iterator[Scores]:
    """A query moves towards what was clicked for the queries nearest to it: q + beta mean(c). Clicks of the
    query itself would come first; a query that never came has none."""
    asked, at = np.unique(pairs.query, return_inverse=True)
    centres = np.zeros((len(asked), X.shape[1]), np.float32)
    np.add.at(centres, at, X[pairs.clicked])
    centres = unit(centres)
    for beta in (0.3, 1.0):
        for count in (1, 10):
            yield _rocchio(X, asked, centres, beta, min(count, len(asked)))


def _rocchio(X: Floats, asked: Ints, centres: Floats, beta: float, count: int) -> Scores:
    def of(rows: Ints) -> Floats:
        near = X[rows] @ X[asked].T
        best = np.argpartition(-near, count - 1, axis=1)[:, :count]
        weight = np.maximum(np.take_along_axis(near, best, axis=1), 0)
        moved = np.einsum(
            "nk,nkd->nd", weight / np.maximum(weight.sum(1, keepdims=True), 1e-9), centres[best]
        )
        return (X[rows] + np.float32(beta) * moved.astype(np.float32)) @ X.T

    return of


def click_through(X: Floats, pairs: Pairs) -> Iterator[Scores]:
    """The own ranking plus the object's click-through rate, smoothed by ten lists of the mean rate."""
    rate = pairs.clicked_count.sum() / max(1, pairs.shown_count.sum())
    smooth = ((pairs.clicked_count + 10 * rate) / (pairs.shown_count + 10)).astype(np.float32)
    own = own_scores(X)
    for share in (0.03, 0.1, 0.3):
        yield _added(own, share * smooth)


def softmax_both(X: Floats, pairs: Pairs) -> Iterator[Scores]:
    """One matrix on both sides, softmax over the batch's clicked objects, temperature .07, Adam."""
    X = _principal(X)
    for A in _trained(X, pairs, _both):
        yield _cosine(unit(X @ A), unit(X @ A))


def query_adapter(X: Floats, pairs: Pairs) -> Iterator[Scores]:
    """One matrix on the query's side alone, margin against an object drawn at random, as in Chroma's
    report on embedding adapters (2024)."""
    X = _principal(X)
    for A in _trained(X, pairs, _query_only):
        yield _folded(unit(X @ A), X)


def _added(own: Scores, items: Floats) -> Scores:
    return lambda rows: own(rows) + items


def _folded(folded: Floats, X: Floats) -> Scores:
    return lambda rows: folded[rows] @ X.T


def _cosine(left: Floats, right: Floats) -> Scores:
    return lambda rows: left[rows] @ right.T


BATCH = 256
STEPS = (100, 250)
"""Steps of Adam after which a rival is judged: the best counts, as early stopping would have it."""
RATE = 2e-3
DIRECTIONS = 384
"""An adapter of more dimensions is trained on the principal ones of the catalog: time."""
TEMPERATURE = 0.07
MARGIN = 0.3

Loss = Callable[[Floats, Floats, Floats, Floats], Floats]


def _principal(X: Floats) -> Floats:
    if X.shape[1] <= DIRECTIONS:
        return X
    vectors = np.linalg.eigh(X.T.astype(np.float64) @ X)[1][:, -DIRECTIONS:]
    return np.asarray(X @ vectors, np.float32)


def _trained(X: Floats, pairs: Pairs, gradient: Loss) -> Iterator[Floats]:
    rng = np.random.default_rng(3)
    A = np.eye(X.shape[1], dtype=np.float32)
    first, second = np.zeros_like(A), np.zeros_like(A)
    for step in range(1, STEPS[-1] + 1):
        chosen = rng.integers(len(pairs.query), size=min(BATCH, len(pairs.query)))
        drawn = rng.integers(len(X), size=len(chosen))
        G = gradient(A, X[pairs.query[chosen]], X[pairs.clicked[chosen]], X[drawn])
        first += 0.1 * (G - first)
        second += 0.001 * (np.square(G) - second)
        A -= RATE * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        if step in STEPS:
            yield A.copy()


def _unit_back(rows: Floats, gradient: Floats) -> tuple[Floats, Floats]:
    """Rows at unit length, and the gradient by the rows of a gradient by the unit rows."""
    norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    units = rows / norms
    return units, (gradient - units * (gradient * units).sum(1, keepdims=True)) / norms


def _both(A: Floats, q: Floats, c: Floats, _: Floats) -> Floats:
    left, right = q @ A, c @ A
    u, v = unit(left), unit(right)
    logits = u @ v.T / np.float32(TEMPERATURE)
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    shares[np.diag_indices(len(shares))] -= 1
    shares /= len(shares) * TEMPERATURE
    by_left = _unit_back(left, shares @ v)[1]
    by_right = _unit_back(right, shares.T @ u)[1]
    return np.asarray(q.T @ by_left + c.T @ by_right, np.float32)


def _query_only(A: Floats, q: Floats, c: Floats, s: Floats) -> Floats:
    left = q @ A
    u = unit(left)
    violated = ((u * (s - c)).sum(1) + MARGIN > 0)[:, None]
    by_left = _unit_back(left, np.where(violated, s - c, 0).astype(np.float32) / len(q))[1]
    return np.asarray(q.T @ by_left, np.float32)


Rival = Callable[[Floats, Pairs], Iterator[Scores]]

RIVALS: Mapping[str, Rival] = {
    "nightly ridge on clicked pairs": ridge,
    "Rocchio from clicks": rocchio,
    "click-through rate": click_through,
    "adapter, both sides, softmax in the batch": softmax_both,
    "adapter, query side, random negatives": query_adapter,
}
