"""`/v1/versions`: what is served, and what could be."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from daemon.serve.http.errors import JSON
from daemon.serve.http.ports import Overviews
from daemon.serve.http.schemas import Versions


class VersionList:
    """Every alias with what it answers with, every kept version with its names and measures."""

    def __init__(self, overviews: Overviews) -> None:
        self._overviews = overviews

    async def get(self, request: Request) -> Response:
        """GET /v1/versions"""
        found = Versions.model_validate(await run_in_threadpool(self._overviews.versions))
        return Response(found.model_dump_json(), media_type=JSON)
