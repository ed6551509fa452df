"""Reading a request's body, bounded in size and time."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from daemon.serve.http.errors import Problem, from_validation
from daemon.serve.http.limits import Limits

AnyRequest = TypeVar("AnyRequest", bound=BaseModel)


async def read_model(request: Request, model: type[AnyRequest], limits: Limits) -> AnyRequest:
    """The body as `model`. Raises Problem 400, 408, 413, 415 or 422, naming the field."""
    body = await read_body(request, limits)
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise from_validation(error) from None


async def read_body(request: Request, limits: Limits) -> bytes:
    """The body's bytes. Raises Problem 408, 413 or 415."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem(
            415, "compressed", "the body is compressed", "Content-Encoding", "send it as it is", close=True
        )
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > limits.body_bytes:
        raise _too_large("Content-Length", limits)
    try:
        async with asyncio.timeout(limits.body_s):
            return await _collect(request, limits)
    except TimeoutError:
        message = f"the body was not complete after {limits.body_s:g} s"
        raise Problem(408, "slow_body", message, "body", "send it faster", close=True) from None
    except ClientDisconnect:
        raise Problem(400, "disconnected", "the body ended early", "body", "", close=True) from None


async def _collect(request: Request, limits: Limits) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limits.body_bytes:
            raise _too_large("body", limits)
    return bytes(body)


def _too_large(field: str, limits: Limits) -> Problem:
    message = f"the body is larger than {limits.body_bytes} bytes"
    return Problem(413, "body_too_large", message, field, "send less, or raise serve.body", close=True)
