"""Completes the links of a graph, so that a walk can come to every row.

Where objects crowd together, a library that keeps only links in different directions leaves most of a row's
room free and many rows without a link that leads to them: no walk finds these, however wide its pool. Here
every link gets its other way round, and rows to which few lead are linked with what is nearest to them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from learners.graph import Codes, Graph, GraphTerms, Int32s, walked
from learners.kernels.links import link_back, link_to
from learners.search import EncodedQueries

WANTED = 5
"""Links that should lead to each row. With 2, a walk of a million rows needs twice the pool for the same
recall; with 8 it is no better and each of its steps costs more."""

POOL = 48
"""Rows in the pool of the walk that looks for a row's nearest."""

PIECE = 32
"""Rows whose nearest are looked for before their links are added, and walks may go over them."""


def complete(links: Int32s, codes: Codes, going_on: Callable[[], bool] = lambda: True) -> bool:
    """Add links to int32 [N, w] (-1 behind the last of each row), in place, where a row has room: rows
    int8 [N, p] are near by their directions. False where `going_on` said that nobody waits any more.

    Rows of which nothing near has room left keep fewer than WANTED.
    """
    counts, in_degree = np.empty(len(links), np.int32), np.empty(len(links), np.int32)
    link_back(links, counts, in_degree)
    few = np.flatnonzero(in_degree < WANTED)
    bounds = np.ones((len(codes), 3))
    graph = Graph.of(codes, bounds, links, np.zeros(len(codes), np.uint64))
    terms = GraphTerms.of(graph, _inverse_norms(codes), None)
    for first in range(0, len(few), PIECE):
        if not going_on():
            return False
        rows = few[first : first + PIECE]
        queries = EncodedQueries.of(codes[rows].astype(np.float32), codes.shape[1])
        for row, near in zip(rows.tolist(), walked(queries, graph, terms, POOL), strict=True):
            link_to(links, counts, in_degree, row, near, WANTED)
    return True


def _inverse_norms(codes: Codes) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """1 / norm of each row of codes, 0 for rows of zeros."""
    found = np.zeros(len(codes), np.float32)
    for first in range(0, len(codes), 1 << 16):
        values = codes[first : first + (1 << 16)].astype(np.float32)
        norms = np.sqrt(np.einsum("nd,nd->n", values, values))
        np.divide(1, norms, out=found[first : first + len(norms)], where=norms > 0)
    return found
