"""`/v1/embeddings` and `/v1/models` in OpenAI's shape, `/v1/rerank` and `/v2/rerank` in Cohere's: texts in.

A model's name says what is wanted: `shop-query` or `shop-query@stable` embeds with the model that is
configured as `shop`, an upstream's or one in this process, and folds what comes, `shop-doc` passes its answer
on as it is. So whoever asked the upstream before changes a base URL and two names, and the index stays as it
is.

`/v1/fold` and `/v1/embed` make vectors for an index that is not ours, of objects that are vectors already.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from daemon.serve.http.errors import JSON, Problem, from_refusal
from daemon.serve.http.guard import EFFECTS, WRITES
from daemon.serve.http.limits import RequestBodies
from daemon.serve.http.offload import BoundedThreads
from daemon.serve.http.parts import Float32s, Parts, WantedVector
from daemon.serve.http.schemas import (
    EmbeddingsRequest,
    EmbedRequest,
    FoldRequest,
    GivenDocument,
    GivenObject,
    ListedModel,
    ListedModels,
    RerankRequest,
    RerankV2Request,
)
from daemon.serve.http.similar import known_alias, object_query, origin_of, require_few
from daemon.serve.http.texts import Side, TextEmbedder, written
from daemon.serve.query import AnsweringModel, Query, QueryError, VectorAnswers

VERSION = "Tripletd-Version"
"""The header that names the version by which an answer was made, such as 12 or 12+3400."""
_RERANK: Mapping[str, type[RerankRequest]] = {"1": RerankRequest, "2": RerankV2Request}
_FEW = 5
"""Of `embeddings.models`, those that are named to who asks for another one."""


@dataclass(frozen=True, slots=True)
class AskedModel:
    """What a model's name asks for. name: of what embeds. side: the ending. alias: who folds, None for the
    first."""

    name: str
    side: Side
    alias: str | None


def asked_model(name: str, models: Mapping[str, str], side: Side | None) -> AskedModel:
    """Read `NAME-query`, `NAME-query@ALIAS` and `NAME-doc`; with `side`, `NAME` alone means that one.

    models: NAME -> the model that embeds, empty where names are the upstream's own. Raises Problem 404.
    """
    plain, at, alias = name.partition("@")
    wanted: Side | None = side
    endings: tuple[Side, Side] = ("query", "doc")
    for ending in endings:
        if plain.endswith(f"-{ending}"):
            plain, wanted = plain.removesuffix(f"-{ending}"), ending
            break
    known = models.get(plain) if models else plain
    if wanted is None or not known or (at and wanted == "doc") or (side and wanted != side):
        there = [*models][:_FEW] or ["NAME"]
        if side is None:
            there = [f"{one}-{ending}" for one in there for ending in endings]
        message = f"there is no such model here; there {'are' if len(there) > 1 else 'is'} {', '.join(there)}"
        if len(models) > _FEW:
            message += f" and those of {len(models) - _FEW} more"
        remedy = "use one of these names, for queries also with @ALIAS; GET /v1/models lists all of them"
        if not models:
            message = f"there is no such model here: a model is called {' or '.join(there)}"
            remedy = "put the name of a model of the upstream for NAME"
        raise Problem(404, "unknown_model", message, "model", remedy)
    return AskedModel(known, wanted, alias if at else None)


def model_names(models: Mapping[str, str], aliases: Sequence[str]) -> list[str]:
    """What may be asked for of each NAME: its queries, by each alias too, its documents, and a rank by it."""
    endings = ("-query", *(f"-query@{alias}" for alias in aliases), "-doc", "")
    return [name + ending for name in models for ending in endings]


class EmbeddingEndpoints:
    """Texts in; vectors or an order of documents out.

    texts: None where nothing embeds: then nothing is answered.
    """

    def __init__(self, parts: Parts, texts: TextEmbedder | None, bodies: RequestBodies) -> None:
        self._texts, self._models, self._bodies = texts, parts.models, bodies
        self._maker, self._answered = parts.vectors, parts.answered
        self._aliases, self._limits = parts.aliases, parts.limits
        self._threads = BoundedThreads(2, parts.limits.answer_s, parts.limits.queue)
        self._began = int(time.time())

    async def models(self, request: Request) -> Response:
        """GET /v1/models"""
        names = [] if self._texts is None else model_names(self._models, self._aliases)
        listed = ListedModels(data=[ListedModel(id=name, created=self._began) for name in names])
        return Response(listed.model_dump_json(), media_type=JSON)

    async def model(self, request: Request) -> Response:
        """GET /v1/models/{model}"""
        name = request.path_params["model"]
        if f"POST {request.url.path}" in EFFECTS[WRITES]:
            raise HTTPException(405, headers={"Allow": "POST"})
        self._configured()
        if name not in model_names(self._models, self._aliases):  # else one of the upstream's own
            known_alias(asked_model(name, self._models, None).alias, self._aliases, "model")
        listed = ListedModel(id=name, created=self._began)
        return Response(listed.model_dump_json(), media_type=JSON)

    async def embeddings(self, request: Request) -> Response:
        """POST /v1/embeddings"""
        async with self._bodies.read(request, EmbeddingsRequest) as wanted:
            texts = self._configured()
            asked = asked_model(wanted.model, self._models, None)
            body = wanted.model_dump(exclude_unset=True) | {"model": asked.name}
            if asked.side == "doc":
                return await texts.documents(body, wanted.count)
            alias = known_alias(asked.alias, self._aliases, "model")
            require_few("input", wanted.count, self._limits)
            embedded = await texts.vectors(body, ["query"] * wanted.count)
        made = embedded.told
        model, rows = await self._folded(alias, embedded.vectors, asked.name, wanted.dimensions)
        for place, row in zip(made["data"], rows, strict=True):
            place["embedding"] = written(row, wanted.encoding_format)
        made["model"] = wanted.model
        return Response(to_json(made), headers={VERSION: str(model)}, media_type=JSON)

    async def _folded(
        self, alias: str, vectors: Sequence[Float32s], name: str, dimensions: int | None
    ) -> tuple[AnsweringModel, Sequence[Float32s]]:
        """Vectors of queries folded, and by which model. Raises Problem."""
        few = self._maker.fold_few(alias, vectors)
        if few is None:
            queries = [Query(only=vector) for vector in vectors]
            made = await self._threads.run(lambda: self._maker.vectors(alias, queries, "folded"))
            for one in made.results:
                if isinstance(one, QueryError):
                    raise self._error(one, name, dimensions)
            few = made.model, [np.array(one, "<f4") for one in made.results]
        self._answered(alias, few[0])
        return few

    async def rerank(self, request: Request) -> Response:
        """POST /v1/rerank and POST /v2/rerank"""
        version = request.url.path[2]
        async with self._bodies.read(request, _RERANK[version]) as wanted:
            embedder = self._configured()
            asked = asked_model(wanted.model, self._models, "query")
            alias = known_alias(asked.alias, self._aliases, "model")
            if len(wanted.documents) > self._limits.k_max:
                message = f"{len(wanted.documents)} documents, at most {self._limits.k_max} are ranked"
                raise Problem(422, "too_many", message, "documents", "send fewer, or raise serve.k_max")
            documents = [GivenDocument.of(one) for one in wanted.documents]
            texts = [wanted.query, *(one.text for one in documents if one.text is not None)]
            sides: list[Side] = ["query"]
            sides += ["doc"] * (len(texts) - 1)
            embedded = await embedder.vectors({"model": asked.name, "input": texts}, sides)
        query, *rest = (Query(only=vector) for vector in embedded.vectors)
        given = iter(rest)
        asking = [Query(id=one.id) if one.text is None else next(given) for one in documents]
        try:
            scored = await self._threads.run(lambda: self._maker.scores(alias, query, asking))
        except QueryError as refused:
            raise self._error(refused, asked.name) from None
        scores = list[float]()
        for place, one in enumerate(scored.results):
            if isinstance(one, QueryError):
                raise self._error(one, asked.name, prefix=f"documents[{place}].")
            scores.append(one)
        self._answered(alias, scored.model)
        order = sorted(range(len(scores)), key=lambda place: (-scores[place], place))
        results: list[dict[str, Any]] = []
        for place in order[: wanted.top_n]:
            hit: dict[str, Any] = {"index": place, "relevance_score": scores[place]}
            if wanted.return_documents:
                hit["document"] = documents[place].model_dump(exclude_none=True)
            results.append(hit)
        meta = {"api_version": {"version": version}, "ordered_by": scored.ordered_by}
        told: dict[str, Any] = {"id": str(uuid.uuid4()), "model": wanted.model, "results": results}
        told |= {"usage": embedded.told.get("usage"), "meta": meta}
        return Response(to_json(told), headers={VERSION: str(scored.model)}, media_type=JSON)

    def _configured(self) -> TextEmbedder:
        if self._texts is None:
            message = "texts are not embedded here"
            remedy = "set embeddings.upstream or embeddings.folder, and restart serve"
            raise Problem(404, "not_configured", message, None, remedy)
        return self._texts

    def _error(self, refused: QueryError, model: str, asked: int | None = None, prefix: str = "") -> Problem:
        """Its error; a vector of another size is the client's fault only where it asked for that size."""
        if refused.code != "wrong_dim":
            return from_refusal(refused, prefix)
        message = f"a vector of the model {model} {refused.message}"
        if asked is None:
            return self._configured().another_size(message)
        return Problem(422, refused.code, message, "dimensions", "ask for as many as the view has")


