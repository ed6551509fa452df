"""`/v1/fold` and `/v1/embed`: vectors for an index that is not ours."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from daemon.serve.http.errors import JSON, from_refusal
from daemon.serve.http.limits import HttpLimits, RequestBodies
from daemon.serve.http.offload import BoundedThreads
from daemon.serve.http.schemas import EmbedRequest, FoldRequest, GivenObject
from daemon.serve.http.similar import as_given, known_alias, origin_of, require_few
from daemon.serve.query import AnsweringModel, Query, QueryError, VectorAnswers


class MakingVectors(Protocol):
    """Makes vectors of objects. Any thread."""

    def vectors(
        self, alias: str, queries: Sequence[Query], wanted: Literal["folded", "embedded", "document"]
    ) -> VectorAnswers:
        """Make them by one model of the alias. Raises QueryError when it has none."""
        ...


class VectorEndpoints:
    """Objects in, their vectors out; the first of `aliases` where none is named. answered: as in
    `SimilarEndpoints`."""

    def __init__(
        self,
        maker: MakingVectors,
        answered: Callable[[str, AnsweringModel], None],
        aliases: Sequence[str],
        bodies: RequestBodies,
        limits: HttpLimits,
    ) -> None:
        self._maker, self._answered, self._aliases = maker, answered, aliases
        self._bodies, self._limits = bodies, limits
        self._threads = BoundedThreads(2, limits.answer_s, limits.queue)  # one may decompose

    async def fold(self, request: Request) -> Response:
        """POST /v1/fold"""
        async with self._bodies.read(request, FoldRequest) as wanted:
            made, told = await self._made(wanted.alias, "queries", wanted.queries, wanted.mode)
        views = [
            {"name": one.name, "start": one.start, "dim": one.dim, "unit": one.unit} for one in made.views
        ]
        return Response(to_json({**told, "mode": wanted.mode, "views": views}), media_type=JSON)

    async def embed(self, request: Request) -> Response:
        """POST /v1/embed"""
        async with self._bodies.read(request, EmbedRequest) as wanted:
            made, told = await self._made(wanted.alias, "objects", wanted.objects, "document")
        return Response(to_json({**told, "symmetric": made.symmetric}), media_type=JSON)

    async def _made(
        self,
        name: str | None,
        field: str,
        given: Sequence[GivenObject],
        wanted: Literal["folded", "embedded", "document"],
    ) -> tuple[VectorAnswers, dict[str, Any]]:
        start = time.perf_counter()
        alias = known_alias(name, self._aliases)
        require_few(field, len(given), self._limits)
        queries = [_to_query(one) for one in given]
        try:
            made = await self._threads.run(lambda: self._maker.vectors(alias, queries, wanted))
        except QueryError as refused:
            raise from_refusal(refused) from None
        if not all(isinstance(result, QueryError) for result in made.results):
            self._answered(alias, made.model)
        told = origin_of(made.model, made.formed, alias, start)
        vectors = [
            {"error": from_refusal(one, f"{field}[{place}].").body()}
            if isinstance(one, QueryError)
            else {"vector": one}
            for place, one in enumerate(made.results)
        ]
        return made, told | {"similarity": made.similarity, "dim": made.dim, "vectors": vectors}


def _to_query(given: GivenObject) -> Query:
    views = given.views
    return Query(
        id=given.id,
        x=as_given(given.x),
        views=None if views is None else {name: as_given(vector) for name, vector in views.items()},
    )
