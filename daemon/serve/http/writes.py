"""`/v1/impressions` and `/v1/clicks`: what users were shown and clicked, kept before it is answered.

A page writes with `navigator.sendBeacon`: it can set no header, and sends text/plain, for which a browser
asks nobody beforehand. So the token may stand in the body, the type of the body is not looked at, and the
origin that a browser names is compared (`AllowedOrigins`), not only in what is answered to a browser that
asks first.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from daemon.runtime.doors import CLICK
from daemon.serve.http.errors import JSON, RETRY_AFTER_S, Problem
from daemon.serve.http.guard import AllowedOrigins, TokenGuard, check_key
from daemon.serve.http.limits import RequestBodies
from daemon.serve.http.parts import Writes
from daemon.serve.http.schemas import Accepted, ClicksRequest, ImpressionsRequest
from daemon.serve.writes.queue import NotWritten
from daemon.serve.writes.spool import SpoolRecord, click_record, impression_record

LOG_WAIT_S = 1.0
"""An answer waits this long for its own record; after that it goes out and says that it was not logged."""
FULL_RETRY_S = 60
"""Retry-After of a full spool: people have to make room first."""
_ID_BYTES = 16


class ImpressionLog:
    """Keeps what answers have shown, for `log`: the request writes, so it has to show what writers show."""

    def __init__(self, writes: Writes | None, tokens: TokenGuard, origins: AllowedOrigins) -> None:
        self._writes, self._tokens, self._origins = writes, tokens, origins

    def check(self, headers: Headers, key: str | None, has_id: bool) -> str | None:
        """Who the token was given to. Raises Problem: 422 where nothing can be logged, 401 or 403 for who may
        not write."""
        self._origins.check(headers)
        grant = self._tokens.check(headers, CLICK)
        check_key(grant, key, "key")
        if self._writes is None:
            remedy = "set serve.writes.enabled and restart serve"
            raise Problem(422, "not_logged", "writing is switched off", "log", remedy)
        if not has_id:
            remedy = "ask by id, or post the impression to /v1/impressions with an id for its query"
            raise Problem(422, "not_logged", "a query without an id is not logged", "log", remedy)
        return None if grant is None else grant.holder

    def new_id(self) -> str:
        """An id for a list that has none: 128 random bits."""
        return secrets.token_urlsafe(_ID_BYTES)

    async def keep(
        self, impression: str, query: str, shown: Sequence[str], key: str | None, source: str | None
    ) -> bool:
        """Whether the list is on the disk. Never fails: an answer is worth more than its record."""
        assert self._writes is not None
        record = impression_record(impression, _now_ms(), query, shown, key=key, source=source)
        return await _put(self._writes, "impression", [record], LOG_WAIT_S) is None


async def _put(
    writes: Writes, event: str, records: Sequence[SpoolRecord], wait_s: float
) -> NotWritten | None:
    """Wait until records are durable, `wait_s` at most, and count them; why they are not, None where they
    are."""
    try:
        async with asyncio.timeout(wait_s):
            await asyncio.shield(asyncio.wrap_future(writes.queue.put(records)))
    except NotWritten as error:
        failed = error
    except TimeoutError:
        failed = NotWritten("slow", f"nothing was confirmed within {wait_s:g} s")
    else:
        writes.metrics.written.labels(event).inc(len(records))
        return None
    writes.metrics.refused.labels(failed.reason).inc()
    return failed


class WriteEndpoints:
    """Takes impressions and clicks.

    writes: None answers 403, writing is switched off. answer_s: how long a request waits for the disk.
    """

    def __init__(
        self, writes: Writes | None, tokens: TokenGuard, bodies: RequestBodies, answer_s: float
    ) -> None:
        self._writes, self._tokens, self._bodies = writes, tokens, bodies
        self._answer_s = answer_s

    async def impressions(self, request: Request) -> Response:
        """POST /v1/impressions"""
        writes = self._switched_on()
        async with self._bodies.read(request, ImpressionsRequest, lines=True) as asked:
            grant = self._tokens.check(request.headers, CLICK, in_body=asked.token)
            _check_few("impressions", len(asked.impressions), writes.batch_max)
            for place, one in enumerate(asked.impressions):
                check_key(grant, one.key, f"impressions[{place}].key")
            records = [
                impression_record(
                    one.impression,
                    _now_ms() if one.ts is None else one.ts,
                    one.query,
                    one.shown,
                    propensity=one.propensity,
                    source=one.source or (None if grant is None else grant.holder),
                    key=one.key,
                )
                for one in asked.impressions
            ]
            return await self._kept(writes, "impression", records)

    async def clicks(self, request: Request) -> Response:
        """POST /v1/clicks"""
        writes = self._switched_on()
        async with self._bodies.read(request, ClicksRequest, lines=True) as asked:
            grant = self._tokens.check(request.headers, CLICK, in_body=asked.token)
            _check_few("clicks", len(asked.clicks), writes.batch_max)
            keys = None if grant is None else grant.keys
            for place, one in enumerate(asked.clicks):
                if one.key is not None:
                    check_key(grant, one.key, f"clicks[{place}].key")
            records = [
                click_record(
                    one.impression,
                    _now_ms() if one.ts is None else one.ts,
                    one.object,
                    keys if one.key is None else {one.key},
                )
                for one in asked.clicks
            ]
            return await self._kept(writes, "click", records)

    def _switched_on(self) -> Writes:
        if self._writes is None:
            remedy = "set serve.writes.enabled and restart serve"
            raise Problem(403, "writes_off", "writing over HTTP is switched off", None, remedy, close=True)
        return self._writes

    async def _kept(self, writes: Writes, event: str, records: Sequence[SpoolRecord]) -> Response:
        """202 once the records are durable. Raises Problem 503."""
        failed = await _put(writes, event, records, self._answer_s)
        if failed is None:
            return Response(Accepted(accepted=len(records)).model_dump_json(), 202, media_type=JSON)
        again = FULL_RETRY_S if failed.reason == "spool_full" else RETRY_AFTER_S
        remedy = "send it again with the same ids"
        raise Problem(503, f"writes_{failed.reason}", str(failed), None, remedy, retry_after=again)


def _check_few(field: str, found: int, most: int) -> None:
    if found > most:
        message = f"{field}: {found} of them, at most {most} are taken"
        remedy = "send several requests, or raise serve.writes.batch_max"
        raise Problem(422, "too_many", message, field, remedy)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
