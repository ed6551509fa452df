"""`/v1/versions`: what is served, and what could be."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from daemon.serve.http.aside import Aside
from daemon.serve.http.errors import JSON, from_failure
from daemon.serve.http.ports import Overviews
from daemon.serve.http.schemas import Versions

_PATIENCE_S = 10.0


class VersionList:
    """Every alias with what it answers with, every kept version with its names and measures."""

    def __init__(self, overviews: Overviews) -> None:
        self._overviews, self._aside = overviews, Aside(1, _PATIENCE_S)

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
