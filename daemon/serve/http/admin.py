"""`/v1/models/*`: promote, roll back, pin and prune, for whoever has the token."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from daemon.exits import UserError
from daemon.serve.http.auth import TokenGuard
from daemon.serve.http.body import read_model
from daemon.serve.http.errors import JSON, Problem, from_user_error
from daemon.serve.http.limits import Limits
from daemon.serve.http.ports import Administration
from daemon.serve.http.schemas import Collected, GcRequest, Moved, PinRequest, PromoteRequest, RollbackRequest

_PATIENCE_S = 60.0  # a promotion reads and verifies a whole version


class Models:
    """Changes of what is served; one after another, the token is looked at before anything else."""

    def __init__(self, administration: Administration, guard: TokenGuard, limits: Limits) -> None:
        self._do, self._guard, self._limits = administration, guard, limits
        self._turn = asyncio.Lock()

    async def promote(self, request: Request) -> Response:
        """POST /v1/models/promote"""
        self._guard.check(request)
        asked = await read_model(request, PromoteRequest, self._limits)
        do = self._do.promote
        return await self._act(lambda: do(asked.version, asked.alias, asked.reason, asked.dry_run), Moved)

    async def rollback(self, request: Request) -> Response:
        """POST /v1/models/rollback"""
        self._guard.check(request)
        asked = await read_model(request, RollbackRequest, self._limits)
        do = self._do.rollback
        return await self._act(lambda: do(asked.to, asked.alias, asked.reason, asked.dry_run), Moved)

    async def pin(self, request: Request) -> Response:
        """POST /v1/models/pin"""
        self._guard.check(request)
        asked = await read_model(request, PinRequest, self._limits)
        do = self._do.pin
        return await self._act(lambda: do(asked.version, asked.alias, asked.reason, asked.dry_run), Moved)

    async def gc(self, request: Request) -> Response:
        """POST /v1/models/gc"""
        self._guard.check(request)
        asked = await read_model(request, GcRequest, self._limits)
        return await self._act(lambda: self._do.gc(asked.dry_run), Collected)

    async def _act(self, action: Callable[[], Mapping[str, Any]], answer: type[BaseModel]) -> Response:
        try:
            async with asyncio.timeout(_PATIENCE_S), self._turn:
                done = await run_in_threadpool(action)
        except TimeoutError:
            message = f"no end after {_PATIENCE_S:g} s; it may still happen"
            raise Problem(503, "too_slow", message, None, "look at /v1/versions", retry_after=True) from None
        except UserError as error:
            raise from_user_error(error) from None
        return Response(answer.model_validate(done).model_dump_json(), media_type=JSON)
