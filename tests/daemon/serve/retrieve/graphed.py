"""Catalogs with graphs over them, as tests of retrieval need them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from daemon.serve.items.snapshot import IndexSnapshot
from daemon.serve.query import Query, QueryError
from daemon.serve.retrieve import GraphKeeper, GraphSearch, GuardResult, Searcher
from learners.block import Block
from learners.maps.queries import QueryMaps
from tests.daemon.serve.retrieve.makers import Floats, Items

DIM, TOLD, COUNT = 32, 24, 6000


def clustered(count: int = COUNT) -> Items:
    """Objects in 60 groups; their last numbers are alike in all groups."""
    items = Items("dense", DIM)
    items.put([f"a{i}" for i in range(count)], more(count, 0))
    return items


def more(count: int, seed: int) -> Floats:
    """As many vectors of the same groups."""
    centres = np.random.default_rng(0).standard_normal((60, DIM))
    centres[:, TOLD:] = 0
    rng = np.random.default_rng([seed, 1])
    values = centres[rng.integers(0, 60, count)] + 0.35 * rng.standard_normal((count, DIM))
    return np.asarray(values, np.float32)


def strongly_changed() -> Floats:
    """A W that looks at what the groups do not tell."""
    return np.diag(np.where(np.arange(DIM) < TOLD, 1e-3, 1)).astype(np.float32)


def keeper_of(items: Items, folder: Path, least: int = 1000, built: bool = True) -> GraphKeeper:
    """A keeper whose graphs are built, looked after by hand."""
    keeper = GraphKeeper([folder], items.snapshot, least)
    if built:
        keeper.look()
        assert keeper.status().built + keeper.status().adopted
    return keeper


def searcher_over(
    items: Items,
    keeper: GraphKeeper | None,
    recall: float = 0.95,
    observe: Callable[[GuardResult], None] | None = None,
) -> Searcher:
    """A searcher that takes questions by the name of an object, or by a vector x."""

    def lookup(
        queries: Sequence[Query], snapshot: IndexSnapshot, maps: QueryMaps
    ) -> list[Block | QueryError]:
        found: list[Block | QueryError] = []
        for query in queries:
            at = snapshot.find(query.id or "")
            assert at is not None
            found.append(snapshot.parts[at[0]].vectors.take([at[1]]))
        return found

    graphs = None if keeper is None else GraphSearch(keeper.covered, recall)
    return Searcher({}, items.snapshot, lookup, graphs, observe)
