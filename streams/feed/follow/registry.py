"""A schema registry over HTTP: the schema that a record names, with all that it refers to, kept on disk.

A schema under an id never changes, so what was fetched once is read from the folder ever after, also while
the registry is away. Whoever asks while it is away is told so at once, and the registry is asked again after
a pause that grows. Whatever goes wrong with one schema while the registry answers is the trouble of the
records that name it alone.
"""

from __future__ import annotations

import base64
import json
import random
import ssl
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

from pydantic_core import from_json

from streams.durable import replacing
from streams.errors import StreamUnavailable
from streams.foreign_http import LATER, BlockingClient, ForeignError, ForeignServer

SchemaKey = int | str
"""An id, or a GUID in its usual writing."""

AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
"""Between two attempts at a registry that is away; each pause is twice the one before."""
UNKNOWN_FOR_S = 60.0
"""For so long a schema that the registry does not have is not asked for again."""
UNKNOWN_REMEMBERED = 10_000
MOST_BYTES = 1 << 20
"""Of one schema with all that it refers to: as much as a registry takes of one."""
MOST_REFERENCES = 200
SCHEMA_TIMEOUTS = 3
"""So many times the longest wait for one answer may all answers take that make one schema."""
TRIES = 3
"""So often a schema is asked for, pauses between, that the registry does not give while it answers."""
_NOT_FOUND = (40401, 40402, 40403)
"""`error_code` of a subject, version or schema that is not there; another 404 is of another server."""
_DENIED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_PASSING = ("unreachable", "timeout")
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
    clock: monotonic, in seconds. chance: from 0 to 1, so that many who wait do not ask at once.
    """

    def __init__(
        self,
        settings: RegistrySettings,
        folder: Path,
        failed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.url = settings.url.rstrip("/")
        self._timeout_s, self._folder, self._failed = settings.timeout_s, folder, failed
        self._clock, self._chance = clock, chance
        tls = None
        if self.url.startswith("https://"):
            tls = ssl.create_default_context(cafile=settings.cafile or None)
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if settings.user:
            pair = base64.b64encode(f"{settings.user}:{settings.secret}".encode()).decode()
            headers["Authorization"] = f"Basic {pair}"
        elif settings.secret:
            headers["Authorization"] = f"Bearer {settings.secret}"
        self._client = BlockingClient(
            ForeignServer(self.url, headers, settings.timeout_s, body_bytes=MOST_BYTES, tls=tls)
        )
        self._unknown: OrderedDict[SchemaKey, tuple[float, str]] = OrderedDict()
        self._tried: Counter[SchemaKey] = Counter()
        self._trouble, self._again_at, self._pause_s = "", float("-inf"), FIRST_PAUSE_S
        self._left, self._until, self._gave = MOST_BYTES, float("inf"), False

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
        self._begin()
        try:
            found = self._fetched(key)
        except UnknownSchemaError as error:
            self.reject(key, str(error))
            raise
        except Exception as error:  # noqa: BLE001  # whatever an answer of a stranger does to its reader
            self._missed(key, error)
        del self._tried[key]
        self._pause_s, self._gave = FIRST_PAUSE_S, True
        self._keep(key, found)
        return found

    def reject(self, key: SchemaKey, why: str) -> None:
        """A schema is of no use: nothing is kept of it, and for a while it is not asked for again."""
        self._unknown[key] = self._clock() + UNKNOWN_FOR_S, why
        self._unknown.move_to_end(key)
        if len(self._unknown) > UNKNOWN_REMEMBERED:
            self._unknown.popitem(last=False)
        del self._tried[key]
        with suppress(OSError):
            self._file(key).unlink(missing_ok=True)

    def kinds(self) -> list[str]:
        """What kinds of schemas it has, asked now: whether it can be reached. Raises ValueError."""
        self._begin()
        try:
            kinds = self._get("/schemas/types")
        except (UnknownSchemaError, ForeignError, _AnswerError) as error:
            raise ValueError(str(error)) from error
        if not isinstance(kinds, list):
            raise ValueError("it does not answer as a registry does; see feed.follow.registry.url")
        return [str(one)[:40] for one in kinds[:20]]

    def _begin(self) -> None:
        """Another schema: with all that it refers to it has its bounds."""
        self._left, self._until = MOST_BYTES, self._clock() + SCHEMA_TIMEOUTS * self._timeout_s

    def _missed(self, key: SchemaKey, error: Exception) -> NoReturn:
        """Whether this schema is to blame, which is unknown then, or the registry, which is away. Credentials
        are to blame where they never opened anything."""
        self._failed()
        told = str(error) or type(error).__name__
        status = error.status if isinstance(error, _AnswerError) else 0
        passing = status in LATER or (isinstance(error, ForeignError) and error.reason in _PASSING)
        if (self._gave or status not in _DENIED) and self._answers():
            self._tried[key] += 1
            if not passing or self._tried[key] >= TRIES:
                self.reject(key, told)
                self._pause_s = FIRST_PAUSE_S
                raise UnknownSchemaError(told) from error
        self._trouble = f"the schema registry {self.url}: {told}"
        self._again_at = self._clock() + self._pause_s * (0.75 + 0.5 * self._chance())
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        raise StreamUnavailable(self._trouble) from error

    def _answers(self) -> bool:
        try:
            return bool(self.kinds())
        except ValueError:
            return False

    def _fetched(self, key: SchemaKey) -> RegisteredSchema:
        path = f"/schemas/ids/{key}" if isinstance(key, int) else f"/schemas/guids/{key}"
        found = self._get(path)
        if found.get("schemaType") == PROTOBUF:
            with suppress(_AnswerError, UnknownSchemaError):  # some have the source alone, some fail at this
                return self._whole(self._get(f"{path}?{_SERIALIZED}"), f"&{_SERIALIZED}")
        return self._whole(found, "")

    def _whole(self, found: Any, how: str) -> RegisteredSchema:
        named: dict[str, str] = {}
        for name, text in self._references(found, how, set()):
            named.setdefault(name, text)
        return RegisteredSchema(str(found.get("schemaType") or AVRO), _text(found), tuple(named.items()))

    def _references(self, found: Any, how: str, asked: set[tuple[str, str]]) -> Iterator[tuple[str, str]]:
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
        """The JSON of an answer. Raises UnknownSchemaError, ForeignError, _AnswerError."""
        if self._clock() > self._until:
            raise ForeignError("timeout", "what the schema refers to did not come in time")
        answer = self._client.ask("GET", path)
        self._left -= len(answer.body)
        if self._left < 0:
            raise UnknownSchemaError(f"it is longer than {MOST_BYTES} bytes")
        status, said = answer.status, None
        try:
            said = answer.json()
        except ForeignError:
            if status == HTTPStatus.OK:
                raise
        told = str(_field(said, "message") or answer.text)[:200]
        if status == HTTPStatus.NOT_FOUND and _field(said, "error_code") in _NOT_FOUND:
            raise UnknownSchemaError(told)
        if status != HTTPStatus.OK:
            keys = "user and secret" if status in _DENIED else "url"
            about = f"; see feed.follow.registry.{keys}"
            raise _AnswerError(
                f"it answers {status}{about if status in _DENIED else f': {told}{about}'}", status
            )
        return said

    def _kept(self, key: SchemaKey) -> RegisteredSchema | None:
        """A schema of the folder, None without a whole one of this registry: ids are those of a registry."""
        try:
            said = from_json(self._file(key).read_bytes())
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
            with replacing(self._file(key)) as file:
                file.write(json.dumps(said).encode())

    def _file(self, key: SchemaKey) -> Path:
        return self._folder / f"{key}.json"


class _AnswerError(Exception):
    """The registry answered something else than what was asked for. status: of HTTP."""

    def __init__(self, message: str, status: int = HTTPStatus.OK) -> None:
        super().__init__(message)
        self.status = status


def _field(said: Any, name: str) -> Any:
    return said.get(name) if isinstance(said, dict) else None


def _text(found: Any) -> str:
    text = _field(found, "schema")
    if not isinstance(text, str):
        raise _AnswerError("it answers something that is no schema; see feed.follow.registry.url")
    return text
