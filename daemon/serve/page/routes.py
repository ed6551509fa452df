"""The routes of the page: `/` and its files, and `/v1/page/*` with its data."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from importlib.resources import files
from importlib.resources.abc import Traversable

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from checkpoints.errors import CheckpointError
from daemon.serve.page.answers import answer, refuse, tag_of
from daemon.serve.page.asked import BadField
from daemon.serve.page.data import PageData
from daemon.serve.page.sources import CannotAnswer, PageSources

INDEX = "index.html"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file of the page."""

    body: bytes
    content_type: str
    tag: str


def static_files() -> Mapping[str, StaticFile]:
    """Every file by its name below `static/`, such as "vendor/uPlot.esm.js"."""
    found: dict[str, StaticFile] = {}
    _collect(files("daemon.serve.page") / "static", "", found)
    return found


def _collect(folder: Traversable, before: str, found: dict[str, StaticFile]) -> None:
    for entry in folder.iterdir():
        name = before + entry.name
        if entry.is_dir():
            _collect(entry, f"{name}/", found)
        elif (content_type := _TYPES.get("." + entry.name.rpartition(".")[2])) is not None:
            body = entry.read_bytes()
            found[name] = StaticFile(body, content_type, tag_of(body))


Endpoint = Callable[[Request], Response]
Handler = Callable[[Request], Awaitable[Response]]

QUICK, LOOKS = 2, 4
"""Threads for what reads memory and the store (few: they take turns at the interpreter with those that
answer), and for what mostly waits for a look of its own."""
MOST_WAITING = 32
"""Requests of one lane at once, most of them waiting for a thread; more are told to come again."""
_STATUS = {
    "unknown_version": HTTPStatus.NOT_FOUND,
    "unknown_object": HTTPStatus.NOT_FOUND,
    "not_serving": HTTPStatus.SERVICE_UNAVAILABLE,
    "busy": HTTPStatus.SERVICE_UNAVAILABLE,
}


def page_routes(sources: PageSources) -> list[BaseRoute]:
    """Routes to mount at the application's root.

    `GET /` and `GET /page/{name}` (files known by name, held in memory), `GET /v1/page/overview`, `/curves`,
    `/curves.csv`, `/series`, `/versions`, `/keys`, `/objects`, `/explore`, `/diff` (JSON), `/image?id=`. No
    request names a file. What reads anything is done in threads: few, so that no number of people who look
    takes more than these from those who ask.
    """
    files, data = static_files(), PageData(sources)

    async def index(request: Request) -> Response:
        return _file(request, files[INDEX])

    async def static(request: Request) -> Response:
        found = files.get(request.path_params["name"])
        return _not_here() if found is None else _file(request, found)

    quick: dict[str, Endpoint] = {
        "overview": data.overview,
        "curves": data.curves,
        "curves.csv": data.curves_csv,
        "series": data.series,
        "versions": data.versions,
        "keys": data.keys,
        "image": data.image,
        "diff": data.diff,
    }
    looks: dict[str, Endpoint] = {"objects": data.objects, "explore": data.explore}
    lanes = ((_Lane(QUICK), quick), (_Lane(LOOKS), looks))
    return [
        Route("/", index, methods=["GET"]),
        Route("/page/{name:path}", static, methods=["GET"]),
        *(
            Route(f"/v1/page/{name}", lane.through(endpoint), methods=["GET"])
            for lane, endpoints in lanes
            for name, endpoint in endpoints.items()
        ),
    ]


class _Lane:
    """At most so many endpoints at once, each in a thread; few more may wait."""

    def __init__(self, threads: int) -> None:
        self._limiter, self._waiting = CapacityLimiter(threads), 0

    def through(self, endpoint: Endpoint) -> Handler:
        """The endpoint as a handler of the event loop; what it raises becomes an answer."""

        async def handler(request: Request) -> Response:
            if self._waiting >= MOST_WAITING:
                return refuse(HTTPStatus.SERVICE_UNAVAILABLE, "busy", "too many are looking at this page")
            self._waiting += 1
            try:
                return await to_thread.run_sync(_answered, endpoint, request, limiter=self._limiter)
            finally:
                self._waiting -= 1

        return handler


def _answered(endpoint: Endpoint, request: Request) -> Response:
    """The errors of the asker, and of a store that cannot be read, as answers."""
    try:
        return endpoint(request)
    except BadField as error:
        return refuse(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid", str(error), error.field)
    except CannotAnswer as error:
        return refuse(_STATUS.get(error.code, HTTPStatus.UNPROCESSABLE_ENTITY), error.code, str(error))
    except CheckpointError as error:
        told = f"the versions cannot be read now: {error}"
        return refuse(HTTPStatus.SERVICE_UNAVAILABLE, "store", told)


def _file(request: Request, file: StaticFile) -> Response:
    return answer(request, file.body, file.content_type, file.tag)


def _not_here() -> Response:
    return refuse(HTTPStatus.NOT_FOUND, "not_found", "there is no such file of the page", "", "see /")
