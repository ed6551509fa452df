"""Figures of exact search over sparse items: our scan over scipy's product and NumPy's argpartition."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

from learners.search import SparseItems, topk_sparse
from tests.benchmarks.harness import Figure, ratio_figure
from tests.benchmarks.triplets import DIM, NON_ZEROS, random_block

COUNT, TOP, BATCH = 100_000, 10, 16
WHAT = (
    f"exact top {TOP} of {COUNT:,} sparse items, d = {DIM:,}, {NON_ZEROS} non-zeros, dense folded query, "
    "1 thread"
)

Floats = NDArray[np.float32]
Search = Callable[[Floats], list[set[int]]]


def folded_queries(count: int, seed: int = 1) -> Floats:
    """Queries as a learned W folds them: a sparse vector and as much again that lies on all dimensions."""
    rng = np.random.default_rng(seed)
    own = random_block(rng, count).checked_csr().toarray()
    return np.asarray(own + rng.standard_normal(own.shape) / np.sqrt(DIM), np.float32)


def ours(items: SparseItems) -> Search:
    """Our search of whatever queries are given at once."""
    return lambda queries: [set(rows.tolist()) for rows in topk_sparse(queries, items, None, None, TOP)[1]]


def one_by_one(matrix: sparse.csr_array) -> Search:
    """X @ w and argpartition for each query."""

    def search(queries: Floats) -> list[set[int]]:
        return [set(np.argpartition(matrix @ w, COUNT - TOP)[-TOP:].tolist()) for w in queries]

    return search


def all_at_once(matrix: sparse.csr_array) -> Search:
    """X @ W with the queries as columns, and argpartition for each."""

    def search(queries: Floats) -> list[set[int]]:
        scores = np.ascontiguousarray((matrix @ np.ascontiguousarray(queries.T)).T)
        return [set(row.tolist()) for row in np.argpartition(scores, COUNT - TOP, axis=1)[:, -TOP:]]

    return search


def rate(search: Search, batches: list[Floats]) -> Callable[[], float]:
    """Queries per second over these batches."""

    def run() -> float:
        begin = time.perf_counter()
        for queries in batches:
            search(queries)
        return sum(map(len, batches)) / (time.perf_counter() - begin)

    return run


def figures() -> list[Figure]:
    """One query at a time, and 16 at once over the quicker of scipy's two ways."""
    block = random_block(np.random.default_rng(0), COUNT)
    items, matrix = SparseItems.of(block), block.checked_csr()
    queries = folded_queries(2 * BATCH)
    alone, batches = [queries[n : n + 1] for n in range(BATCH)], [queries[:BATCH], queries[BATCH:]]
    searches = (ours(items), one_by_one(matrix), all_at_once(matrix))
    with threadpool_limits(limits=1):
        found = [search(batches[0]) for search in searches]
        if not found[0] == found[1] == found[2]:
            raise SystemExit("the searches found different items: the figures would compare nothing")
        single, several = rate(searches[1], batches), rate(searches[2], batches)
        quicker, how = max(
            (single(), single, "X @ w for each"), (several(), several, "X @ W"), key=lambda x: x[0]
        )[1:]
        return [
            ratio_figure(
                "topk_sparse_vs_scipy",
                f"scipy X @ w and argpartition, a query at a time; {WHAT}",
                rate(searches[0], alone),
                rate(searches[1], alone),
                repeats=21,
            ),
            ratio_figure(
                "topk_sparse_batch_vs_scipy",
                f"scipy {how} and argpartition, {BATCH} queries at once; {WHAT}",
                rate(searches[0], batches),
                quicker,
                repeats=21,
            ),
        ]
