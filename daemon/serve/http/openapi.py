"""The OpenAPI document, made from the models that check and write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from daemon.serve.http import schemas
from daemon.serve.http import schemas as changes
from daemon.serve.http.errors import JSON
from daemon.serve.http.metrics import HttpLimits
from daemon.telemetry.build import version

_PLACE = "#/components/schemas/{model}"
_TEXT = {"text/plain": {"schema": {"type": "string"}}}
_TOKEN = "bearer"  # noqa: S105 - the name of the scheme


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. `body`: model of the request's body. `errors`: statuses it may answer with."""

    method: str
    path: str
    summary: str
    answer: type[BaseModel] | None
    body: type[BaseModel] | None = None
    errors: tuple[int, ...] = ()
    token: bool = False


_ANY = (400, 408, 421, 431, 500, 503)
"""What may be said before it is looked at what is asked for; /livez and its like know no 421."""
_ASKING = (*_ANY, 404, 413, 415, 422)
_CHANGING = (*_ASKING, 401, 403, 409)
OPERATIONS = (
    Operation("get", "/v1/similar", "Objects nearest to an object", schemas.SimilarAnswer, None, _ASKING),
    Operation(
        "post",
        "/v1/similar",
        "Objects nearest to an object or to vectors",
        schemas.SimilarAnswer,
        schemas.SimilarRequest,
        _ASKING,
    ),
    Operation(
        "post",
        "/v1/similar/batch",
        "Several queries, answered by one model",
        schemas.BatchAnswer,
        schemas.BatchRequest,
        _ASKING,
    ),
    Operation("get", "/v1/versions", "What is served, what is kept", schemas.Versions, None, _ANY),
    Operation("get", "/v1/openapi.json", "This document", None, None, _ANY),
    Operation(
        "post",
        "/v1/models/promote",
        "Point a name at a version",
        changes.Moved,
        changes.PromoteRequest,
        _CHANGING,
        token=True,
    ),
    Operation(
        "post",
        "/v1/models/rollback",
        "Point a name back",
        changes.Moved,
        changes.RollbackRequest,
        _CHANGING,
        token=True,
    ),
    Operation(
        "post",
        "/v1/models/pin",
        "Name a version so that it is kept",
        changes.Moved,
        changes.PinRequest,
        _CHANGING,
        token=True,
    ),
    Operation(
        "post",
        "/v1/models/gc",
        "Delete versions that no rule keeps",
        changes.Collected,
        changes.GcRequest,
        _CHANGING,
        token=True,
    ),
)
_PARAMETERS = (
    ("id", {"type": "string", "minLength": 1}, "an object of the catalog", True),
    ("k", {"type": "integer", "minimum": 1, "default": 10}, "most results", False),
    ("key", {"type": "string", "minLength": 1}, "whose model answers, where one is learned per key", False),
    ("alias", {"type": "string"}, "which model answers", False),
)
_PROBES = (
    ("/livez", "Whether no thread is stuck"),
    ("/readyz", "Whether answers can be given"),
    ("/startupz", "Whether start-up is over"),
    ("/metrics", "Metrics in Prometheus' text format"),
)


class OpenApiEndpoint:
    """`/v1/openapi.json`, written once."""

    def __init__(self, limits: HttpLimits) -> None:
        self._content = to_json(document(limits))

    async def get(self, request: Request) -> Response:
        """GET /v1/openapi.json"""
        return Response(self._content, media_type=JSON)


def document(limits: HttpLimits) -> dict[str, Any]:
    """The OpenAPI 3.1 document of everything but the page, with the limits in force."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _describe(operation)
    for path, summary in _PROBES:
        answers = {"200": {"description": "Text", "content": _TEXT}, **_problems(_ANY)}
        if path != "/metrics":
            del answers["421"]
            answers["503"]["content"] |= _TEXT
        paths[path] = {"get": {"summary": summary, "operationId": path[1:], "responses": answers}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "tripletd",
            "version": version(),
            "summary": "Nearest objects by a similarity that is learned while it is served.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [],
        "paths": paths,
        "components": {
            "schemas": _schemas(limits),
            "securitySchemes": {_TOKEN: {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe(operation: Operation) -> dict[str, Any]:
    name = f"{operation.method}_{operation.path.strip('/').removesuffix('.json').replace('/', '_')}"
    described: dict[str, Any] = {"summary": operation.summary, "operationId": name}
    if operation.token:
        described["security"] = [{_TOKEN: []}]
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": _json(operation.body)}
    elif operation.path == "/v1/similar":
        described["parameters"] = [
            {"name": name, "in": "query", "required": required, "description": told, "schema": schema}
            for name, schema, told, required in _PARAMETERS
        ]
    good = {"description": "Done", "content": _json(operation.answer)}
    described["responses"] = {"200": good, **_problems(operation.errors)}
    return described


def _problems(statuses: Sequence[int]) -> dict[str, dict[str, Any]]:
    """Responses by status, each with the common shape; what is worth another try says when."""
    bad: dict[str, dict[str, Any]] = {
        str(status): {"description": HTTPStatus(status).phrase, "content": _json(schemas.ErrorAnswer)}
        for status in sorted(statuses)
    }
    bad["503"]["headers"] = {
        "Retry-After": {"description": "Seconds until another try", "schema": {"type": "integer"}}
    }
    return bad


def _json(model: type[BaseModel] | None) -> dict[str, Any]:
    schema = {"type": "object"} if model is None else {"$ref": _PLACE.format(model=model.__name__)}
    return {"application/json": {"schema": schema}}


def _schemas(limits: HttpLimits) -> Mapping[str, Any]:
    """All models by name, with the bounds that are settings."""
    bodies = [one.body for one in OPERATIONS if one.body is not None]
    answers = [one.answer for one in OPERATIONS if one.answer is not None]
    wanted = [
        *((model, "validation") for model in bodies),
        *((model, "serialization") for model in (*answers, schemas.ErrorAnswer)),
    ]
    _, found = models_json_schema(wanted, ref_template=_PLACE)  # type: ignore[arg-type]
    models: dict[str, Any] = found["$defs"]
    for name in ("Question", "SimilarRequest"):
        models[name]["properties"]["k"]["maximum"] = limits.k_max
    models["BatchRequest"]["properties"]["queries"]["maxItems"] = limits.batch_max
    return models
