"""Softmax over a minibatch by the textbook: all pairs with all, the gradient by differences of the loss."""

from __future__ import annotations

import numpy as np

from .oracle_step import Doubles, Step, hinge


def unit(x: Doubles) -> Doubles:
    """x at unit length; zeros stay."""
    length = float(np.sqrt(x @ x))
    return x / length if length > 0 else x


def same(left: Doubles, right: Doubles) -> Doubles:
    """Which rows are equal, [left, right]."""
    return (left[:, None, :] == right[None, :, :]).all(axis=2)


class SoftmaxOracle:
    """A pair for each click that is not among the 32 newest ones; after every `every` pairs one step of Adam
    on `batch` of those kept. From half the memory on, and whenever the pairs have doubled, twice as many come
    between two steps, at most `batch`. Equal vectors are the same object."""

    def __init__(
        self, dim: int, temperature: float, rate: float, anneal: int, batch: int, every: int, memory: int
    ) -> None:
        self._A, self._first, self._second = np.eye(dim), np.zeros((dim, dim)), np.zeros((dim, dim))
        self._temperature, self._rate, self._anneal = temperature, rate / dim, anneal
        self._batch, self._every, self._memory = batch, every, memory
        self._pairs: list[tuple[Doubles, Doubles, float]] = []
        self._moves = 0

    @property
    def W(self) -> Doubles:
        return self._A @ self._A.T

    def step(self, q: Doubles, c: Doubles, s: Doubles, weight: float = 1.0) -> Step:
        q, c, s = unit(q), unit(c), unit(s)
        u, v, w = (unit(x @ self._A) for x in (q, c, s))
        margin = float(u @ v - u @ w)
        recent = self._pairs[-min(32, self._memory) :]
        seen = any(np.array_equal(q, one) and np.array_equal(c, other) for one, other, _ in recent)
        if weight == 0 or seen or not (q.any() and c.any()):
            return Step(margin, hinge(margin), 0.0)
        self._pairs.append((q, c, weight))
        interval, doubled_at = self._every, self._memory // 2
        while len(self._pairs) >= doubled_at:
            interval, doubled_at = 2 * interval, 2 * doubled_at
        if len(self._pairs) % min(interval, self._batch) == 0:
            self._move(min(interval, self._batch))
        return Step(margin, hinge(margin), weight)

    def _move(self, newest: int) -> None:
        count = len(self._pairs)
        kept = min(count, self._memory)
        raw = np.random.Philox(key=0, counter=[0, count, 0, 0]).random_raw(self._batch - newest)
        rows = [(count - 1 - n) % self._memory for n in range(newest)] + [int(n) % kept for n in raw]
        last = {n % self._memory: pair for n, pair in enumerate(self._pairs)}
        self._moves += 1
        G, t = self._gradient([last[row] for row in rows]), self._moves
        self._first = 0.9 * self._first + 0.1 * G
        self._second = 0.999 * self._second + 0.001 * G**2
        first, second = self._first / (1 - 0.9**t), self._second / (1 - 0.999**t)
        rate = self._rate / np.sqrt(1 + (t - 1) / self._anneal) if self._anneal else self._rate
        self._A = self._A - rate * first / (np.sqrt(second) + 1e-8)

    def _gradient(self, pairs: list[tuple[Doubles, Doubles, float]]) -> Doubles:
        """Of the loss, by central differences."""
        asked, found = (np.array([pair[side] for pair in pairs]) for side in (0, 1))
        weights = np.array([weight for *_, weight in pairs])
        out = same(found, found) | same(asked, found) | same(asked, asked)
        np.fill_diagonal(out, False)
        G, step = np.zeros_like(self._A), 1e-5
        for place in np.ndindex(*G.shape):
            moved = [self._A.copy(), self._A.copy()]
            moved[0][place] += step
            moved[1][place] -= step
            above, below = (self._loss(A, asked, found, weights, out) for A in moved)
            G[place] = (above - below) / (2 * step)
        return G

    def _loss(self, A: Doubles, asked: Doubles, found: Doubles, weights: Doubles, out: Doubles) -> float:
        """The weighted mean of -log(e^{s_ii} / sum_j e^{s_ij}), j = i or not among those left out."""
        u, v = (x @ A / np.sqrt(((x @ A) ** 2).sum(axis=1, keepdims=True)) for x in (asked, found))
        scores = np.exp(u @ v.T / self._temperature)
        losses = -np.log(np.diag(scores) / np.where(out, 0, scores).sum(axis=1))
        return float(weights @ losses / weights.sum())

    def score(self, q: Doubles, p: Doubles) -> float:
        return float(q @ self._A @ self._A.T @ p)
