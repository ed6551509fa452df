"""OKS over a pool of objects whose kernel values are all known: exact, with no budget, in time for a grid.

The similarity is that of the library, S(q, p) = k(q, p) + sum_l tau_l k(q, q_l) (k(c_l, p) - k(s_l, p)), for
any matrix K of kernel values; a test holds the two together. With B = A K, A[q_l, c_l] += tau_l, A[q_l, s_l]
-= tau_l, a margin and a step take as many operations as there are objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist

from learners.measures import average_precision, ranks_of
from tests.quality.bench.sets import Ints, RawSet

Doubles = NDArray[np.float64]

SIGMAS = (0.5, 1.0, 2.0)
COMPONENTS = 50


@dataclass(frozen=True, eq=False)
class ObjectPool:
    """Some objects of a set, the same number of every class. train, validation, test: their rows in the pool;
    labels: int64 [n]; views: dense float64 [n, columns] as their owner has them."""

    train: Ints
    validation: Ints
    test: Ints
    labels: Ints
    views: Mapping[str, Doubles]

    @classmethod
    def drawn(cls, data: RawSet, seed: int, classes: int, each: tuple[int, int, int]) -> ObjectPool:
        """`each`: of every class to learn from, to choose by, to be judged by; classes: how many of those
        that are large enough."""
        rng = np.random.default_rng((seed, 68))
        large = np.flatnonzero(np.bincount(data.labels) >= sum(each))
        chosen = np.sort(rng.permutation(large)[:classes])
        rows = np.stack([rng.permutation(np.flatnonzero(data.labels == one))[: sum(each)] for one in chosen])
        parts = np.split(rows, np.cumsum(each)[:-1], axis=1)
        order = np.concatenate([part.ravel() for part in parts])
        train, validation, test = np.split(
            np.arange(len(order)), np.cumsum([part.size for part in parts])[:-1]
        )
        views = {
            name: (view[order].toarray() if sparse.issparse(view) else view[order]).astype(np.float64)
            for name, view in data.views.items()
        }
        return cls(train, validation, test, data.labels[order], views)

    def features(self, kind: str) -> list[Doubles]:
        """Rows of unit length of each view. kind: "pca", its first 50 principal directions, fitted on what is
        learned from, as in TPAMI 36 (2014), section 6.3; "whiten", these divided by sqrt(v + mean v), v their
        variances; "given", as they are."""
        made = []
        for view in self.views.values():
            rows = view
            if kind != "given":
                rows = view - view[self.train].mean(axis=0)
                _, sizes, axes = np.linalg.svd(rows[self.train], full_matrices=False)
                rows = rows @ axes[:COMPONENTS].T
                if kind == "whiten":
                    variances = sizes[:COMPONENTS] ** 2
                    rows = rows / np.sqrt(variances + variances.mean())
            made.append(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))
        return made

    def triplets(self, count: int, seed: int) -> Ints:
        """Pairs of a class, each with an object of another, int64 [3, count]: all pairs in random order, and
        again where there are fewer."""
        rng, labels = np.random.default_rng((seed, 2014)), self.labels[self.train]
        same = np.argwhere((labels[:, None] == labels) & ~np.eye(len(labels), dtype=bool))
        turns = [rng.permutation(len(same)) for _ in range(-(-count // len(same)))]
        pairs = same[np.concatenate(turns)[:count]]
        others = rng.integers(len(labels), size=count)
        while (wrong := labels[others] == labels[pairs[:, 0]]).any():
            others[wrong] = rng.integers(len(labels), size=int(wrong.sum()))
        return np.vstack([pairs.T, others])

    def map(self, scores: Doubles, rows: Ints) -> float:
        """Mean average precision of scores [rows, rows]: each against the others."""
        labels, found = self.labels[rows], []
        for at in range(len(rows)):
            right = np.flatnonzero((labels == labels[at]) & (np.arange(len(rows)) != at))
            found.append(average_precision(ranks_of(scores[at], right, exclude=at)))
        return float(np.mean(found))


def rbf(X: Doubles, sigma: float, train: Ints, power: int = 1) -> Doubles:
    """exp(-(d / gamma)^power / sigma^2), gamma the mean distance of two that are learned from."""
    distances = cdist(X, X)
    near = distances[np.ix_(train, train)]
    gamma = near[np.triu_indices(len(train), 1)].mean()
    return np.exp(-((distances / gamma) ** power) / sigma**2)


def printed(X: Doubles, train: Ints) -> list[Doubles]:
    """The four kernels of a view as printed (TPAMI 36 (2014), section 6.3)."""
    return [*(rbf(X, sigma, train) for sigma in SIGMAS), X @ X.T / 2 + 0.5]


def centred(X: Doubles, train: Ints) -> list[Doubles]:
    """The same four, centred as the library centres them: by a number that no data tell."""
    unrelated = [*(np.exp(-1 / sigma**2) for sigma in SIGMAS), 0.5]
    return [(K - u) / (1 - u) for K, u in zip(printed(X, train), unrelated, strict=True)]


def less_the_mean(K: Doubles, train: Ints) -> Doubles:
    """(k - mean) / (1 - mean), with the mean over pairs that are learned from."""
    n, near = len(train), K[np.ix_(train, train)]
    mean = (near.sum() - np.trace(near)) / (n * (n - 1))
    return (K - mean) / (1 - mean)


def centred_exactly(K: Doubles, train: Ints) -> Doubles:
    """Kernel values of phi(x) - mean phi, brought to unit length; the mean over what is learned from."""
    means = K[:, train].mean(axis=1)
    centre = K - means[:, None] - means + means[train].mean()
    lengths = np.sqrt(np.maximum(np.diag(centre), 1e-12))
    return centre / lengths[:, None] / lengths


@njit(cache=True, nogil=True)
def _learn(K, triplets, C, budget, A, B, margins, kept, taus):  # type: ignore[no-untyped-def]
    """A, B^T float64 [n, n], zeros: overwritten; margins float64 [T], before each step; kept int64 [budget],
    taus float64 [budget]: of the triplets that are kept, the oldest goes; without a budget all are."""
    n, count, head = len(K), 0, 0
    for t in range(triplets.shape[1]):
        q, c, s = triplets[0, t], triplets[1, t], triplets[2, t]
        margin = K[q, c] - K[q, s]
        for o in range(n):
            margin += K[q, o] * (B[c, o] - B[s, o])
        margins[t] = margin
        square = K[q, q] * (K[c, c] - 2 * K[c, s] + K[s, s])
        if margin >= 1 or square <= 1e-12:
            continue
        tau = min(C, (1 - margin) / square)
        A[q, c] += tau
        A[q, s] -= tau
        for p in range(n):
            B[p, q] += tau * (K[c, p] - K[s, p])
        if budget == 0:
            continue
        if count == budget:
            u, old = kept[head], taus[head]
            a, b, d = triplets[0, u], triplets[1, u], triplets[2, u]
            A[a, b] -= old
            A[a, d] += old
            for p in range(n):
                B[p, a] -= old * (K[b, p] - K[d, p])
        else:
            count += 1
        kept[head], taus[head] = t, tau
        head = (head + 1) % budget


@dataclass(frozen=True, eq=False)
class PoolFit:
    """What OKS learned: A as above over what was learned from, and the margin of each triplet before its
    step, float64 [T]."""

    A: Doubles
    margins: Doubles

    @classmethod
    def of(cls, K: Doubles, pool: ObjectPool, triplets: Ints, C: float, budget: int = 0) -> PoolFit:
        """Learn; triplets: int64 [3, T], of `pool.train`; budget: most triplets that are kept, 0: all."""
        near, n = np.ascontiguousarray(K[np.ix_(pool.train, pool.train)]), len(pool.train)
        A, B, margins = np.zeros((n, n)), np.zeros((n, n)), np.zeros(triplets.shape[1])
        kept, taus = np.zeros(max(1, budget), np.int64), np.zeros(max(1, budget))
        _learn(near, np.ascontiguousarray(triplets), C, budget, A, B, margins, kept, taus)
        return cls(A, margins)

    def scores(self, K: Doubles, pool: ObjectPool, rows: Ints) -> Doubles:
        """S of these rows among themselves, as learned."""
        to = K[np.ix_(rows, pool.train)]
        return np.asarray(K[np.ix_(rows, rows)] + to @ self.A @ to.T)

    def served(self, K: Doubles, pool: ObjectPool, power: float, without_mean: bool) -> Doubles:
        """S of all objects in its serving form before it is normalised: symmetric, PSD, its spectrum raised
        to a power; without_mean: without the direction of the mean of what was learned from."""
        near = K[np.ix_(pool.train, pool.train)]
        values, axes = np.linalg.eigh(near)
        kept = values > 1e-9 * values[-1]
        values, axes = values[kept], axes[:, kept]
        place, own = K[:, pool.train] @ (axes / np.sqrt(values)), (axes * np.sqrt(values)).T
        W = np.eye(len(values)) + own @ self.A @ own.T
        W = (W + W.T) / 2
        if without_mean:
            mean = own.mean(axis=1)
            mean /= np.linalg.norm(mean)
            W -= np.outer(mean, mean @ W)
            W -= np.outer(W @ mean, mean)
        found, turn = np.linalg.eigh(W)
        largest = max(1.0, float(found[-1]))
        raised, one = largest * (np.maximum(found, 0) / largest) ** power, largest * (1 / largest) ** power
        turned = place @ turn
        return np.asarray(one * K + (turned * (raised - one)) @ turned.T)


def learned_cosine(S: Doubles) -> Doubles:
    """S(q, p) / sqrt(S(q, q) S(p, p))."""
    lengths = np.sqrt(np.maximum(np.diag(S), 1e-12))
    return S / lengths[:, None] / lengths
