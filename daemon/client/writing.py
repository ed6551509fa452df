"""Tell a server what was shown and clicked, from a program: `POST /v1/impressions` and `/v1/clicks`."""

from __future__ import annotations

import json
import secrets
import ssl
import threading
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from streams.foreign_http import BlockingClient, ForeignAnswer, ForeignError, ForeignServer

TRIES = 3
"""How often a write is sent before it fails: with the same ids, so that twice is once."""
LONGEST_REST_S = 5.0
_ID_BYTES = 16


class NotKeptError(Exception):
    """The server did not confirm it; the message says why. status: of HTTP, 0 where it did not answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def client_of(url: str, token: str, cafile: str, timeout_s: float) -> BlockingClient:
    """What asks a server; arguments as of `WriteClient`. Raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
        raise ValueError(f"{url!r} is not the address of a server, such as http://127.0.0.1:9103")
    tls = ssl.create_default_context(cafile=cafile or None) if parts.scheme == "https" else None
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return BlockingClient(ForeignServer(url, headers, timeout_s, tls=tls))


class WriteClient:
    """Writes to one server over a connection that is kept; any thread, one after another.

    url: such as "https://tripletd.example.org:9103". token: that of writes, "" for none. cafile: PEM file of
    the authorities to trust, "" for the system's. timeout_s: longest wait for an answer.
    """

    def __init__(self, url: str, *, token: str = "", cafile: str = "", timeout_s: float = 5.0) -> None:
        self._client = client_of(url, token, cafile, timeout_s)
        self._lock = threading.Lock()

    def impression(
        self,
        query: str,
        shown: Sequence[str],
        *,
        impression: str | None = None,
        propensity: Sequence[float] | None = None,
        source: str | None = None,
        key: str | None = None,
        ts: int | None = None,
    ) -> str:
        """Have a shown list kept, best place first; its id, under which its clicks go.

        query, shown: ids. impression: an id of your own. source: who clicks, a user or a session. propensity:
        for each place, the probability in (0, 1] that the user looked at it. ts: Unix milliseconds. Raises
        NotKeptError.
        """
        name = secrets.token_urlsafe(_ID_BYTES) if impression is None else impression
        said: dict[str, Any] = {
            "impression": name,
            "query": query,
            "shown": [*shown],
            "source": source,
            "key": key,
            "ts": ts,
        }
        if propensity is not None:
            said["propensity"] = [*propensity]
        self._post("/v1/impressions", said)
        return name

    def click(self, impression: str, clicked: str, *, ts: int | None = None) -> None:
        """Have a click on an object of that list kept. ts: Unix milliseconds. Raises NotKeptError."""
        self._post("/v1/clicks", {"impression": impression, "object": clicked, "ts": ts})

    def close(self) -> None:
        """Hang up; another call connects again."""
        self._client.close()

    def _post(self, path: str, said: dict[str, Any]) -> None:
        body = json.dumps({name: value for name, value in said.items() if value is not None}).encode()
        with self._lock:
            for left in reversed(range(TRIES)):
                status, message, rest_s = self._sent(path, body)
                if status == HTTPStatus.ACCEPTED:
                    return
                if left == 0 or status not in (0, HTTPStatus.SERVICE_UNAVAILABLE):
                    raise NotKeptError(status, message)
                time.sleep(min(rest_s, LONGEST_REST_S))

    def _sent(self, path: str, body: bytes) -> tuple[int, str, float]:
        try:
            answer = self._client.ask("POST", path, body)
        except ForeignError as error:
            return 0, str(error), 0.1
        wait = answer.headers.get("retry-after", "")
        return answer.status, _message(answer), float(wait) if wait.isdecimal() else 0.1


def _message(answer: ForeignAnswer) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ForeignError, KeyError, TypeError):
        return "the answer is not that of tripletd"
