"""One shape for everything that goes wrong: {"error": {"code", "message", "field", "remedy"}}."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from starlette.responses import Response

from daemon.exits import EX_CANTCREAT, EX_DATAERR, EX_UNAVAILABLE, as_user_error
from daemon.models.decide import MoveRefused as NotMoved
from daemon.schema_errors import sentence
from daemon.serve.query import QueryError

JSON = "application/json"
RETRY_AFTER_S = 1
DENSE, SPARSE, NUMBER, NAME = MARKS = ("<dense>", "<sparse>", "<number>", "<name>")
"""In the places of errors, which form a value was read as; not part of a field's name."""
_LONGEST = 200
_MOST_ERRORS = 1000
_SHAPES = {"missing": "missing_field", "extra_forbidden": "unknown_field"}
_REMEDIES = {
    "missing_field": "add the field",
    "unknown_field": "leave the field out, or see its spelling in /v1/openapi.json",
    "bad_json": "send one JSON object in UTF-8",
}


class Problem(Exception):
    """An answer other than success.

    Args:
        status: of HTTP, 400 and above.
        code: short name for programs.
        message: what was found, for people.
        field: its place in the request, such as `queries[3].x`; None when it concerns no one field.
        remedy: what to do about it.
        retry_after: seconds after which to try again (a Retry-After header); 0 sends none.
        close: whether the connection ends with this answer, because the rest of the request is not read.
        headers: more of them.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        field: str | None = None,
        remedy: str = "",
        *,
        retry_after: int = 0,
        close: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.field, self.remedy = status, code, message, field, remedy
        self.headers = dict(headers or {})
        if retry_after:
            self.headers["Retry-After"] = str(retry_after)
        if close:
            self.headers["Connection"] = "close"

    def body(self) -> dict[str, Any]:
        """The values of `schemas.ErrorBody`."""
        return {"code": self.code, "message": self.message, "field": self.field, "remedy": self.remedy}

    def content(self) -> bytes:
        """The body of the answer, JSON."""
        return json.dumps({"error": self.body()}, ensure_ascii=False).encode("utf-8", "replace")

    def response(self, headers: Mapping[str, str] | None = None) -> Response:
        """As an HTTP response, with these headers as well."""
        sent = {**self.headers, **(headers or {})}
        return Response(self.content(), self.status, headers=sent, media_type=JSON)


def from_refusal(refused: QueryError, prefix: str = "") -> Problem:
    """What retrieval would not answer; `prefix` such as "queries[3]." goes before its field."""
    field = f"{prefix}{refused.field}".rstrip(".") or None
    return Problem(
        refused.status,
        refused.code,
        refused.message,
        field,
        refused.remedy,
        retry_after=RETRY_AFTER_S if refused.status == 503 else 0,
    )


def from_failure(failure: Exception) -> Problem | None:
    """A failure of the store, or of a change to it; None for a bug. 404 for a version that is not there, 503
    for a store that does not answer or is busy, else 409, the state of things is against it.
    """
    error = as_user_error(failure)
    if error is None:
        return None
    if isinstance(error, NotMoved):
        status = {"no_such_version": 404, "busy": 503}.get(error.reason, 409)
        again = RETRY_AFTER_S if status == 503 else 0
        return Problem(status, error.reason, error.message, error.field, error.remedy, retry_after=again)
    if error.code in (EX_UNAVAILABLE, EX_CANTCREAT, EX_DATAERR):
        return Problem(503, "store_unavailable", error.message, None, error.remedy, retry_after=RETRY_AFTER_S)
    return Problem(409, "refused", error.message, None, error.remedy)


def from_validation(error: ValidationError) -> Problem:
    """The first thing that is wrong with a request, with the field's name; no value of it is repeated."""
    if (
        error.error_count() > _MOST_ERRORS
    ):  # an object of many unknown fields: listing them would take seconds
        message = f"{error.error_count()} things are wrong"
        return Problem(422, "bad_value", message, "body", "see /v1/openapi.json for what is expected")
    first = error.errors(include_url=False, include_input=False)[0]
    kind, message = first["type"], sentence(first)
    if kind == "json_invalid":
        return Problem(400, "bad_json", message, "body", _REMEDIES["bad_json"])
    code = _SHAPES.get(kind, "bad_value")
    field = field_path(first["loc"]) or "body"
    return Problem(422, code, f"{field}: {message}", field, _REMEDIES.get(code, "correct the field"))


def field_path(place: Sequence[int | str]) -> str:
    """`queries[3].x[7]` for ("queries", 3, "x", "<dense>", 7)."""
    path = ""
    for part in place:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part and part not in (*MARKS, "[key]"):
            path += f".{part}" if path else part
    return path if len(path) <= _LONGEST else path[:_LONGEST] + "..."
