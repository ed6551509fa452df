"""The routes of the page: `/` and its files, and `/v1/page/*` with its data."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from checkpoints.errors import CheckpointError
from daemon.serve.page.answers import answer, refuse
from daemon.serve.page.asked import BadField
from daemon.serve.page.endpoints import PageData
from daemon.serve.page.sources import PageSources
from daemon.serve.page.static import INDEX, StaticFile, static_files

Endpoint = Callable[[Request], Response]


def page_routes(sources: PageSources) -> list[BaseRoute]:
    """Routes to mount at the application's root.

    `GET /` and `GET /page/{name}` (files known by name, held in memory), `GET /v1/page/overview`, `/curves`,
    `/curves.csv`, `/series`, `/versions`, `/objects`, `/explore` (JSON) and `/image?id=`. No request names a
    file. Every function blocks for a moment, so Starlette runs it in a thread.
    """
    files, data = static_files(), PageData(sources)

    def index(request: Request) -> Response:
        return _file(request, files[INDEX])

    def static(request: Request) -> Response:
        found = files.get(request.path_params["name"])
        return _not_here() if found is None else _file(request, found)

    endpoints: dict[str, Endpoint] = {
        "overview": data.overview,
        "curves": data.curves,
        "curves.csv": data.curves_csv,
        "series": data.series,
        "versions": data.versions,
        "objects": data.objects,
        "explore": data.explore,
        "image": data.image,
    }
    return [
        Route("/", index, methods=["GET"]),
        Route("/page/{name:path}", static, methods=["GET"]),
        *(Route(f"/v1/page/{name}", _answered(make), methods=["GET"]) for name, make in endpoints.items()),
    ]


def _answered(endpoint: Endpoint) -> Endpoint:
    """The errors of the asker, and of a store that cannot be read, as answers."""

    def inner(request: Request) -> Response:
        try:
            return endpoint(request)
        except BadField as error:
            return refuse(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid", str(error), error.field)
        except CheckpointError as error:
            told = f"the versions cannot be read now: {error}"
            return refuse(HTTPStatus.SERVICE_UNAVAILABLE, "store", told)

    return inner


def _file(request: Request, file: StaticFile) -> Response:
    return answer(request, file.body, file.content_type, file.tag)


def _not_here() -> Response:
    return refuse(HTTPStatus.NOT_FOUND, "not_found", "there is no such file of the page", "", "see /")
