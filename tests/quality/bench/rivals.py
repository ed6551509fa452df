"""What people would do instead with the same clicks, each in the owner's own vectors.

Every rival gets the clicks of all lists so far and answers queries that never came; those that are trained
step by step learn from the lists that the product learns from, and stop by those that it holds out. Where a
rival has a setting that clicks would have to choose, all values of its grid are judged and the best by labels
is reported: more than anybody could choose in advance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
from scipy import sparse

from tests.quality.bench.forms import own_scores
from tests.quality.bench.retrieval import Scores
from tests.quality.bench.sets import Floats, Ints, unit


@dataclass(frozen=True)
class Pairs:
    """Clicks so far: rows of queries and of clicked objects, int64 [2, m], of lists that the product learns
    from and of those that it holds out; how often each object was shown and clicked in all of them."""

    learned: Ints
    held: Ints
    shown_count: Ints
    clicked_count: Ints

    @property
    def every(self) -> Ints:
        """All of them."""
        return np.concatenate([self.learned, self.held], axis=1)


def ridge(X: Floats, pairs: Pairs) -> Iterator[Scores]:
    """Every night: A = argmin sum |q A - c|^2 + rho |A - I|^2, objects by the cosine with q A."""
    Q, P = (X[rows].astype(np.float64) for rows in pairs.every)
    gram, cross, eye = Q.T @ Q, Q.T @ P, np.eye(X.shape[1])
    for rho in (1.0, 10.0, 100.0, 1000.0):
        folded = unit(X @ np.linalg.solve(gram + rho * eye, cross + rho * eye))
        yield _folded(folded, X)


def rocchio(X: Floats, pairs: Pairs) -> Iterator[Scores]:
    """A query moves towards what was clicked for the queries nearest to it: q + beta mean(c). Clicks of the
    query itself would come first; a query that never came has none."""
    queries, clicked = pairs.every
    asked, at = np.unique(queries, return_inverse=True)
    ones = np.ones(len(at), np.float32)
    centres = unit(sparse.csr_array((ones, (at, clicked)), shape=(len(asked), len(X))) @ X)
    for beta in (0.3, 1.0, 3.0):
        for count in (1, 10, 30):
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
    """One matrix on both sides, softmax over the batch's clicked objects, Adam."""
    X = _principal(X)
    for rate, temperature in product(RATES, TEMPERATURES):
        A = trained(X, pairs, partial(both_sides, temperature=temperature), rate)
        yield _cosine(unit(X @ A), unit(X @ A))


def query_adapter(X: Floats, pairs: Pairs) -> Iterator[Scores]:
    """One matrix on the query's side alone, margin against an object drawn at random, as in Chroma's
    report on embedding adapters (2024)."""
    X = _principal(X)
    for rate, margin in product(RATES, MARGINS):
        yield _folded(unit(X @ trained(X, pairs, partial(query_side, margin=margin), rate)), X)


def _added(own: Scores, items: Floats) -> Scores:
    return lambda rows: own(rows) + items


def _folded(folded: Floats, X: Floats) -> Scores:
    return lambda rows: folded[rows] @ X.T


def _cosine(left: Floats, right: Floats) -> Scores:
    return lambda rows: left[rows] @ right.T


BATCH = 256
RATES = (5e-4, 2e-3)
"""Of Adam."""
TEMPERATURES = (0.07, 0.2)
MARGINS = (0.3, 1.0)
MOST_STEPS = 3_000
PATIENCE = 5
"""Training ends when the loss on lists held out was not lower for so many looks in a row; what had the lowest
is taken."""
LEAST_BETWEEN = 10
"""Steps between two looks: an epoch, or so many where it has fewer."""
HELD_BATCHES = 4
DIRECTIONS = 384
"""An adapter of more dimensions is trained on the principal ones of the catalog: time."""

Batch = tuple[Floats, Floats, Floats]
"""Queries, clicked objects, objects drawn at random, each [b, d]."""
Loss = Callable[[Floats, Batch], tuple[float, Floats]]
"""A, a batch -> the mean loss and its gradient by A."""


