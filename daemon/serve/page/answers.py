"""How the page's data is asked for and answered: parameters, JSON with an ETag, headers for browsers."""

from __future__ import annotations

import json
from hashlib import blake2b
from http import HTTPStatus
from typing import Any

from pydantic import ConfigDict
from starlette.requests import Request
from starlette.responses import Response

from daemon.serve.http import schemas
from daemon.serve.http.errors import JSON, Problem

LOOK_AGAIN_S = 2
POLICY = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_STATUS = {
    "unknown_version": HTTPStatus.NOT_FOUND,
    "unknown_object": HTTPStatus.NOT_FOUND,
    "not_serving": HTTPStatus.SERVICE_UNAVAILABLE,
    "busy": HTTPStatus.SERVICE_UNAVAILABLE,
}


class Asked(schemas.Request):
    """Parameters of a request for data; the page may send others, such as those of a later release."""

    model_config = ConfigDict(extra="ignore")


class CannotAnswer(Problem):
    """What the page asks for has no answer now: 404 and 503 by its code, else 422."""

    def __init__(self, code: str, message: str) -> None:
        status = _STATUS.get(code, HTTPStatus.UNPROCESSABLE_ENTITY)
        again = LOOK_AGAIN_S if status == HTTPStatus.SERVICE_UNAVAILABLE else 0
        super().__init__(status, code, message, retry_after=again)


def tag_of(body: bytes) -> str:
    """The ETag of a body."""
    return f'"{blake2b(body, digest_size=12).hexdigest()}"'


def answer(request: Request, body: bytes, content_type: str, tag: str | None = None) -> Response:
    """`body`, or 304 without it when the browser has it already."""
    tag = tag or tag_of(body)
    headers = {**HEADERS, "ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(body, media_type=content_type, headers=headers)


def json_of(value: Any) -> bytes:
    """`value` as JSON; numbers that JSON cannot carry are a bug."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "replace")


def answer_json(request: Request, value: Any, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """`value` as JSON, by `json_of`."""
    body = json_of(value)
    if status != HTTPStatus.OK:  # not yet what was asked for: never the same twice
        return Response(body, status_code=status, media_type=JSON, headers=HEADERS)
    return answer(request, body, JSON)
