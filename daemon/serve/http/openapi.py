"""Every operation, declared once: the routes are made from it, and the OpenAPI document with the models that
check and write.

No framework makes both: FastAPI reads a whole body before any limit of ours, and words errors its own way, so
its reading, its errors and its statuses would all have to be replaced. What is left is this table.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daemon.look.live import ServeStatus
from daemon.serve.http import schemas
from daemon.serve.http.embeddings import VERSION
from daemon.serve.http.errors import JSON
from daemon.serve.http.limits import HttpLimits
from daemon.serve.http.pins import AT_LEAST, PATTERN
from daemon.telemetry.metrics import version

Handler = Callable[[Request], Awaitable[Response]]

_PLACE = "#/components/schemas/{model}"
_TEXT = {"text/plain": {"schema": {"type": "string"}}}
_TOKEN = "bearer"  # noqa: S105 - the name of the scheme

_ANY = (400, 401, 403, 408, 421, 431, 500, 503)
"""What may be answered before the request itself is looked at; health is answered under any name (no 421), to
anybody (no 401, no 403)."""
_ASKING = (*_ANY, 404, 413, 415, 422)
_WRITING = (*_ANY, 413, 415, 422)
_CHANGING = (*_ASKING, 409)
_AT_LEAST = {
    "name": AT_LEAST,
    "in": "header",
    "required": False,
    "description": "the state that the answer needs at least: LINE@RECORDS, from `line` and `records` of an"
    " earlier answer, or the number of a version; 503 `behind` where this server does not reach it in time",
    "schema": {"type": "string", "pattern": PATTERN},
}
_VERSION = {
    "description": "the version that folded or ranked, such as 12 or 12+3400; not there where vectors of the"
    " upstream are passed on",
    "schema": {"type": "string"},
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. answer: model of the answer, None for any JSON object, "text" for plain text.
    body: model of the request's body. parameters: model whose `IN_ADDRESS` are parameters of the address.
    errors: statuses it may answer with. token: whether it needs the bearer token. status: of success.
    pins: whether a question may name the state that it needs at least. names_version: whether a header may
    say which version answered.
    """

    method: str
    path: str
    summary: str
    answer: type[BaseModel] | str | None = None
    body: type[BaseModel] | None = None
    parameters: type[schemas.Request] | None = None
    errors: tuple[int, ...] = _ANY
    token: bool = False
    status: int = 200
    pins: bool = False
    names_version: bool = False


def _change(verb: str, summary: str, body: type[BaseModel], answer: type[BaseModel]) -> Operation:
    return Operation("POST", f"/v1/models/{verb}", summary, answer, body, errors=_CHANGING, token=True)


def _embed(path: str, summary: str, answer: type[BaseModel], body: type[BaseModel]) -> Operation:
    errors = (*_ASKING, 429, 502, 504)
    return Operation("POST", path, summary, answer, body, errors=errors, names_version=True)


_ask, _ONE = partial(Operation, errors=_ASKING), schemas.SimilarRequest
_similar = partial(Operation, errors=(*_ASKING, 502), pins=True)
_write = partial(Operation, "POST", answer=schemas.Accepted, errors=_WRITING, status=202)
OPERATIONS = (
    _similar("GET", "/v1/similar", "Objects nearest to an object", schemas.SimilarAnswer, parameters=_ONE),
    _similar(
        "POST", "/v1/similar", "Objects nearest to an object or to vectors", schemas.SimilarAnswer, _ONE
    ),
    _similar(
        "POST",
        "/v1/similar/batch",
        "Several queries, answered by one model",
        schemas.BatchAnswer,
        schemas.BatchRequest,
    ),
    _ask("POST", "/v1/fold", "Queries for an index of your own", schemas.FoldAnswer, schemas.FoldRequest),
    _ask("POST", "/v1/embed", "Objects for an index of your own", schemas.EmbedAnswer, schemas.EmbedRequest),
    _write("/v1/impressions", "Lists that users were shown", body=schemas.ImpressionsRequest),
    _write("/v1/clicks", "What they clicked", body=schemas.ClicksRequest),
    _embed(
        "/v1/embeddings",
        "Texts to vectors as OpenAI has it; queries folded for an index of your own",
        schemas.EmbeddingsAnswer,
        schemas.EmbeddingsRequest,
    ),
    _embed(
        "/v1/rerank",
        "Documents in the order of the learned similarity, as Cohere has it",
        schemas.RerankAnswer,
        schemas.RerankRequest,
    ),
    _embed(
        "/v2/rerank",
        "The same for clients of Cohere's second version",
        schemas.RerankAnswer,
        schemas.RerankV2Request,
    ),
    _ask("GET", "/v1/models", "The models that texts may be sent to, as OpenAI has it", schemas.ListedModels),
    Operation("GET", "/v1/versions", "What is served, what is kept", schemas.Versions),
    Operation("GET", "/v1/openapi.json", "This document"),
    _change("promote", "Point a name at a version", schemas.PromoteRequest, schemas.Moved),
    _change("rollback", "Point a name back", schemas.RollbackRequest, schemas.Moved),
    _change("pin", "Name a version so that it is kept", schemas.PinRequest, schemas.Moved),
    _change("gc", "Delete versions that no rule keeps", schemas.GcRequest, schemas.Collected),
    _ask("GET", "/v1/models/{model}", "One of these models", schemas.ListedModel),
    Operation("GET", "/livez", "Whether no thread is stuck", "text"),
    Operation("GET", "/readyz", "Whether answers can be given", "text"),
    Operation("GET", "/startupz", "Whether start-up is over", "text"),
    Operation("GET", "/status", "What this role says of itself", ServeStatus),
    Operation("GET", "/metrics", "Metrics in Prometheus' text format", "text"),
)


