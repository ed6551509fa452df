"""The reference in docs/http.md, made from /v1/openapi.json; `python -m tests.docs.http_page` writes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tests.daemon.serve.http.toy import running

PAGE = Path(__file__).parents[2] / "docs" / "http.md"
BEGIN, END = "<!-- reference: written by tests/docs/http_page.py -->", "<!-- end of the reference -->"
JSON = "application/json"
_QUIET = {"400", "408", "421", "431", "500", "503"}
"""Statuses that any request may meet; the page says so once."""


def live_document() -> dict[str, Any]:
    """The document as a server gives it, with the default limits."""
    with running() as served:
        return dict(served.ask("GET", "/v1/openapi.json")[1])


def operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """(method in capitals, path, operation), in the document's order."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def resolved(schema: Mapping[str, Any], document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema that a reference names, else the schema."""
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def kind(schema: Mapping[str, Any]) -> str:
    """A schema in a few words: `text`, `whole number`, `list of Hit`."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices and "type" not in schema:  # with a type they are what its values have to be like
        return " or ".join(dict.fromkeys(kind(one) for one in choices if one.get("type") != "null"))
    if "enum" in schema or "const" in schema:
        return " or ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    match schema.get("type"):
        case "array":
            return f"list of {kind(schema.get('items', {}))}"
        case "object":
            inner = schema.get("additionalProperties")
            return f"map to {kind(inner)}" if isinstance(inner, dict) else "object"
        case other:
            words = {"string": "text", "integer": "whole number", "number": "number", "boolean": "yes or no"}
            return words.get(str(other), "any")


def fields(schema: Mapping[str, Any], sent: bool) -> list[str]:
    """A table of a schema's fields; `sent`: by those who ask, so that it matters what is required."""
    required = set(schema.get("required", ())) if sent else set()
    rows = ["| field | type | meaning |", "|---|---|---|"]
    for name, one in schema.get("properties", {}).items():
        rows.append(f"| `{name}` | {kind(one)} | {_meaning(one, name in required)} |")
    return rows


def _meaning(schema: Mapping[str, Any], required: bool) -> str:
    said = [str(schema["description"])] if schema.get("description") else []
    if required:
        said.append("required")
    elif schema.get("default") not in (None, "", [], {}):
        said.append(f"default `{schema['default']}`")
    bounds = [f"{word} {schema[key]}" for key, word in _BOUNDS.items() if key in schema]
    return "; ".join([*said, *bounds]).replace("|", "\\|")


_BOUNDS = {"minimum": "at least", "maximum": "at most", "maxItems": "at most", "maxLength": "at most"}


def reference(document: Mapping[str, Any]) -> str:
    """All operations, then every model that they name."""
    lines: list[str] = []
    named: dict[str, None] = {}
    sent: dict[str, None] = {}
    for method, path, operation in operations(document):
        lines += [f"### {method} {path}", "", f"{operation.get('summary', '').rstrip('.')}."]
        if operation.get("security"):
            lines[-1] += " Needs the token."
        lines.append("")
        parameters = operation.get("parameters", [])
        if parameters:
            lines += ["| parameter | type | meaning |", "|---|---|---|"]
            for one in parameters:
                schema = {**one.get("schema", {}), "description": one.get("description", "")}
                if one["in"] == "header":
                    schema["description"] = f"in the header: {schema['description']}"
                lines.append(
                    f"| `{one['name']}` | {kind(schema)} | {_meaning(schema, one.get('required', False))} |"
                )
            lines.append("")
        answered = operation["responses"].get("200", {}).get("headers", {})
        if answered:
            lines += ["| header of the answer | type | meaning |", "|---|---|---|"]
            for name, one in answered.items():
                schema = {**one["schema"], "description": one["description"]}
                lines.append(f"| `{name}` | {kind(schema)} | {_meaning(schema, required=False)} |")
            lines.append("")
        body = _model(operation.get("requestBody", {}).get("content"))
        good = _model(operation["responses"].get("200", {}).get("content"))
        errors = sorted(set(operation["responses"]) - {"200"} - _QUIET)
        told = [f"Body: {_linked(body)}." if body else "", f"Answer: {_linked(good)}." if good else ""]
        if errors:
            words = ", ".join(f"{code} {HTTPStatus(int(code)).phrase}" for code in errors)
            told.append(f"Also: {words}.")
        if any(told):
            lines += [" ".join(filter(None, told)), ""]
        _collect(body, document, named)
        _collect(body, document, sent)
        _collect(good, document, named)
    lines += ["## Models", ""]
    for name in sorted(named):
        schema = document["components"]["schemas"][name]
        lines += [f"### {name}", ""]
        if schema.get("description"):
            lines += [schema["description"].strip().splitlines()[0], ""]
        lines += [*fields(schema, name in sent), ""]
    return "\n".join(lines).rstrip() + "\n"


def _model(content: Mapping[str, Any] | None) -> str:
    schema = (content or {}).get(JSON, {}).get("schema", {})
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _linked(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def _collect(name: str, document: Mapping[str, Any], named: dict[str, None]) -> None:
    """`name` and all models that it mentions."""
    if name in named or name not in document["components"]["schemas"]:
        return
    named[name] = None
    for mentioned in _mentions(document["components"]["schemas"][name]):
        _collect(mentioned, document, named)


def _mentions(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].rpartition("/")[2]
        for value in schema.values():
            yield from _mentions(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _mentions(value)


def main() -> None:
    """Write the reference into the page."""
    before, rest = PAGE.read_text().split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n\n{reference(live_document())}\n{END}{after}")


if __name__ == "__main__":
    main()
