"""Answers through the store that people already have: the store is asked in threads of its own, and what it
finds is put in order by the compute thread, like any question that names its objects.

So a store that is slow keeps nobody waiting but those who ask it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from daemon.serve.http.errors import Problem
from daemon.serve.http.limits import HttpLimits
from daemon.serve.http.offload import BoundedThreads
from daemon.serve.query import (
    Answers,
    IndexFound,
    IndexUse,
    KeyChoice,
    Query,
    QueryError,
    ScoredId,
)


class Asking(Protocol):
    """Answers questions; of the event loop."""

    async def ask(self, alias: str, queries: Sequence[Query]) -> Answers:
        """All answers from one model. Raises QueryError and Problem."""
        ...


class FindingInIndex(Protocol):
    """Asks the store. Any thread; it waits for it."""

    def find(self, alias: str, query: Query) -> IndexFound:
        """What the store finds. Raises QueryError."""
        ...


class IndexedAnswers:
    """In the place of the batcher where a store is configured. threads: questions to the store at once."""

    def __init__(self, search: Asking, index: FindingInIndex, threads: int, limits: HttpLimits) -> None:
        self._search, self._index = search, index
        self._threads = BoundedThreads(threads, limits.answer_s, limits.queue)

    async def ask(self, alias: str, queries: Sequence[Query]) -> Answers:
        """Answers to all queries. Those that name the objects to choose from need no store."""
        found = await asyncio.gather(*(self._found(alias, query) for query in queries))
        again = [place for place, one in enumerate(found) if not _is_answer(one)]
        searched: Answers | None = None
        if again:
            searched = await self._search.ask(alias, [_among(queries[at], found[at]) for at in again])
        return _joined(found, dict(zip(again, range(len(again)), strict=True)), searched)

    async def _found(self, alias: str, query: Query) -> IndexFound | QueryError | None:
        """None where the catalog alone answers."""
        if query.include is not None:
            return None
        try:
            return await self._threads.run(lambda: self._index.find(alias, query))
        except QueryError as refused:
            return refused
        except Problem as busy:  # one question of a batch gets an error of its own
            return QueryError(busy.code, str(busy), busy.field or "", busy.remedy, busy.status)


def _is_answer(found: Any) -> bool:
    """Whether nothing is left to be searched."""
    return isinstance(found, QueryError) or (found is not None and found.hits is not None)


def _among(query: Query, found: IndexFound | QueryError | None) -> Query:
    """The question that puts candidates in order; tags were the store's affair."""
    if found is None or isinstance(found, QueryError) or found.ids is None:
        return query
    return replace(query, include=found.ids, tags=frozenset())


def _joined(
    found: Sequence[IndexFound | QueryError | None], places: dict[int, int], searched: Answers | None
) -> Answers:
    """Every answer in its place. Raises QueryError where no question has one."""
    results: list[Sequence[ScoredId] | QueryError] = []
    exact: list[bool] = []
    by: list[KeyChoice | None] = []
    uses: list[IndexUse | None] = []
    model, formed = (None, 0) if searched is None else (searched.model, searched.formed)
    for place, one in enumerate(found):
        at = places.get(place)
        use = None if one is None or isinstance(one, QueryError) else one.use
        if at is not None:
            assert searched is not None
            whole = use is None or use.mode == "catalog"
            results.append(searched.results[at])
            exact.append(searched.exact[at] and whole)
            by.append(searched.by[at])
        elif isinstance(one, QueryError):
            results.append(one)
            exact.append(True)
            by.append(None)
        else:
            assert one is not None
            assert one.hits is not None
            if model is None:
                model, formed = one.model, one.formed
            results.append(one.hits)
            exact.append(False)
            by.append(None)
        uses.append(use)
    if model is None:
        raise next(one for one in found if isinstance(one, QueryError))
    return Answers(model, results, formed, exact, by, uses)