def routes(handlers: Mapping[str, Handler]) -> list[Route]:
    """A route for every path, by the handler of that path, with the methods that are declared."""
    methods: dict[str, list[str]] = {}
    for operation in OPERATIONS:
        methods.setdefault(operation.path, []).append(operation.method)
    return [
        Route(path.replace("{model}", "{model:path}"), handlers[path], methods=allowed)
        for path, allowed in methods.items()
    ]


def document(limits: HttpLimits) -> dict[str, Any]:
    """The OpenAPI 3.1 document of everything but the page, with the limits in force."""
    models, paths = _schemas(limits), dict[str, dict[str, Any]]()
    for operation in OPERATIONS:
        described = _describe(operation, models)
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
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
        "components": {"schemas": models, "securitySchemes": {_TOKEN: {"type": "http", "scheme": "bearer"}}},
    }


def _describe(operation: Operation, models: Mapping[str, Any]) -> dict[str, Any]:
    name = re.sub(r"\W+", "_", operation.path.removesuffix(".json")).strip("_")
    text = operation.answer == "text"
    named = name if text else f"{operation.method.lower()}_{name}"
    described: dict[str, Any] = {"summary": operation.summary, "operationId": named}
    if operation.token:
        described["security"] = [{_TOKEN: []}]
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": _json(operation.body)}
    parameters = [] if operation.parameters is None else _parameters(operation.parameters, models)
    if operation.pins:
        parameters.append(_AT_LEAST)
    for inside in re.findall(r"\{(\w+)\}", operation.path):
        parameters.append({"name": inside, "in": "path", "required": True, "schema": {"type": "string"}})
    if parameters:
        described["parameters"] = parameters
    content = _TEXT if isinstance(operation.answer, str) else _json(operation.answer)
    bad = _problems(operation.errors)
    if text and operation.path != "/metrics":
        for status in ("401", "403", "421"):
            del bad[status]
        bad["503"]["content"] |= _TEXT
    good: dict[str, Any] = {"description": "Done", "content": content}
    if operation.names_version:
        good["headers"] = {VERSION: _VERSION}
    described["responses"] = {str(operation.status): good, **bad}
    return described


def _parameters(model: type[schemas.Request], models: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Those of the address, with the schemas that the fields have in a body; left out means not given."""
    described = []
    for name, required in model.IN_ADDRESS.items():
        field = dict(models[model.__name__]["properties"][name])
        about = {"name": name, "in": "query", "required": required, "description": field.pop("description")}
        schema = field["anyOf"][0] if "anyOf" in field else {k: v for k, v in field.items() if k != "title"}
        described.append({**about, "schema": schema})
    return described


def _problems(statuses: Sequence[int]) -> dict[str, dict[str, Any]]:
    """Responses by status, each with the common shape; what is worth another try says when."""
    bad: dict[str, dict[str, Any]] = {
        str(status): {"description": HTTPStatus(status).phrase, "content": _json(schemas.ErrorAnswer)}
        for status in sorted(statuses)
    }
    bad["503"]["headers"] = {
        "Retry-After": {
            "description": "Seconds until another try",
            "required": True,
            "schema": {"type": "integer"},
        }
    }
    return bad


def _json(model: type[BaseModel] | None) -> dict[str, Any]:
    schema = {"type": "object"} if model is None else {"$ref": _PLACE.format(model=model.__name__)}
    return {JSON: {"schema": schema}}


def _schemas(limits: HttpLimits) -> dict[str, Any]:
    bodies = dict.fromkeys(one.body for one in OPERATIONS if one.body is not None)
    answers = dict.fromkeys(one.answer for one in OPERATIONS if isinstance(one.answer, type))
    wanted = [
        *((model, "validation") for model in bodies),
        *((model, "serialization") for model in (*answers, schemas.ErrorAnswer)),
    ]
    _, found = models_json_schema(wanted, ref_template=_PLACE)  # type: ignore[arg-type]
    models: dict[str, Any] = found["$defs"]
    for name in ("Question", "SimilarRequest"):
        models[name]["properties"]["k"]["maximum"] = limits.k_max
    for name, several in (
        ("BatchRequest", "queries"),
        ("FoldRequest", "queries"),
        ("EmbedRequest", "objects"),
    ):
        models[name]["properties"][several]["maxItems"] = limits.batch_max
    return models
