"""Whether an answer is one of those that the OpenAPI document promises."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import jsonschema
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

ERROR = "#/components/schemas/ErrorAnswer"


class Contract:
    """The document of a server, asked about its answers."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        resource: Any = Resource(document, DRAFT202012)
        self._registry: Any = Registry().with_resource("urn:document", resource)

    def checker(self, place: str) -> jsonschema.Draft202012Validator:
        """For the part of the document at a place such as `#/components/schemas/Hit`."""
        schema = {"$ref": f"urn:document{place}"}
        return jsonschema.Draft202012Validator(schema, registry=self._registry)

    def check(self, method: str, target: str, status: int, headers: Mapping[str, str], body: str) -> None:
        """Assert that this may be answered to that; where nothing is described, that it is an error."""
        place = f"{method} {target[:80]} -> {status}"
        path = target.partition("?")[0]
        paths = self.document["paths"]
        if path not in paths and path.startswith("/v1/models/"):
            path = "/v1/models/{model}"
        operation = paths.get(path, {}).get(method.lower())
        kind = headers["content-type"].partition(";")[0]
        if operation is None:
            assert status >= 400, f"{place}: not described"
            schema = {"$ref": ERROR}
        else:
            assert str(status) in operation["responses"], f"{place}: not described"
            described = operation["responses"][str(status)]
            assert kind in described["content"], f"{place}: {kind} is not described"
            schema = described["content"][kind]["schema"]
            if kind == "application/json":
                known = {
                    name.lower(): bool(one.get("required"))
                    for name, one in described.get("headers", {}).items()
                }
                given = {name.lower() for name in headers}
                promised = {name for name, always in known.items() if always}
                assert promised <= given, f"{place}: {promised}"
                own = {name for name in given if "tripletd" in name}
                assert own <= known.keys(), f"{place}: {own} are not described"
        if kind == "application/json" and "$ref" in schema:
            self.checker(schema["$ref"]).validate(json.loads(body))
