"""Answers through the store that people already have: the store is asked in threads of its own, and what it
finds is put in order by the compute thread, like any question that names its objects.

So a store that is slow keeps nobody waiting but those who ask it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from daemon.serve.http.errors import Problem
from daemon.serve.http.limits import HttpLimits
from daemon.serve.http.offload import BoundedThreads
from daemon.serve.query import Answered, Answers, IndexFound, Query, QueryError

Asking: TypeAlias = Callable[[str, Sequence[Query]], Awaitable[Answers]]
"""Answers questions to an alias, all from one model; of the event loop. Raises QueryError and Problem."""
FindingInIndex: TypeAlias = Callable[[str, Query], IndexFound]
"""What a store finds for a question to an alias. Any thread; it waits for the store. Raises QueryError."""


class IndexedAnswers:
    """In the place of the batcher where a store is configured. threads: questions to the store at once."""

    def __init__(self, search: Asking, index: FindingInIndex, threads: int, limits: HttpLimits) -> None:
        self._search, self._index = search, index
        self._threads = BoundedThreads(threads, limits.answer_s, limits.queue)

    async def ask(self, alias: str, queries: Sequence[Query]) -> Answers:
        """Answers to all queries. Those that name the objects to choose from need no store."""
        found = await asyncio.gather(*(self._found(alias, query) for query in queries))
        again, of_store = list[Query](), list[IndexFound]()
        for query, one in zip(queries, found, strict=True):
            if one is None:
                again.append(query)
            elif isinstance(one, IndexFound) and one.hits is not None:
                of_store.append(one)
            elif isinstance(one, IndexFound):  # tags were the store's affair
                of_ids = replace(query, include=one.ids, tags=frozenset(), found=True)
                again.append(query if one.ids is None else of_ids)
        if again:
            searched = await self._search(alias, again)
            return replace(searched, each=_joined(found, searched.each))
        if not of_store:
            raise next(one for one in found if isinstance(one, QueryError))
        return Answers(of_store[0].model, of_store[0].formed, _joined(found, ()))

    async def _found(self, alias: str, query: Query) -> IndexFound | QueryError | None:
        """None where the catalog alone answers."""
        if query.include is not None:
            return None
        try:
            return await self._threads.run(lambda: self._index(alias, query))
        except QueryError as refused:
            return refused
        except Problem as busy:  # one question of a batch gets an error of its own
            return QueryError(busy.code, str(busy), busy.field or "", busy.remedy, busy.status)


def _joined(found: Sequence[IndexFound | QueryError | None], searched: Sequence[Answered]) -> list[Answered]:
    """Every answer, in order. searched: those to what the store did not answer."""
    rest, each = iter(searched), list[Answered]()
    for one in found:
        if isinstance(one, QueryError):
            each.append(Answered(one))
        elif one is None:
            each.append(next(rest))
        elif one.hits is not None:
            each.append(Answered(one.hits, exact=False, index=one.use))
        else:
            answered = next(rest)
            exact = answered.exact and one.use.mode == "catalog"
            each.append(replace(answered, exact=exact, index=one.use))
    return each