class VectorEndpoints:
    """Objects in, their vectors out."""

    def __init__(self, parts: Parts, bodies: RequestBodies) -> None:
        self._maker, self._answered, self._bodies = parts.vectors, parts.answered, bodies
        self._aliases, self._limits = parts.aliases, parts.limits
        self._threads = BoundedThreads(2, parts.limits.answer_s, parts.limits.queue)  # one may decompose

    async def fold(self, request: Request) -> Response:
        """POST /v1/fold"""
        async with self._bodies.read(request, FoldRequest) as wanted:
            made, told = await self._made(wanted.alias, "queries", wanted.queries, wanted.mode)
        told |= {"mode": wanted.mode, "views": made.views}
        told |= {} if made.top in (None, 1) else {"rerank": made.top}
        return Response(to_json(told), media_type=JSON)

    async def embed(self, request: Request) -> Response:
        """POST /v1/embed"""
        async with self._bodies.read(request, EmbedRequest) as wanted:
            made, told = await self._made(wanted.alias, "objects", wanted.objects, "document")
        return Response(to_json({**told, "symmetric": made.symmetric}), media_type=JSON)

    async def _made(
        self, name: str | None, field: str, given: Sequence[GivenObject], wanted: WantedVector
    ) -> tuple[VectorAnswers, dict[str, Any]]:
        start = time.perf_counter()
        alias = known_alias(name, self._aliases)
        require_few(field, len(given), self._limits)
        queries = [object_query(one) for one in given]
        made = await self._threads.run(lambda: self._maker.vectors(alias, queries, wanted))
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
