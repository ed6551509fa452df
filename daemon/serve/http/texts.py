"""Texts to vectors, in OpenAI's shape: by an upstream that is asked over HTTP, or a model in this process."""

from __future__ import annotations

import asyncio
import base64
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic_core import to_json
from starlette.responses import Response

from daemon.serve.http.errors import JSON, Problem
from daemon.serve.http.limits import HttpLimits, HttpMetrics
from daemon.serve.http.offload import BoundedThreads
from daemon.serve.http.upstream import Upstream
from streams.foreign_http import ForeignAnswer, ForeignError

Side: TypeAlias = Literal["query", "doc"]
"""What a text is."""
Vector: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float32]]
MOST_ON_LOOP, READ_S = 1 << 20, 30.0
"""Bytes of an upstream's answer that are read at once; the others are read one after the other in a thread,
each within so many seconds, its turn included."""


@dataclass(frozen=True, slots=True)
class EmbeddedTexts:
    """vectors: of the texts, in their order. told: `answer_of` them, its `data` in that order."""

    vectors: Sequence[Vector]
    told: dict[str, Any]


class TextEmbedder(Protocol):
    """Makes vectors of the texts of a body in OpenAI's shape. Belongs to the event loop."""

    async def documents(self, body: Mapping[str, Any], count: int) -> Response:
        """Answer with the vectors of so many documents. Raises Problem."""
        ...

    async def vectors(self, body: Mapping[str, Any], sides: Sequence[Side]) -> EmbeddedTexts:
        """The vectors of texts of these sides. Raises Problem."""
        ...

    def another_size(self, message: str) -> Problem:
        """The error of vectors whose size nobody asked for, and which fit no model here."""


class UpstreamTexts:
    """Texts go to an upstream; an answer that is not one vector of finite numbers for each is no answer.

    Vectors that are folded or compared here are asked for in base64, whatever the client wants: the same
    float32 in a quarter of the bytes, read in a fifth of the time. Not so of an upstream that refuses it.
    """

    def __init__(self, upstream: Upstream) -> None:
        self._upstream, self._threads = upstream, BoundedThreads(1, READ_S)
        self._knows_base64 = True

    async def documents(self, body: Mapping[str, Any], count: int) -> Response:
        """As `TextEmbedder`: the upstream's answer, byte for byte."""
        answer = await self._upstream.embeddings(to_json(body))
        await self._read(answer, count, body)
        return Response(answer.body, media_type=JSON)

    async def vectors(self, body: Mapping[str, Any], sides: Sequence[Side]) -> EmbeddedTexts:
        """As `TextEmbedder`; an upstream knows no sides."""
        return await self._read(await self._asked(body), len(sides), body)

    def another_size(self, message: str) -> Problem:
        """As `TextEmbedder`."""
        return self._upstream.unusable("size", message)

    async def _read(self, answer: ForeignAnswer, count: int, body: Mapping[str, Any]) -> EmbeddedTexts:
        """What an answer says, of its other fields those that are known. Raises Problem."""
        read = partial(vectors_of, answer, count, body.get("dimensions"))
        try:
            vectors, usage = await self._threads.run(read) if len(answer.body) > MOST_ON_LOOP else read()
        except ForeignError as error:
            raise self._upstream.unusable(error.reason, str(error)) from None
        return EmbeddedTexts(vectors, answer_of(count, body["model"], usage))

    async def _asked(self, body: Mapping[str, Any]) -> ForeignAnswer:
        """The answer, in base64 where the upstream knows it. Raises Problem."""
        given = to_json(body)
        if not self._knows_base64 or body.get("encoding_format") == "base64":
            return await self._upstream.embeddings(given)
        in_base64 = to_json({**body, "encoding_format": "base64"})
        answer = await self._upstream.embeddings(in_base64, last=False)
        if answer.status == 200:
            return answer
        answer = await self._upstream.embeddings(given)
        self._knows_base64 = False  # it was not the request that it refused
        return answer


_NUMBERS, _TAKEN = re.compile(rb'"embedding"\s*:\s*(\[[^][{}"]*\])'), secrets.token_hex()
"""Numbers of a text, as JSON; and how the names begin that stand in their stead, which no upstream can know.
Read text by text they take little memory, and other threads have their turn in between."""


