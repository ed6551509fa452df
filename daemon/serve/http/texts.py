"""Texts to vectors, in OpenAI's shape: by an upstream that is asked over HTTP, or a model in this process."""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic_core import from_json, to_json
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from daemon.serve.http.errors import JSON, Problem
from daemon.serve.http.limits import HttpLimits, HttpMetrics
from daemon.serve.http.offload import BoundedThreads
from daemon.serve.http.upstream import Upstream, UpstreamAnswer

Side: TypeAlias = Literal["query", "doc"]
"""What a text is."""
Vector: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float32]]
_PASSED_ON = ("content-type", "content-encoding", "retry-after", "retry-after-ms", "x-request-id")
_RATES = "x-ratelimit-"
_REFUSED = (400, 422)
"""What an upstream answers to a request that it does not take."""


@dataclass(frozen=True, slots=True)
class EmbeddedTexts:
    """vectors: of the texts, in their order. told: OpenAI's answer with them, its `data` in that order."""

    vectors: Sequence[Vector]
    told: dict[str, Any]


class TextEmbedder(Protocol):
    """Makes vectors of the texts of a body in OpenAI's shape. Belongs to the event loop."""

    async def documents(self, body: Mapping[str, Any]) -> Response:
        """Answer with the vectors of documents. Raises Problem."""
        ...

    async def vectors(self, body: Mapping[str, Any], sides: Sequence[Side]) -> EmbeddedTexts | Response:
        """The vectors of texts of these sides, or an answer that says why there are none. Raises Problem."""
        ...


class UpstreamTexts:
    """Texts go to an upstream, whose faults are passed on as they come.

    Vectors that are folded or compared here are asked for in base64, whatever the client wants: the same
    float32 in a quarter of the bytes, read in a fifth of the time. Not so of an upstream that refuses it.
    """

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._knows_base64 = True

    async def documents(self, body: Mapping[str, Any]) -> Response:
        """As `TextEmbedder`: the upstream's answer, byte for byte."""
        return _PassedOn(await self._upstream.post("/embeddings", to_json(body)))

    async def vectors(self, body: Mapping[str, Any], sides: Sequence[Side]) -> EmbeddedTexts | Response:
        """As `TextEmbedder`; an upstream knows no sides."""
        answer = await self._asked(body)
        if answer.status != 200:
            return _PassedOn(answer)
        async with answer:
            raw = await answer.read()
        try:
            made = from_json(raw)
            places = sorted(made["data"], key=lambda one: one.get("index", 0))
            vectors = [_numbers(one["embedding"]) for one in places]
        except (KeyError, TypeError, ValueError, AttributeError, binascii.Error):
            raise _malformed("is not of OpenAI's shape") from None
        if len(vectors) != len(sides):
            raise _malformed(f"has {len(vectors)} vectors for {len(sides)} texts")
        made["data"] = places
        return EmbeddedTexts(vectors, made)

    async def _asked(self, body: Mapping[str, Any]) -> UpstreamAnswer:
        """The answer, in base64 where the upstream knows it. Raises Problem."""
        given = to_json(body)
        if not self._knows_base64 or body.get("encoding_format") == "base64":
            return await self._upstream.post("/embeddings", given)
        answer = await self._upstream.post("/embeddings", to_json({**body, "encoding_format": "base64"}))
        if answer.status not in _REFUSED:
            return answer
        async with answer:
            await answer.read()
        answer = await self._upstream.post("/embeddings", given)
        self._knows_base64 = answer.status != 200  # else it was not the request that it refused
        return answer


class _PassedOn(Response):
    """The upstream's answer, its status, its body as it comes, and those of its fields that concern it."""

    def __init__(self, answer: UpstreamAnswer) -> None:
        super().__init__(status_code=answer.status)
        kept = {
            name: value
            for name, value in answer.headers.items()
            if name in _PASSED_ON or name.startswith(_RATES)
        }
        self.raw_headers = [(name.encode(), value.encode("latin-1")) for name, value in kept.items()]
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._answer:
            status, headers = self.status_code, self.raw_headers
            await send({"type": "http.response.start", "status": status, "headers": headers})
            async for piece in self._answer.chunks():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


def _numbers(given: Any) -> Vector:
    """A vector, however it was written. Raises ValueError or TypeError for what is none."""
    if isinstance(given, str):
        return np.frombuffer(base64.b64decode(given, validate=True), "<f4")
    if not isinstance(given, list) or not {int, float}.issuperset(map(type, given)):
        raise ValueError("not a list of numbers")
    return np.array(given, np.float32)


