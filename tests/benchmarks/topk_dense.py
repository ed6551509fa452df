"""Figures of exact search over dense items: our scan over BLAS and NumPy's argpartition."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from learners import DenseBlock
from learners.search import DenseItems, topk_dense
from tests.benchmarks.harness import Figure, ratio_figure
from tests.benchmarks.topk_sparse import Search, rate

COUNT, DIM, TOP, BATCH = 100_000, 1_000, 10, 16
WHAT = f"exact top {TOP} of {COUNT:,} dense items, d = {DIM:,}, unit length, 1 thread"

Floats = NDArray[np.float32]


def unit_rows(count: int, seed: int) -> Floats:
    """Random directions."""
    values = np.random.default_rng(seed).standard_normal((count, DIM), np.float32)
    return np.asarray(values / np.linalg.norm(values, axis=1, keepdims=True), np.float32)


def ours(items: DenseItems) -> Search:
    """Our search of whatever queries are given at once."""
    return lambda queries: [set(rows.tolist()) for rows in topk_dense(queries, items, None, None, TOP)[1]]


def blas(values: Floats) -> Search:
    """One product with all items, and argpartition for each query."""

    def search(queries: Floats) -> list[set[int]]:
        if len(queries) == 1:
            return [set(np.argpartition(values @ queries[0], COUNT - TOP)[-TOP:].tolist())]
        best = np.argpartition(queries @ values.T, COUNT - TOP, axis=1)[:, -TOP:]
        return [set(row.tolist()) for row in best]

    return search


def figures() -> list[Figure]:
    """One query at a time, and 16 at once."""
    values = unit_rows(COUNT, 0)
    items, queries = DenseItems.of(DenseBlock(values)), unit_rows(BATCH, 1)
    mine, theirs = ours(items), blas(values)
    alone = [queries[n : n + 1] for n in range(4)]
    with threadpool_limits(limits=1):
        if mine(queries) != theirs(queries):
            raise SystemExit("the searches found different items: the figures would compare nothing")
        return [
            ratio_figure(
                "topk_dense_vs_blas",
                f"BLAS X @ q and argpartition, a query at a time; {WHAT}",
                rate(mine, alone),
                rate(theirs, alone),
                repeats=15,
            ),
            ratio_figure(
                "topk_dense_batch_vs_blas",
                f"BLAS X @ Q and argpartition, {BATCH} queries at once; {WHAT}",
                rate(mine, [queries]),
                rate(theirs, [queries]),
                repeats=15,
            ),
        ]
