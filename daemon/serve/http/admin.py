"""`/v1/versions`: what is served and kept; `/v1/models/*`: promote, roll back, pin, prune, with the token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from daemon.models.decide import Verb
from daemon.serve.http.errors import JSON, from_failure
from daemon.serve.http.guard import TokenGuard
from daemon.serve.http.limits import RequestBodies
from daemon.serve.http.offload import BoundedThreads
from daemon.serve.http.schemas import (
    Collected,
    GcRequest,
    Moved,
    PinRequest,
    PromoteRequest,
    RollbackRequest,
    Versions,
)
from daemon.serve.store import StoreActions

Moving: TypeAlias = PromoteRequest | RollbackRequest | PinRequest
LISTING_TIMEOUT_S = 10.0
CHANGE_TIMEOUT_S = 60.0  # a promotion reads and verifies a whole version


class AdminEndpoints:
    """Reads of the store, one after another; changes of it, one after another, behind the token."""

    def __init__(self, store: StoreActions, guard: TokenGuard, bodies: RequestBodies) -> None:
        self._store, self._guard, self._bodies = store, guard, bodies
        self._reads = BoundedThreads(1, LISTING_TIMEOUT_S)
        self._changes = BoundedThreads(1, CHANGE_TIMEOUT_S)

    async def versions(self, request: Request) -> Response:
        """GET /v1/versions"""
        return await _answer(self._reads, self._store.overview, Versions)

    def moving(self, verb: Verb, model: type[Moving]) -> Callable[[Request], Awaitable[Response]]:
        """POST /v1/models/{verb}"""

        async def handler(request: Request) -> Response:
            self._guard.check(request)
            async with self._bodies.read(request, model) as asked:
                version = asked.to if isinstance(asked, RollbackRequest) else asked.version
                wish = verb, asked.alias, version, asked.reason, asked.dry_run
                return await _answer(self._changes, lambda: self._store.move(*wish, by=_who(request)), Moved)

        return handler

    async def gc(self, request: Request) -> Response:
        """POST /v1/models/gc"""
        self._guard.check(request)
        async with self._bodies.read(request, GcRequest) as asked:
            return await _answer(self._changes, lambda: self._store.gc(asked.dry_run), Collected)


def _who(request: Request) -> str:
    """Who asked, in the ledger's words: behind a proxy it is the proxy."""
    return f"HTTP from {request.client.host}" if request.client else "HTTP"


async def _answer(
    threads: BoundedThreads, action: Callable[[], Mapping[str, Any]], answer: type[BaseModel]
) -> Response:
    """What the action returns, as this model. Raises Problem for a failure of the store or a refusal."""
    try:
        done = await threads.run(action)
    except Exception as error:
        problem = from_failure(error)
        if problem is None:
            raise
        raise problem from None
    return Response(answer.model_validate(done).model_dump_json(), media_type=JSON)