def _malformed(how: str) -> Problem:
    message = f"the upstream's answer {how}"
    remedy = "look whether embeddings.upstream is the base of a route /embeddings of OpenAI's shape"
    return Problem(502, "upstream_malformed", message, None, remedy)


def written(row: Sequence[float] | Vector, encoding: str) -> list[float] | str:
    """A vector as an answer has it: numbers, or base64 of its little-endian float32."""
    if encoding == "base64":
        return base64.b64encode(np.asarray(row, "<f4").tobytes()).decode()
    return row.tolist() if isinstance(row, np.ndarray) else list(row)


class TokenisedTexts(Protocol):
    """Texts as a model reads them. total: how many tokens there are."""

    @property
    def total(self) -> int: ...

    def batches(self) -> Sequence[Sequence[int]]:
        """The texts in pieces that one run of the model takes, by their places."""
        ...


class EmbeddingModel(Protocol):
    """A model in this process. dim: of its vectors. Any thread."""

    @property
    def dim(self) -> int: ...

    def tokens(self, texts: Sequence[str], side: Side) -> Any:
        """`TokenisedTexts` of texts of a side."""
        ...

    def embed(self, tokens: Any, rows: Sequence[int]) -> npt.NDArray[np.float32]:
        """The vectors of one of its batches, float32 [rows, dim]."""
        ...


class LocalTexts:
    """Texts go to a model in this process, one batch of one request at a time, off the loop.

    timeout_s: for all of a request. A request that is given up leaves the model after its batch.
    """

    def __init__(
        self, model: EmbeddingModel, timeout_s: float, limits: HttpLimits, metrics: HttpMetrics
    ) -> None:
        self._model, self._request_s, self._most = model, timeout_s, limits.batch_max
        self._metrics = metrics
        self._threads = BoundedThreads(1, timeout_s, limits.queue)

    async def documents(self, body: Mapping[str, Any]) -> Response:
        """As `TextEmbedder`."""
        count = 1 if isinstance(body["input"], str) else len(body["input"])
        made = await self.vectors(body, ["doc"] * count)
        encoding = body.get("encoding_format", "float")
        for place, row in zip(made.told["data"], made.vectors, strict=True):
            place["embedding"] = written(row, encoding)
        return Response(to_json(made.told), media_type=JSON)

    async def vectors(self, body: Mapping[str, Any], sides: Sequence[Side]) -> EmbeddedTexts:
        """As `TextEmbedder`. Raises Problem: 422 for what the model does not take, 503 where it takes longer
        than it may."""
        texts, start = self._texts(body), time.perf_counter()
        try:
            async with asyncio.timeout(self._request_s):
                vectors, total = await self._embedded(texts, sides)
        except TimeoutError:
            message = f"the model did not finish {len(texts)} texts within {self._request_s:g} s"
            remedy = "ask for fewer at a time; embeddings.timeout is the limit"
            raise Problem(504, "model_slow", message, "input", remedy) from None
        self._metrics.text_model.observe(time.perf_counter() - start)
        told = {
            "object": "list",
            "data": [
                {"object": "embedding", "index": place, "embedding": None} for place in range(len(texts))
            ],
            "model": body["model"],
            "usage": {"prompt_tokens": total, "total_tokens": total},
        }
        return EmbeddedTexts(vectors, told)

    def _texts(self, body: Mapping[str, Any]) -> list[str]:
        given = body["input"]
        texts = [given] if isinstance(given, str) else [*given]
        if not all(isinstance(one, str) for one in texts):
            message, remedy = "tokens are no texts for the model of this server", "send texts"
            raise Problem(422, "no_texts", message, "input", remedy)
        if len(texts) > self._most:
            message = f"{len(texts)} texts, at most {self._most} are embedded at once"
            raise Problem(422, "too_many", message, "input", "send fewer, or raise serve.batch_max")
        if body.get("dimensions") not in (None, self._model.dim):
            message = f"the model of this server has {self._model.dim} dimensions"
            raise Problem(422, "wrong_dim", message, "dimensions", "leave the field out")
        return texts

    async def _embedded(self, texts: Sequence[str], sides: Sequence[Side]) -> tuple[list[Vector], int]:
        """The vectors in the order of the texts, and how many tokens these have."""
        found: dict[int, Vector] = {}
        total = 0
        for side in dict.fromkeys(sides):
            places = [place for place, one in enumerate(sides) if one == side]
            asked = [texts[place] for place in places]
            tokens: TokenisedTexts = await self._threads.run(partial(self._model.tokens, asked, side))
            total += tokens.total
            for rows in tokens.batches():
                made = await self._threads.run(partial(self._model.embed, tokens, rows))
                found |= {places[row]: one for row, one in zip(rows, made, strict=True)}
        return [found[place] for place in range(len(texts))], total
