"""`/v1/similar` and `/v1/similar/batch`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from daemon.serve.http.asking import known_alias, to_queries, to_query
from daemon.serve.http.batching import Batcher
from daemon.serve.http.body import Bodies
from daemon.serve.http.errors import JSON, Problem, from_refusal, from_validation
from daemon.serve.http.limits import Limits
from daemon.serve.http.ports import Watching
from daemon.serve.http.schemas import BatchRequest, SimilarRequest
from daemon.serve.query import Answers, ByKey, Hit, Query, Refused


class Similar:
    """Questions in, nearest objects out; the first of `aliases` answers where none is named."""

    def __init__(
        self, batcher: Batcher, watching: Watching, aliases: Sequence[str], bodies: Bodies, limits: Limits
    ) -> None:
        self._batcher, self._watching, self._aliases = batcher, watching, aliases
        self._bodies, self._limits = bodies, limits

    async def single(self, request: Request) -> Response:
        """GET /v1/similar?id=&k=&key=&alias= and POST /v1/similar"""
        if request.method != "POST":
            return await self._answer(_from_parameters(request))
        async with self._bodies.read(request, SimilarRequest) as wanted:
            return await self._answer(wanted)

    async def batch(self, request: Request) -> Response:
        """POST /v1/similar/batch: a query that has no answer gets its error in its place."""
        async with self._bodies.read(request, BatchRequest) as wanted:
            alias = known_alias(wanted.alias, self._aliases)
            answers, origin = await self._ask(alias, to_queries(wanted.queries, self._limits))
            each = zip(answers.results, answers.exact, answers.by, strict=True)
            found = [_entry(*one, place) for place, one in enumerate(each)]
            return _json({**origin, "answers": found})

    async def _answer(self, wanted: SimilarRequest) -> Response:
        alias = known_alias(wanted.alias, self._aliases)
        answers, origin = await self._ask(alias, [to_query(wanted, self._limits)])
        result = answers.results[0]
        if isinstance(result, Refused):
            raise from_refusal(result)
        return _json({**origin, **_answered(result, answers.exact[0], answers.by[0])})

    async def _ask(self, alias: str, queries: Sequence[Query]) -> tuple[Answers, dict[str, Any]]:
        """The answers, and the values of `schemas.Origin` that every answer has."""
        start = time.perf_counter()
        try:
            answers = await self._batcher.ask(alias, queries)
        except Refused as refused:
            raise from_refusal(refused) from None
        model = answers.model
        if not all(isinstance(result, Refused) for result in answers.results):
            self._watching.answered(alias, model)
        return answers, {
            "version": str(model),
            "base": model.version,
            "records": model.total,
            "formed": answers.formed,
            "watermark": model.watermark,
            "alias": alias,
            "took_ms": round((time.perf_counter() - start) * 1e3, 3),
        }


def _from_parameters(request: Request) -> SimilarRequest:
    pairs = request.query_params.multi_items()
    for name, count in Counter(name for name, _ in pairs).items():
        if name not in ("id", "k", "key", "alias"):
            known = "id, k, key and alias are known"
            raise Problem(422, "unknown_field", "unknown parameter", name[:80], known)
        if count > 1:
            raise Problem(422, "bad_value", f"{name} is given {count} times", name, "give it once")
    try:
        return SimilarRequest.model_validate_strings(dict(pairs), strict=False)
    except ValidationError as error:
        raise from_validation(error) from None


def _entry(result: Sequence[Hit] | Refused, exact: bool, by: ByKey | None, place: int) -> dict[str, Any]:
    if isinstance(result, Refused):
        return {"error": from_refusal(result, f"queries[{place}].").body()}
    return _answered(result, exact, by)


def _answered(hits: Sequence[Hit], exact: bool, by: ByKey | None) -> dict[str, Any]:
    found = [{"id": hit.id, "score": hit.score} for hit in hits]
    told = (
        {} if by is None else {"key": {"name": by.key, "model": by.model, "why": by.why, "formed": by.formed}}
    )
    return {"results": found, "exact": exact, **told}


def _json(content: dict[str, Any]) -> Response:
    return Response(to_json(content), media_type=JSON)
