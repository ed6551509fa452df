"""A schema registry on loopback: what its documented interface answers, over real HTTP, and how it fails."""

from __future__ import annotations

import json
import ssl
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.harness.kafka.ports import free_ports

NOT_FOUND = {"ids": 40403, "guids": 40403, "subjects": 40402}


@dataclass
class Registered:
    """A schema as the registry has it; `serialized`: its descriptor in base64, "" where it gives none."""

    kind: str
    text: str
    references: Sequence[tuple[str, str, int]] = ()
    serialized: str = ""

    def said(self, serialized: bool) -> dict[str, Any]:
        """What it answers: Avro is not named."""
        told: dict[str, Any] = {"schema": self.serialized if serialized else self.text}
        if self.kind != "AVRO":
            told["schemaType"] = self.kind
        if self.references:
            names = ("name", "subject", "version")
            told["references"] = [dict(zip(names, one, strict=True)) for one in self.references]
        return told


@dataclass
class RegistryServer:
    """`url` stays the same over `stop` and `start`. asked: paths, in their order. failing: a status that it
    answers everything with; wanted: what `Authorization` has to be. raw: status and body of some paths."""

    context: ssl.SSLContext | None = None
    asked: list[str] = field(default_factory=list)
    failing: int = 0
    wanted: str = ""
    raw: dict[str, tuple[int, bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ids: dict[str, Registered] = {}
        self._subjects: dict[tuple[str, str], Registered] = {}
        (self._port,) = free_ports(1)
        self.start()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"{'https' if self.context else 'http'}://localhost:{self._port}"

    def add(self, number: int, kind: str, text: str, *, subject: str = "", **more: Any) -> str:
        """Register a schema under an id, and perhaps as version 1 of a subject; its GUID."""
        one = Registered(kind, text, **more)
        guid = str(uuid.uuid5(uuid.NAMESPACE_OID, text))
        self._ids[str(number)] = self._ids[guid] = one
        if subject:
            self._subjects[subject, "1"] = one
        return guid

    def name(self, guid: str, number: int) -> None:
        """Let a schema that is there have this GUID."""
        self._ids[guid] = self._ids[str(number)]

    def start(self) -> None:
        """Answer, on the same port as before."""
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, said = registry.answer(self.path, self.headers.get("Authorization", ""))
                body = said if isinstance(said, bytes) else json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *words: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("localhost", self._port), Handler)
        if self.context is not None:
            self._server.socket = self.context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Hang up: connections are refused."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, path: str, credentials: str) -> tuple[int, Any]:
        """Status and JSON."""
        self.asked.append(path)
        if path in self.raw:
            return self.raw[path]
        if self.failing:
            return self.failing, {"error_code": self.failing, "message": "told to fail"}
        if self.wanted and credentials != self.wanted:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        parts = urlsplit(path)
        words = [unquote(one) for one in parts.path.split("/")[1:]]
        serialized = parse_qs(parts.query).get("format") == ["serialized"]
        if words == ["schemas", "types"]:
            return 200, ["JSON", "PROTOBUF", "AVRO"]
        found = None
        if words[0] == "schemas" and words[1] in ("ids", "guids"):
            found = self._ids.get(words[2])
        elif words[0] == "subjects" and words[2] == "versions":
            found = self._subjects.get((words[1], words[3]))
        if found is None:
            code = NOT_FOUND.get(words[1] if words[0] == "schemas" else words[0], 404)
            return 404, {"error_code": code, "message": f"Schema {words[-1]} not found"}
        if serialized and found.kind == "PROTOBUF" and not found.serialized:
            return 500, {"error_code": 50001, "message": "no serialized form"}
        return 200, found.said(serialized and found.kind == "PROTOBUF")
