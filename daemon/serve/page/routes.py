"""The routes of the page: `/` and its files, and `/v1/page/*` with its data."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from checkpoints.store import CheckpointError
from daemon.serve.http.errors import Problem
from daemon.serve.http.guard import RATINGS_PATH, REPORT_PATH, grant_of
from daemon.serve.http.limits import HttpLimits, RequestBodies
from daemon.serve.http.offload import BoundedThreads
from daemon.serve.page.answers import HEADERS, LOOK_AGAIN_S, answer, tag_of
from daemon.serve.page.data import PageData
from daemon.serve.page.rating import MOST_BODY, RatingEndpoints, RatingSent
from daemon.serve.page.sources import PageSources

Endpoint = Callable[[Request], Response]
Handler = Callable[[Request], Awaitable[Response]]

QUICK, LOOKS = 2, 4
"""Threads for what reads memory and the store (few: they take turns at the interpreter with those that
answer), and for what mostly waits for a look of its own."""
QUICK_TIMEOUT_S, LOOKS_TIMEOUT_S = 30.0, 130.0
"""Longest waits for both; a look opens two versions, each within a minute."""
MOST_WAITING = 32
"""Requests of one kind at once, most of them waiting for a thread; more get 503."""
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


def page_routes(sources: PageSources) -> list[BaseRoute]:
    """Routes to mount at the application's root.

    `GET /` and `GET /page/{name}` (files known by name, held in memory), `GET /v1/page/overview`, `/curves`,
    `/curves.csv`, `/series`, `/versions`, `/keys`, `/objects`, `/explore`, `/diff` (JSON), `/image?id=`; and
    `/rate` with what belongs to it. No request names a file. What reads anything is done in threads: few, so
    that no number of visitors takes more than these from those who query.
    """
    known, data = static_files(), PageData(sources)

    async def index(request: Request) -> Response:
        return _file(request, known[INDEX])

    async def static(request: Request) -> Response:
        found = known.get(request.path_params["name"])
        if found is None:
            problem = Problem(404, "not_found", "there is no such file of the page", remedy="see /")
            return problem.response(HEADERS)
        return _file(request, found)

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
    kinds = ((quick, QUICK, QUICK_TIMEOUT_S), (looks, LOOKS, LOOKS_TIMEOUT_S))
    made: list[BaseRoute] = [
        Route("/", index, methods=["GET"]),
        Route("/page/{name:path}", static, methods=["GET"]),
        *_rating_routes(sources, known),
    ]
    for endpoints, threads, timeout_s in kinds:
        pool = BoundedThreads(threads, timeout_s, MOST_WAITING - threads)
        for name, endpoint in endpoints.items():
            made.append(Route(f"/v1/page/{name}", _handler(pool, endpoint), methods=["GET"]))
    return made


RATE, REPORT = "/rate", "/rate/report"


def _rating_routes(sources: PageSources, known: Mapping[str, StaticFile]) -> list[BaseRoute]:
    """`/rate` and `/rate/report` with their data; 403 where rating is switched off."""
    if sources.ratings is None:
        return [Route(path, _not_rated, methods=["GET"]) for path in (RATE, REPORT)]
    endpoints = RatingEndpoints(sources.ratings, sources.objects)
    bodies = RequestBodies(HttpLimits(body_bytes=MOST_BODY, bodies_bytes=16 * MOST_BODY), None)
    looks = BoundedThreads(LOOKS, LOOKS_TIMEOUT_S, MOST_WAITING - LOOKS)
    writes = BoundedThreads(1, QUICK_TIMEOUT_S, MOST_WAITING - 1)
    reports = BoundedThreads(1, QUICK_TIMEOUT_S, QUICK)

    async def sent(request: Request) -> Response:
        try:
            async with bodies.read(request, RatingSent) as rating:
                grant = grant_of(request.scope)
                token = None if grant is None else grant.name
                return await writes.run(partial(endpoints.keep, request, rating, token))
        except Problem as problem:
            return problem.response(HEADERS)

    def page(name: str) -> Handler:
        async def handler(request: Request) -> Response:
            return _file(request, known[name])

        return handler

    return [
        Route(RATE, page("rate.html"), methods=["GET"]),
        Route(REPORT, page("report.html"), methods=["GET"]),
        Route(f"{RATINGS_PATH}/next", _handler(looks, endpoints.next), methods=["GET"]),
        Route(RATINGS_PATH, sent, methods=["POST"]),
        Route(REPORT_PATH, _handler(reports, endpoints.report), methods=["GET"]),
    ]


async def _not_rated(request: Request) -> Response:
    remedy = "set serve.ratings.enabled and restart serve"
    return Problem(403, "ratings_off", "rating is switched off", None, remedy).response(HEADERS)


def _handler(threads: BoundedThreads, endpoint: Endpoint) -> Handler:
    """The endpoint, called in a thread; what it raises becomes an answer."""

    async def handler(request: Request) -> Response:
        try:
            return await threads.run(partial(endpoint, request))
        except Problem as problem:
            return problem.response(HEADERS)
        except CheckpointError as error:
            message = f"the versions cannot be read now: {error}"
            return Problem(503, "store", message, retry_after=LOOK_AGAIN_S).response(HEADERS)

    return handler


def static_files() -> Mapping[str, StaticFile]:
    """Every file by its name below `static/`, such as "vendor/uPlot.esm.js"; no other file is served."""
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


def _file(request: Request, file: StaticFile) -> Response:
    return answer(request, file.body, file.content_type, file.tag)
