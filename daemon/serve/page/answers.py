"""How the page's data is answered: JSON with an ETag, errors with a code, headers for browsers."""

from __future__ import annotations

import json
from hashlib import blake2b
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

RETRY_AFTER_S = "2"
POLICY = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def tag_of(body: bytes) -> str:
    """The ETag of a body."""
    return f'"{blake2b(body, digest_size=12).hexdigest()}"'


def answer(request: Request, body: bytes, content_type: str, tag: str | None = None) -> Response:
    """`body`, or 304 without it when the asker has it already."""
    tag = tag or tag_of(body)
    headers = {**HEADERS, "ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(body, media_type=content_type, headers=headers)


def json_of(value: Any) -> bytes:
    """`value` as JSON; numbers that JSON cannot carry are a bug."""
    told = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return told.encode("utf-8", "replace")


def answer_json(request: Request, value: Any, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """`value` as JSON, by `json_of`."""
    body = json_of(value)
    if status != HTTPStatus.OK:  # not yet what was asked for: never the same twice
        return Response(body, status_code=status, media_type="application/json", headers=HEADERS)
    return answer(request, body, "application/json")


def refuse(status: HTTPStatus, code: str, message: str, field: str = "", remedy: str = "") -> Response:
    """`{"error": {code, message, field, remedy}}`; with 503 when to come again."""
    told = {"code": code, "message": message, "field": field, "remedy": remedy}
    body = json.dumps({"error": told}, ensure_ascii=False).encode("utf-8", "replace")
    later = {"Retry-After": RETRY_AFTER_S} if status == HTTPStatus.SERVICE_UNAVAILABLE else {}
    return Response(body, status_code=status, media_type="application/json", headers={**HEADERS, **later})
