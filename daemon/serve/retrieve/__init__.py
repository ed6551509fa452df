"""Retrieval: from queries to hits, over all parts of the catalog, by one consistent model."""

from daemon.serve.retrieve.part import AnnSettings, GuardResult
from daemon.serve.retrieve.searcher import KeySettings, Lookup, Observing, Searcher

__all__ = ["AnnSettings", "GuardResult", "KeySettings", "Lookup", "Observing", "Searcher"]
