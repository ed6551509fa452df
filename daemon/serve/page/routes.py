"""The routes of the page: `/` and its files, and `/v1/page/*` with its data."""

from __future__ import annotations

from starlette.routing import BaseRoute

from daemon.serve.page.sources import PageSources


def page_routes(sources: PageSources) -> list[BaseRoute]:
    """Routes to mount at the application's root.

    `GET /` and `GET /page/{name}` (files known by name, held in memory), `GET /v1/page/overview`, `/curves`,
    `/series`, `/versions`, `/objects`, `/explore` (JSON) and `/image/{id}`. No request names a file.
    """
    raise NotImplementedError