def vectors_of(
    answer: ForeignAnswer, count: int, dimensions: int | None = None
) -> tuple[list[Vector], dict[str, int]]:
    """The vectors of so many texts in their order, all of one size, and the tokens of all. dimensions: their
    size where it was asked for. Raises ForeignError, also for `size`."""
    rows: dict[str, Vector] = {}
    whole, rest, end = memoryview(answer.body), list[bytes | memoryview](), 0
    try:
        for numbers in islice(_NUMBERS.finditer(answer.body), count):
            rows[name := f"{_TAKEN}{len(rows)}"] = _numbers(replace(answer, body=numbers[1]).json(), rows)
            rest += [whole[end : numbers.start(1)], f'"{name}"'.encode()]
            end = numbers.end(1)
        made = replace(answer, body=b"".join([*rest, whole[end:]])).json()
        order = sorted((one.get("index", place), place) for place, one in enumerate(made["data"]))
        vectors = [_numbers(made["data"][place]["embedding"], rows) for _, place in order]
        usage = {name: _tokens(made.get("usage"), name) for name in ("prompt_tokens", "total_tokens")}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise ForeignError("malformed", "its answer is not of OpenAI's shape") from None
    if [index for index, _ in order] != list(range(count)):
        raise ForeignError("malformed", f"it gives {len(vectors)} vectors for {count} texts")
    sizes = {len(one) for one in vectors} | {dimensions or len(vectors[0])}
    if len(sizes) > 1 or 0 in sizes:
        raise ForeignError(
            "size", f"it gives vectors of {len(vectors[0])} numbers among sizes {sorted(sizes)}"
        )
    return vectors, usage


def answer_of(count: int, model: str, usage: Mapping[str, int]) -> dict[str, Any]:
    """OpenAI's answer, without the `embedding` of each."""
    data = [{"object": "embedding", "index": place} for place in range(count)]
    return {"object": "list", "data": data, "model": model, "usage": usage}


def _tokens(usage: Any, name: str) -> int:
    given = usage.get(name) if isinstance(usage, dict) else None
    return given if type(given) is int and 0 <= given < 1 << 53 else 0


def _numbers(given: Any, rows: Mapping[str, Vector]) -> Vector:
    """A vector, however it was written, or that of `rows` which is meant. Raises ValueError, TypeError or
    OverflowError for what is none."""
    if isinstance(given, str):
        found = rows[given] if given in rows else np.frombuffer(base64.b64decode(given, validate=True), "<f4")
    elif isinstance(given, list) and {int, float}.issuperset(map(type, given)):
        with np.errstate(over="ignore"):
            found = np.array(given, np.float32)
    else:
        raise TypeError("not a list of numbers")
    if not np.isfinite(found).all():
        raise ValueError("not finite")
    return found


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


class EmbeddingModel(Protocol):
    """A model in this process. dim: of its vectors. Any thread."""

    @property
    def dim(self) -> int: ...

    def tokens(self, texts: Sequence[str], side: Side) -> Any:
        """`TokenisedTexts` of texts of a side."""

    def embed(self, tokens: Any, rows: Sequence[int]) -> npt.NDArray[np.float32]:
        """The vectors of one of its batches, float32 [rows, dim]."""


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

    async def documents(self, body: Mapping[str, Any], count: int) -> Response:
        """As `TextEmbedder`."""
        made = await self.vectors(body, ["doc"] * count)
        encoding = body.get("encoding_format", "float")
        for place, row in zip(made.told["data"], made.vectors, strict=True):
            place["embedding"] = written(row, encoding)
        return Response(to_json(made.told), media_type=JSON)

    def another_size(self, message: str) -> Problem:
        """As `TextEmbedder`."""
        remedy = "the operator of this server has to set embeddings.folder to the model of the catalog"
        return Problem(502, "model_size", message, None, remedy)

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
        usage = {"prompt_tokens": total, "total_tokens": total}
        return EmbeddedTexts(vectors, answer_of(len(texts), body["model"], usage))

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
