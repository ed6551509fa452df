"""Bounded memories of the feed: ids already fed, and impressions kept per query."""

from __future__ import annotations

from collections import OrderedDict

MAX_QUERIES = 1_000_000
"""Queries whose count is remembered (some 150 bytes each); the one longest unseen is forgotten first."""


class SeenIds:
    """The last `size` different ids, oldest forgotten first; 0 remembers none."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._ids: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, name: str) -> bool:
        return name in self._ids

    def add(self, name: str) -> None:
        """Remember an id; one already there keeps its age."""
        if self._size and name not in self._ids:
            self._ids[name] = None
            if len(self._ids) > self._size:
                self._ids.popitem(last=False)


class QueryCap:
    """How often each query was kept, up to `cap`; 0 is no cap.  Counts live for one run of the feed."""

    def __init__(self, cap: int, max_queries: int = MAX_QUERIES) -> None:
        self._cap = cap
        self._max_queries = max_queries
        self._kept: OrderedDict[bytes, int] = OrderedDict()

    def full(self, key: bytes) -> bool:
        """Whether this query has reached the cap."""
        return bool(self._cap) and self._kept.get(key, 0) >= self._cap

    def add(self, key: bytes) -> None:
        """Count one more kept for this query."""
        if not self._cap:
            return
        self._kept[key] = self._kept.get(key, 0) + 1
        self._kept.move_to_end(key)
        if len(self._kept) > self._max_queries:
            self._kept.popitem(last=False)
