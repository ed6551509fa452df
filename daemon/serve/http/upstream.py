"""The program that makes vectors of texts. What goes wrong there is told to the client in our words and under
our status; the upstream's own words go to the log."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

import structlog

from daemon.serve.http.errors import RETRY_AFTER_S, Problem
from daemon.serve.http.limits import HttpMetrics
from streams.foreign_http import ForeignAnswer, ForeignClient, ForeignError, ForeignServer

log = structlog.get_logger("tripletd.embeddings")

SAY_AGAIN_S = 60.0
"""How often the log repeats that the upstream fails for the same reason."""
REFUSED = (400, 413, 422)
"""Statuses of an upstream that does not take the texts."""
_CREDENTIALS = (401, 402, 403, 407)
_RUNS = "check that the server of embeddings.upstream is running"
_SHAPE = "check that embeddings.upstream is the base URL of an API like OpenAI's"
_REMEDIES: Mapping[str, str] = {
    "unreachable": _RUNS,
    "timeout": "ask again; embeddings.timeout is the limit",
    "too_large": "ask for fewer texts at a time, or raise embeddings.answer",
    "credentials": "the operator of this server has to correct the key in the variable of embeddings.key_env",
    "redirect": "the operator of this server has to set embeddings.upstream to the address of the redirect",
    "size": "the operator of this server has to use the model that embedded the catalog",
    "status": "the reason is in the log of this server",
}


class Upstream:
    """Asks one server. Belongs to the event loop, but for its making."""

    def __init__(self, server: ForeignServer, metrics: HttpMetrics) -> None:
        self._client, self._metrics = ForeignClient(server), metrics
        self._said: dict[str, float] = {}
        self.close = self._client.close

    async def embeddings(self, body: bytes, *, last: bool = True) -> ForeignAnswer:
        """The answer 200 to a request in OpenAI's shape; unless this is the `last` way to ask, also one of
        `REFUSED`. Raises Problem: 504 where it is late, 502 where there is none, or it does not concern the
        texts, else its status."""
        start, status = time.perf_counter(), "unreachable"
        try:
            answer = await self._client.ask("POST", "/embeddings", body)
            status = str(answer.status) if answer.status in _KNOWN else "other"
        except ForeignError as error:
            status = error.reason
            raise self.unusable(error.reason, str(error)) from None
        finally:
            self._metrics.record_upstream(status, time.perf_counter() - start)
        if answer.status == 200 or (answer.status in REFUSED and not last):
            return answer
        raise self._refusal(answer)

    def unusable(self, reason: str, how: str, detail: str = "") -> Problem:
        """The error of an answer that is of no use, counted by its reason. detail: the upstream's words."""
        self._tell(reason, how, detail)
        code = {"timeout": "slow", "header": "malformed", "encoded": "malformed"}.get(reason, reason)
        status, again = (504, 0) if reason == "timeout" else (502, RETRY_AFTER_S * (reason == "unreachable"))
        message = f"the upstream of embeddings cannot be used: {how}"
        return Problem(
            status, f"upstream_{code}", message, None, _REMEDIES.get(reason, _SHAPE), retry_after=again
        )

    def _refusal(self, answer: ForeignAnswer) -> Problem:
        status, how = answer.status, f"it answers {answer.status}"
        if status in _CREDENTIALS:
            return self.unusable("credentials", "it refuses this server's key", f"{how}: {answer.text}")
        if 300 <= status < 400:
            return self.unusable(
                "redirect", "it answers with a redirect", answer.headers.get("location", "")[:300]
            )
        if status not in (*REFUSED, 404, 429, 503):
            return self.unusable("status", how, answer.text)
        self._tell(f"answer_{status}", how, answer.text)
        wait = answer.headers.get("retry-after", "")
        again = (int(wait) if re.fullmatch("[0-9]{1,5}", wait) else 0) or RETRY_AFTER_S * (status == 503)
        return Problem(status, "upstream_refused", *_OF_REQUEST[status], retry_after=again)

    def _tell(self, reason: str, how: str, detail: str) -> None:
        self._metrics.upstream_failures.labels(reason).inc()
        now = time.monotonic()
        if now - self._said.get(reason, float("-inf")) > SAY_AGAIN_S:
            self._said[reason] = now
            log.warning("the upstream of embeddings fails", reason=reason, why=how, answer=detail)


_KNOWN = frozenset((200, 400, 401, 403, 404, 413, 422, 429, 500, 502, 503, 504))
_TEXTS = "the upstream does not take this request; its reason is in the log of this server"
_OF_REQUEST = {
    400: (_TEXTS, "input", "see how many texts its model takes, how long they may be, and which fields"),
    404: ("the upstream has no such model, or no route /embeddings", "model", "see embeddings.models"),
    413: ("the request is too large for the upstream", "input", "send fewer texts at a time"),
    422: (_TEXTS, "input", "see how many texts its model takes, how long they may be, and which fields"),
    429: ("the upstream is asked too often", None, "ask again later"),
    503: ("the upstream is busy", None, "ask again later"),
}
"""By status: what the client is told, which field of the request it concerns, and what to do."""
