"""A schema registry over HTTP: the schema that a record names, with all that it refers to, kept on disk.

A schema under an id never changes, so what was fetched once is read from the folder ever after, also while
the registry is away. Whoever asks while it is away is told so at once, and the registry is asked again after
a pause that grows.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from streams.errors import StreamUnavailable

SchemaKey = int | str
"""An id, or a GUID in its usual writing."""

AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
"""Between two attempts at a registry that is away; each pause is twice the one before."""
UNKNOWN_FOR_S = 60.0
"""For so long a schema that the registry does not have is not asked for again."""
UNKNOWN_REMEMBERED = 10_000
MOST_BYTES = 4 << 20
"""Of one answer."""
MOST_REFERENCES = 200
_NOT_FOUND = (40401, 40402, 40403)
"""`error_code` of a subject, version or schema that is not there; another 404 is of another server."""
_SERIALIZED = "format=serialized"
"""Protobuf as a descriptor instead of its source: nothing has to be compiled then."""


class UnknownSchemaError(Exception):
    """The registry has no such schema, or it cannot be used; the message says which and why."""


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Where the registry is. `user` and `secret`: basic authentication; `secret` alone: a bearer token.
    cafile: PEM file of the authorities to trust, "" for the system's. timeout_s: of one answer."""

    url: str
    user: str = ""
    secret: str = ""
    cafile: str = ""
    timeout_s: float = 5.0


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema: its kind, its text, and name and text of what it refers to, each after what it needs itself.
    The text of Protobuf is a descriptor in base64 or, of registries that give none, .proto source."""

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


class SchemaRegistry:
    """Raises OSError for an unreadable `cafile`.

    folder: where schemas are kept; made when the first one is. failed: called for each attempt that failed.
    clock: monotonic, in seconds.
    """

    def __init__(
        self,
        settings: RegistrySettings,
        folder: Path,
        failed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url = settings.url.rstrip("/")
        self._timeout_s, self._folder, self._failed, self._clock = settings.timeout_s, folder, failed, clock
        self._parts = urlsplit(self.url)
        self._tls = None
        if self._parts.scheme == "https":
            self._tls = ssl.create_default_context(cafile=settings.cafile or None)
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if settings.user:
            pair = base64.b64encode(f"{settings.user}:{settings.secret}".encode()).decode()
            self._headers["Authorization"] = f"Basic {pair}"
        elif settings.secret:
            self._headers["Authorization"] = f"Bearer {settings.secret}"
        self._unknown: OrderedDict[SchemaKey, tuple[float, str]] = OrderedDict()
        self._trouble, self._again_at, self._pause_s = "", float("-inf"), FIRST_PAUSE_S

    def schema(self, key: SchemaKey) -> RegisteredSchema:
        """The schema of this id. Raises UnknownSchemaError; StreamUnavailable while the registry is away."""
        until, why = self._unknown.get(key, (float("-inf"), ""))
        if self._clock() < until:
            raise UnknownSchemaError(why)
        kept = self._kept(key)
        if kept is not None:
            return kept
        if self._clock() < self._again_at:
            raise StreamUnavailable(self._trouble)
        try:
            found = self._fetched(key)
        except UnknownSchemaError as error:
            self._note_unknown(key, str(error))
            raise
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._failed()
            self._trouble = f"the schema registry {self.url}: {str(error) or type(error).__name__}"
            self._again_at = self._clock() + self._pause_s
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            raise StreamUnavailable(self._trouble) from error
        self._pause_s = FIRST_PAUSE_S
        self._keep(key, found)
        return found

    def kinds(self) -> list[str]:
        """What kinds of schemas it has, asked now: whether it can be reached. Raises OSError, ValueError."""
        try:
            return [str(one) for one in self._get("/schemas/types")]
        except (UnknownSchemaError, http.client.HTTPException) as error:
            raise ValueError(str(error) or type(error).__name__) from error

    def _fetched(self, key: SchemaKey) -> RegisteredSchema:
        path = f"/schemas/ids/{key}" if isinstance(key, int) else f"/schemas/guids/{key}"
        found = self._get(path)
        if found.get("schemaType") == PROTOBUF:
            with suppress(_AnswerError, UnknownSchemaError):  # some have the source alone, some fail at this
                return self._whole(self._get(f"{path}?{_SERIALIZED}"), f"&{_SERIALIZED}")
        return self._whole(found, "")

    def _whole(self, found: Any, how: str) -> RegisteredSchema:
        """A schema with all that it refers to."""
        named: dict[str, str] = {}
        for name, text in self._references(found, how, set()):
            named.setdefault(name, text)
        return RegisteredSchema(str(found.get("schemaType") or AVRO), _text(found), tuple(named.items()))

    def _references(self, found: Any, how: str, asked: set[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """What a schema refers to, after what that refers to."""
        for one in found.get("references") or ():
            subject, version = quote(str(one["subject"]), safe=""), quote(str(one["version"]), safe="")
            if (subject, version) in asked:
                continue
            asked.add((subject, version))
            if len(asked) > MOST_REFERENCES:
                raise UnknownSchemaError(f"it refers to more than {MOST_REFERENCES} schemas")
            inner = self._get(f"/subjects/{subject}/versions/{version}?deleted=true{how}")
            yield from self._references(inner, how, asked)
            yield str(one["name"]), _text(inner)

    def _get(self, path: str) -> Any:
        """The JSON of an answer. Raises UnknownSchemaError, OSError, HTTPException, ValueError."""
        parts = self._parts
        host = parts.hostname or ""
        connection = (
            http.client.HTTPSConnection(host, parts.port, timeout=self._timeout_s, context=self._tls)
            if self._tls is not None
            else http.client.HTTPConnection(host, parts.port, timeout=self._timeout_s)
        )
        with closing(connection):
            connection.request("GET", parts.path + path, headers=self._headers)
            answer = connection.getresponse()
            body = self._body(answer)
        try:
            said = json.loads(body)
        except (ValueError, RecursionError):
            said = None
        if answer.status == http.client.NOT_FOUND and _field(said, "error_code") in _NOT_FOUND:
            raise UnknownSchemaError(str(_field(said, "message"))[:200])
        if answer.status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
            raise _AnswerError(f"it answers {answer.status}; see feed.follow.registry.user and secret")
        if answer.status != http.client.OK or not isinstance(said, dict | list):
            told = str(_field(said, "message") or answer.reason)[:200]
            raise _AnswerError(f"it answers {answer.status}: {told}; see feed.follow.registry.url")
        return said

    def _body(self, answer: http.client.HTTPResponse) -> bytes:
        """All of an answer, of bounded size and in bounded time."""
        until, body = self._clock() + self._timeout_s, b""
        while part := answer.read1(1 << 16):
            body += part
            if len(body) > MOST_BYTES:
                raise _AnswerError(f"its answer is longer than {MOST_BYTES} bytes")
            if self._clock() > until:
                raise TimeoutError("timed out")
        return body

    def _note_unknown(self, key: SchemaKey, why: str) -> None:
        self._unknown[key] = self._clock() + UNKNOWN_FOR_S, why
        self._unknown.move_to_end(key)
        if len(self._unknown) > UNKNOWN_REMEMBERED:
            self._unknown.popitem(last=False)

    def _kept(self, key: SchemaKey) -> RegisteredSchema | None:
        """A schema of the folder, None without a whole one of this registry: ids are those of a registry."""
        try:
            said = json.loads((self._folder / f"{key}.json").read_bytes())
            if said["registry"] != self.url:
                return None
            references = tuple((str(name), str(text)) for name, text in said["references"])
            return RegisteredSchema(str(said["kind"]), str(said["text"]), references)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _keep(self, key: SchemaKey, found: RegisteredSchema) -> None:
        said = {
            "registry": self.url,
            "kind": found.kind,
            "text": found.text,
            "references": [list(one) for one in found.references],
        }
        with suppress(OSError):  # it can be fetched again; the checkpoint beside it will fail too, and say so
            self._folder.mkdir(parents=True, exist_ok=True)
            temporary = self._folder / "new.tmp"
            temporary.write_text(json.dumps(said), encoding="utf-8")
            os.replace(temporary, self._folder / f"{key}.json")


class _AnswerError(ValueError):
    """The registry answered something else than what was asked for."""


def _field(said: Any, name: str) -> Any:
    return said.get(name) if isinstance(said, dict) else None


def _text(found: Any) -> str:
    text = _field(found, "schema")
    if not isinstance(text, str):
        raise _AnswerError("it answers something that is no schema; see feed.follow.registry.url")
    return text
