"""Ask servers over HTTP, from a program: `POST /v1/similar`, of one server or several, never going back."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from daemon.client.writing import client_of
from streams.foreign_http import BlockingClient, ForeignError

AT_LEAST = "X-Tripletd-At-Least"
LONGEST_REST_S = 0.1
"""Between two rounds of all servers."""


class NotAnsweredError(Exception):
    """No server gave an answer; the message says why. status: of HTTP, 0 where none answered. code: as in the
    error's body, such as "behind", "" for none."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Nearest objects, best first: (id, score). version, line, records: the state that answered, as
    `docs/http.md` has them. server: the address that answered. body: the whole answer."""

    results: tuple[tuple[str, float], ...]
    version: str
    line: str
    records: int
    server: str
    body: Mapping[str, Any]


class AskClient:
    """Asks one server after another, over connections that are kept; any thread, one question at a time.

    Args:
        urls: addresses, such as "http://127.0.0.1:9103"; of one balancer, or of each server.
        monotonic: no answer for an alias is of an older state than an answer before it: each question names
            the state of the last one, and a server that is behind waits, or another one is asked.
        patience_s: how long it tries before NotAnsweredError.
        token, cafile, timeout_s: as of `WriteClient`.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        monotonic: bool = False,
        patience_s: float = 10.0,
        token: str = "",
        cafile: str = "",
        timeout_s: float = 5.0,
    ) -> None:
        names = [urls] if isinstance(urls, str) else list(urls)
        if not names:
            raise ValueError("expected the address of a server at least")
        self._servers = [(name, client_of(name, token, cafile, timeout_s)) for name in names]
        self._monotonic, self._patience_s = monotonic, patience_s
        self._pins: dict[str | None, tuple[str, int]] = {}
        self._next = 0
        self._lock = threading.Lock()

    def similar(
        self, query: str | Sequence[float], k: int = 10, *, alias: str | None = None, key: str | None = None
    ) -> HttpAnswer:
        """The objects nearest to one, by its id or its vector. Raises NotAnsweredError."""
        asked: dict[str, Any] = {"id": query} if isinstance(query, str) else {"x": [*map(float, query)]}
        more = {"k": k, "alias": alias, "key": key}
        body = json.dumps(asked | {name: value for name, value in more.items() if value is not None}).encode()
        with self._lock:
            return self._asked(body, alias)

    def forget(self, alias: str | None = None) -> None:
        """Accept an older state from now on: after the name was moved back, or a folder was put back."""
        with self._lock:
            self._pins.pop(alias, None)

    def close(self) -> None:
        """Hang up; another question connects again."""
        with self._lock:
            for _, client in self._servers:
                client.close()

    def _asked(self, body: bytes, alias: str | None) -> HttpAnswer:
        pin = self._pins.get(alias)
        headers = {} if pin is None else {AT_LEAST: f"{pin[0]}@{pin[1]}"}
        deadline, tried = time.monotonic() + self._patience_s, 0
        while True:
            server, client = self._servers[self._next % len(self._servers)]
            self._next += 1
            status, said = _sent(client, body, headers)
            if status == HTTPStatus.OK:
                line, records = said["line"] or "", int(said["records"])
                if self._monotonic:
                    self._pins[alias] = line, records
                hits = tuple((str(one["id"]), float(one["score"])) for one in said["results"])
                return HttpAnswer(hits, said["version"], line, records, server, said)
            tried += 1
            error = NotAnsweredError(status, str(said.get("code", "")), str(said.get("message", "")))
            if status not in (0, HTTPStatus.SERVICE_UNAVAILABLE) or time.monotonic() >= deadline:
                raise error
            if tried % len(self._servers) == 0:
                time.sleep(LONGEST_REST_S)


def _sent(client: BlockingClient, body: bytes, headers: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
    try:
        answer = client.ask("POST", "/v1/similar", body, headers)
        read = answer.json()
    except ForeignError as error:
        return 0, {"message": str(error)}
    if answer.status == HTTPStatus.OK:
        return answer.status, read
    return answer.status, read.get("error", {}) if isinstance(read, dict) else {}