def _principal(X: Floats) -> Floats:
    if X.shape[1] <= DIRECTIONS:
        return X
    vectors = np.linalg.eigh(X.T.astype(np.float64) @ X)[1][:, -DIRECTIONS:]
    return np.asarray(X @ vectors, np.float32)


def trained(X: Floats, pairs: Pairs, loss: Loss, rate: float) -> Floats:
    """A matrix [d, d], from I on, where the loss on lists held out is lowest."""
    rng = np.random.default_rng(3)
    A = np.eye(X.shape[1], dtype=np.float32)
    first, second = np.zeros_like(A), np.zeros_like(A)
    count = pairs.learned.shape[1]
    every = max(LEAST_BETWEEN, count // BATCH)
    held = [_batch(X, pairs.held, rng) for _ in range(HELD_BATCHES)] if pairs.held.size else []
    best, kept, looks = np.inf, A.copy(), 0
    for step in range(MOST_STEPS + 1):
        if step % every == 0:
            now = float(np.mean([loss(A, one)[0] for one in held])) if held else -step
            best, kept, looks = (now, A.copy(), 0) if now < best else (best, kept, looks + 1)
            if looks == PATIENCE:
                break
        G = loss(A, _batch(X, pairs.learned, rng))[1]
        first += 0.1 * (G - first)
        second += 0.001 * (np.square(G) - second)
        bias, scale = 1 - 0.9 ** (step + 1), 1 - 0.999 ** (step + 1)
        A -= np.float32(rate) * (first / bias) / (np.sqrt(second / scale) + 1e-8)
    return kept


def _batch(X: Floats, pairs: Ints, rng: np.random.Generator) -> Batch:
    """Pairs, each at most once, and as many objects."""
    chosen = rng.permutation(pairs.shape[1])[:BATCH]
    drawn = rng.integers(len(X), size=len(chosen))
    return X[pairs[0, chosen]], X[pairs[1, chosen]], X[drawn]


def _unit_back(rows: Floats, gradient: Floats) -> tuple[Floats, Floats]:
    """Rows at unit length, and the gradient by the rows of a gradient by the unit rows."""
    norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    units = np.asarray(rows / norms, np.float32)
    return units, (gradient - units * (gradient * units).sum(1, keepdims=True)) / norms


def both_sides(A: Floats, batch: Batch, temperature: float) -> tuple[float, Floats]:
    """Cross entropy of the clicked object among those of the batch, and its gradient."""
    q, c, _ = batch
    left, right = q @ A, c @ A
    u, v = unit(left), unit(right)
    logits = u @ v.T / np.float32(temperature)
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    own = np.diag_indices(len(shares))
    found = -float(np.mean(np.log(np.maximum(shares[own], 1e-20))))
    shares[own] -= 1
    shares /= len(shares) * temperature
    by_left = _unit_back(left, shares @ v)[1]
    by_right = _unit_back(right, shares.T @ u)[1]
    return found, np.asarray(q.T @ by_left + c.T @ by_right, np.float32)


def query_side(A: Floats, batch: Batch, margin: float) -> tuple[float, Floats]:
    """Hinge of the clicked object above one drawn, and its gradient."""
    q, c, s = batch
    left = q @ A
    behind = np.maximum((unit(left) * (s - c)).sum(1) + np.float32(margin), 0)
    violated = (behind > 0)[:, None]
    by_left = _unit_back(left, np.where(violated, s - c, 0).astype(np.float32) / np.float32(len(q)))[1]
    return float(behind.mean()), np.asarray(q.T @ by_left, np.float32)


Rival = Callable[[Floats, Pairs], Iterator[Scores]]

RIVALS: Mapping[str, Rival] = {
    "nightly ridge on clicked pairs": ridge,
    "Rocchio from clicks": rocchio,
    "click-through rate": click_through,
    "adapter, both sides, softmax in the batch": softmax_both,
    "adapter, query side, random negatives": query_adapter,
}
