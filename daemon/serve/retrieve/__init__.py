"""Retrieval: from queries to hits, over all parts of the catalog, by one consistent model."""

from daemon.serve.retrieve.ann import AnnSettings
from daemon.serve.retrieve.guard import Guarded
from daemon.serve.retrieve.keys import KeySettings, Observing
from daemon.serve.retrieve.searcher import Searcher

__all__ = ["AnnSettings", "Guarded", "KeySettings", "Observing", "Searcher"]
