"""Every route says what asking it does; what costs or writes is not done for a page of another origin."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from starlette.routing import Route

from daemon.runtime.doors import SCOPES, Gate, TokenFile, add_token
from daemon.serve.http import Parts, Writes, create_app
from daemon.serve.http.guard import COSTS, EFFECTS, READS, WRITES
from daemon.serve.page.routes import page_routes
from daemon.serve.writes.queue import WriteMetrics, WriteQueue
from daemon.telemetry.server import Health
from tests.daemon.serve.http.test_embeddings import MODELS, settings, vector
from tests.daemon.serve.http.test_writes import Kept
from tests.daemon.serve.http.toy import Served, ToySearcher, ToyStore, Watched, running
from tests.daemon.serve.page.rated import rated_sources
from tests.daemon.serve.page.scene import Scene
from tests.harness.embedder import Embedder, embedding

ELSEWHERE = (
    {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
)
TEXTS: dict[str, Any] = {
    "/v1/embeddings": {"model": "shop-doc", "input": "a"},
    "/v1/rerank": {"model": "shop", "query": "a", "documents": ["b"]},
    "/v2/rerank": {"model": "shop", "query": "a", "documents": ["b"]},
}


def test_every_route_says_what_asking_it_does(tmp_path: Path) -> None:
    toy, metrics = ToySearcher(), WriteMetrics(CollectorRegistry())
    page = page_routes(rated_sources(Scene(tmp_path)))
    about: Any = toy, toy, Watched().answered, ToyStore(), ("stable",), Health(), CollectorRegistry()
    app = create_app(Parts(*about, page=page, writes=Writes(WriteQueue(Kept(), 10, metrics), metrics)))
    routes = {
        f"{method} {route.path}"
        for route in app.routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    said = [*chain.from_iterable(EFFECTS.values())]
    assert len(said) == len({*said})
    assert {*said} == routes, "a new route has to say whether it reads, costs or writes"
    assert not [one for one in EFFECTS[COSTS] if one.startswith("GET ")]


@pytest.fixture(scope="module")
def upstream() -> Iterator[Embedder]:
    with embedding(vector) as one:
        yield one


@pytest.fixture
def served(upstream: Embedder) -> Iterator[Served]:
    metrics = WriteMetrics(CollectorRegistry())
    queue = WriteQueue(Kept(), 10, metrics)
    with running(embedding=settings(upstream), models=MODELS, writes=Writes(queue, metrics)) as one:
        yield one
    queue.close()


@pytest.mark.parametrize("headers", ELSEWHERE, ids=str)
def test_no_page_of_another_origin_spends_or_writes(
    served: Served, upstream: Embedder, headers: dict[str, str]
) -> None:
    upstream.asked.clear()
    for route in (*EFFECTS[COSTS], *EFFECTS[WRITES]):
        method, path = route.split()
        if "Origin" not in headers and path in ("/v1/impressions", "/v1/clicks"):
            continue  # a browser names the origin of every POST
        body = json.dumps(TEXTS.get(path, {})).encode() if method == "POST" else None
        for kind in ("text/plain", "application/json"):
            status = served.ask(method, path, body, {"Content-Type": kind, **headers})[0]
            assert status in (401, 403, 415), route
            assert status == 403 or path.startswith("/v1/models/") or kind == "text/plain"
    for route in EFFECTS[READS]:
        assert served.ask(*route.split(), headers=headers)[0] != 403, route
    assert not upstream.asked


def test_programs_our_own_page_and_whoever_has_a_token_may(
    served: Served, upstream: Embedder, tmp_path: Path
) -> None:
    own = {"Origin": f"http://127.0.0.1:{served.port}", "Sec-Fetch-Site": "same-origin"}
    for path, body in TEXTS.items():
        for headers in ({}, own, {"Content-Type": "application/x-www-form-urlencoded"}):
            assert served.ask("POST", path, body, headers)[0] == 200
    tokens = tmp_path / "tokens.json"
    bearer = {"Authorization": f"Bearer {add_token(tokens, 'all', SCOPES)}"}
    with running(embedding=settings(upstream), models=MODELS, gate=Gate(TokenFile(tokens))) as behind:
        for path, body in TEXTS.items():
            assert behind.ask("POST", path, body, bearer | ELSEWHERE[0])[0] == 200
            assert behind.ask("POST", path, body, own)[0] == 401
