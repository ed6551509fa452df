"""`/v1/models/*`: promote, roll back, pin and prune, for whoever has the token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from daemon.serve.http.aside import Aside
from daemon.serve.http.auth import TokenGuard
from daemon.serve.http.body import Bodies
from daemon.serve.http.changes import Collected, GcRequest, Moved, PinRequest, PromoteRequest, RollbackRequest
from daemon.serve.http.errors import JSON, from_failure
from daemon.serve.http.ports import Administration

_PATIENCE_S = 60.0  # a promotion reads and verifies a whole version


class Models:
    """Changes of what is served; one after another, the token is looked at before anything else."""

    def __init__(self, administration: Administration, guard: TokenGuard, bodies: Bodies) -> None:
        self._do, self._guard, self._bodies = administration, guard, bodies
        self._aside = Aside(1, _PATIENCE_S)

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
