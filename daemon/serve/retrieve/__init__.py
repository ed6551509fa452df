"""Retrieval: from queries to hits, over all parts of the catalog, by one consistent model."""

from daemon.serve.retrieve.graphs import GraphKeeper, GraphStatus
from daemon.serve.retrieve.norms import GraphSearch
from daemon.serve.retrieve.part import GuardResult
from daemon.serve.retrieve.searcher import KeySettings, Lookup, Observing, Searcher

__all__ = [
    "GraphKeeper",
    "GraphSearch",
    "GraphStatus",
    "GuardResult",
    "KeySettings",
    "Lookup",
    "Observing",
    "Searcher",
]
