"""Reading the body of a request: bounded in size and time, alone and together with all others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from daemon.serve.http.errors import RETRY_AFTER_S, Problem, from_validation
from daemon.serve.http.metrics import HttpLimits, HttpMetrics

AnyRequest = TypeVar("AnyRequest", bound=BaseModel)


class RequestBodies:
    """All bodies that are being read or worked on; what they became takes some 16 times their size."""

    def __init__(self, limits: HttpLimits, metrics: HttpMetrics) -> None:
        self._limits = limits
        self._held = 0
        metrics.bodies.set_function(lambda: self._held)

    @asynccontextmanager
    async def read(self, request: Request, model: type[AnyRequest]) -> AsyncIterator[AnyRequest]:
        """The body as `model`; it counts as held until the block ends.

        Raises Problem 400, 408, 413, 415, 422 or 503, naming the field.
        """
        self._look_at_header(request)
        body = bytearray()
        try:
            try:
                async with asyncio.timeout(self._limits.body_s):
                    await self._collect(request, body)
            except TimeoutError:
                raise _slow(self._limits) from None
            except ClientDisconnect:
                raise Problem(400, "disconnected", "the body ended early", "body", close=True) from None
            yield _parse(bytes(body), model)
        finally:
            self._held -= len(body)

    def _look_at_header(self, request: Request) -> None:
        coding = request.headers.get("content-encoding", "identity")
        if coding.lower() != "identity":
            field = "Content-Encoding"
            raise Problem(415, "compressed", "the body is compressed", field, "send it as it is", close=True)
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > self._limits.body_bytes:
            raise _too_large("Content-Length", self._limits)

    async def _collect(self, request: Request, body: bytearray) -> None:
        async for chunk in request.stream():
            body += chunk
            self._held += len(chunk)
            if len(body) > self._limits.body_bytes:
                raise _too_large("body", self._limits)
            if self._held > self._limits.bodies_bytes and self._held > len(body):
                message = "the bodies of all requests together are too large"
                remedy = "come again in a moment"
                raise Problem(
                    503, "bodies_too_large", message, "body", remedy, retry_after=RETRY_AFTER_S, close=True
                )


def _parse(body: bytes, model: type[AnyRequest]) -> AnyRequest:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise from_validation(error) from None


def _slow(limits: HttpLimits) -> Problem:
    message = f"the body was not complete after {limits.body_s:g} s"
    return Problem(408, "slow_body", message, "body", "send it faster", close=True)


def _too_large(field: str, limits: HttpLimits) -> Problem:
    message = f"the body is larger than {limits.body_bytes} bytes"
    return Problem(413, "body_too_large", message, field, "send less, or raise serve.body", close=True)
