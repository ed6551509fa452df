"""`/v1/versions`: what is served and kept; `/v1/models/*`: promote, roll back, pin and prune, with the
token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from daemon.serve.http.errors import JSON, from_failure
from daemon.serve.http.guard import TokenGuard
from daemon.serve.http.offload import BoundedThreads
from daemon.serve.http.ports import Administration, Overviews
from daemon.serve.http.request import RequestBodies
from daemon.serve.http.schemas import (
    Collected,
    GcRequest,
    Moved,
    PinRequest,
    PromoteRequest,
    RollbackRequest,
    Versions,
)

CHANGE_TIMEOUT_S = 60.0  # a promotion reads and verifies a whole version


class ModelEndpoints:
    """Changes of what is served; one after another, the token is looked at before anything else."""

    def __init__(self, administration: Administration, guard: TokenGuard, bodies: RequestBodies) -> None:
        self._do, self._guard, self._bodies = administration, guard, bodies
        self._aside = BoundedThreads(1, CHANGE_TIMEOUT_S)

    async def promote(self, request: Request) -> Response:
        """POST /v1/models/promote"""
        self._guard.check(request)
        async with self._bodies.read(request, PromoteRequest) as asked:
            do = self._do.promote
            return await self._act(lambda: do(asked.version, asked.alias, asked.reason, asked.dry_run), Moved)

    async def rollback(self, request: Request) -> Response:
        """POST /v1/models/rollback"""
        self._guard.check(request)
        async with self._bodies.read(request, RollbackRequest) as asked:
            do = self._do.rollback
            return await self._act(lambda: do(asked.to, asked.alias, asked.reason, asked.dry_run), Moved)

    async def pin(self, request: Request) -> Response:
        """POST /v1/models/pin"""
        self._guard.check(request)
        async with self._bodies.read(request, PinRequest) as asked:
            do = self._do.pin
            return await self._act(lambda: do(asked.version, asked.alias, asked.reason, asked.dry_run), Moved)

    async def gc(self, request: Request) -> Response:
        """POST /v1/models/gc"""
        self._guard.check(request)
        async with self._bodies.read(request, GcRequest) as asked:
            return await self._act(lambda: self._do.gc(asked.dry_run), Collected)

    async def _act(self, action: Callable[[], Mapping[str, Any]], answer: type[BaseModel]) -> Response:
        try:
            done = await self._aside.run(action)
        except Exception as error:
            problem = from_failure(error)
            if problem is None:
                raise
            raise problem from None
        return Response(answer.model_validate(done).model_dump_json(), media_type=JSON)


LISTING_TIMEOUT_S = 10.0


class VersionList:
    """Every alias with what it answers with, every kept version with its names and measures."""

    def __init__(self, overviews: Overviews) -> None:
        self._overviews, self._aside = overviews, BoundedThreads(1, LISTING_TIMEOUT_S)

    async def get(self, request: Request) -> Response:
        """GET /v1/versions"""
        try:
            found = Versions.model_validate(await self._aside.run(self._overviews.versions))
        except Exception as error:
            problem = from_failure(error)
            if problem is None:
                raise
            raise problem from None
        return Response(found.model_dump_json(), media_type=JSON)
