"""Stores that are asked in JSON over HTTP: connections that are kept, bounded in time, with another try where
that can help."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from daemon.exits import EX_UNAVAILABLE, UserError
from daemon.index.protocol import StoreAway, StoreRefused

if TYPE_CHECKING:
    import httpx

TRIES = 2
REST_S = 0.05
"""Between two tries."""
LATER = frozenset((408, 425, 429, 500, 502, 503, 504))
"""Statuses of a store that may answer the same question later."""
_LONGEST = 300


class RestStore:
    """A store at an address. name: for messages. transport: in the place of the network. timeout_s: of each
    try, to connect and to answer.

    Raises UserError where httpx is not installed.
    """

    def __init__(
        self,
        address: str,
        name: str,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
        connections: int,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._httpx = load_httpx()
        self.name = name
        limits = self._httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        self._client: httpx.Client = self._httpx.Client(
            base_url=address.rstrip("/") + "/",
            headers=dict(headers),
            timeout=timeout_s,
            limits=limits,
            transport=transport,
            trust_env=False,  # a proxy of the environment stands between us and the world, not the store
        )

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    def get(self, path: str) -> Any:
        """The JSON of an answer. Raises StoreAway and StoreRefused."""
        return self._asked("GET", path, None)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The same of a question with a body."""
        return self._asked("POST", path, body)

    def _asked(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        for left in reversed(range(TRIES)):
            try:
                answer = self._client.request(method, path, json=body)
            except self._httpx.TimeoutException as error:
                raise self._away("it took too long") from error
            except self._httpx.TransportError as error:
                if not left:
                    raise self._away(str(error) or type(error).__name__) from error
            else:
                if answer.status_code not in LATER:
                    return self._read(answer)
                if not left:
                    raise self._away(f"{answer.status_code}: {_reason(answer)}")
            time.sleep(REST_S)
        raise AssertionError("the last try returns or raises")

    def _read(self, answer: httpx.Response) -> Any:
        if answer.status_code >= 300:
            told = f"{self.name}: {answer.status_code}: {_reason(answer)}"
            raise StoreRefused(told, "compare [index] with the store")
        try:
            return answer.json()
        except ValueError as error:
            raise StoreRefused(
                f"{self.name}: what answers speaks no JSON", "see index.address: is it the store's own?"
            ) from error

    def _away(self, why: str) -> StoreAway:
        return StoreAway(f"{self.name} does not answer: {why}", "look after the store, or see index.address")


def _reason(answer: httpx.Response) -> str:
    """What a store says is wrong, in one line."""
    try:
        told: Any = answer.json()
        for name in ("error", "status"):
            told = told.get(name, told) if isinstance(told, dict) else told
        if isinstance(told, dict):
            causes = [*(told.get("root_cause") or []), told]
            reason = next((one["reason"] for one in causes if one.get("reason")), None)
            told = reason or told.get("error", told)
    except ValueError:
        told = answer.text
    return " ".join(str(told).split())[:_LONGEST]


def load_httpx() -> Any:
    """The library. Raises UserError where it is not installed."""
    try:
        import httpx
    except ImportError as error:
        raise UserError(
            f"a store over HTTP is configured, but httpx cannot be imported: {error}",
            "pip install 'tripletd[index]'",
            EX_UNAVAILABLE,
        ) from error
    return httpx
