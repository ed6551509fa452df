"""The same server over the real search: answers are those computed offline, refusals name the field."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from daemon.replica.view import ModelId
from daemon.serve.query import Answers, Query
from daemon.serve.retrieve import Searcher
from learners import ServingForm
from learners.block import against
from learners.forms.carried import CarriedForm
from learners.forms.quadratic import inverse_roots
from tests.daemon.serve.http.test_refusals import BODIES
from tests.daemon.serve.http.toy import Served, running
from tests.daemon.serve.retrieve.makers import DIM, Items, learned, searcher_of, several_parts, view_of

SIMILAR, BATCH = "/v1/similar", "/v1/similar/batch"


@dataclass
class Both:
    """One replica under both names."""

    searcher: Searcher

    def search(self, alias: str, queries: Sequence[Query], between: Callable[[], None]) -> Answers:
        return self.searcher.search("latest", queries, between)


@dataclass
class World:
    served: Served
    items: Items
    W: Any

    def nearest(self, query: Any, k: int, allowed: Sequence[str] | None = None) -> list[tuple[str, float]]:
        """By the serving form itself, every object scored: the ids and scores of the `k` best."""
        names, _ = self.items.block()
        rows = np.array([self.items.vectors[name] for name in names])
        scores = ServingForm.from_matrix(self.W, True).scores(np.asarray(query)[None], rows)[0]
        order = [n for n in np.argsort(-scores, kind="stable") if allowed is None or names[n] in allowed]
        return [(names[n], float(scores[n])) for n in order[:k]]


@pytest.fixture(scope="module", params=["dense", "sparse"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    items, W = several_parts(request.param), learned(1)
    searcher, _ = searcher_of(items, view_of(W, number=7))
    with running(searching=Both(searcher)) as served:
        yield World(served, items, W)


def vector(world: World, values: Any) -> Any:
    """As the view's kind is written in JSON."""
    if world.items.kind == "dense":
        return [float(value) for value in values]
    places = np.flatnonzero(values)
    return {"indices": places.tolist(), "values": [float(value) for value in np.asarray(values)[places]]}


def close(hits: Sequence[Any], expected: Sequence[tuple[str, float]]) -> None:
    assert [hit["id"] for hit in hits] == [name for name, _ in expected]
    np.testing.assert_allclose([hit["score"] for hit in hits], [score for _, score in expected], rtol=2e-4)


def test_by_vector_the_answer_is_the_one_computed_offline(world: World) -> None:
    rng = np.random.default_rng(5)
    for _ in range(5):
        values = rng.standard_normal(DIM).astype(np.float32)
        status, answer = world.served.post({"x": vector(world, values), "k": 7})
        assert (status, answer["version"], answer["base"]) == (200, "7", 7)
        close(answer["results"], world.nearest(values, 7))


def test_by_id_the_object_itself_is_left_out(world: World) -> None:
    status, answer = world.served.post({"id": "a15", "k": 5})
    expected = [one for one in world.nearest(world.items.vectors["a15"], 6) if one[0] != "a15"]
    assert status == 200
    close(answer["results"], expected[:5])


def test_a_filter_holds(world: World) -> None:
    red = [name for name, tags in world.items.tags.items() if "red" in tags and name in world.items.vectors]
    allowed = [name for name in red if name not in ("a3", "a15")]
    body = {"id": "a15", "k": 1000, "filter": {"tags": ["red"], "exclude": ["a3"]}}
    status, answer = world.served.post(body)
    assert status == 200
    close(answer["results"], world.nearest(world.items.vectors["a15"], 1000, allowed))


def test_a_batch_gives_what_single_questions_give(world: World) -> None:
    queries = [{"id": f"b{n}", "k": 1 + n % 9} for n in range(40) if n != 7] + [{"id": "b7"}]
    answers = world.served.post({"queries": queries}, BATCH)[1]["answers"]
    for query, together in zip(queries[:-1], answers, strict=False):
        assert together["results"] == world.served.post(query)[1]["results"]
    assert answers[-1]["error"]["field"] == "queries[39].id"  # it was removed


def test_what_the_server_refuses_is_refused_before_the_search(world: World) -> None:
    for path, body, status, code, field in BODIES:
        if code == "wrong_dim":  # the toy's own
            continue
        found, answer, _ = world.served.ask("POST", path, body)
        assert (found, answer["error"]["code"], answer["error"]["field"]) == (status, code, field), body[:80]


DENSE_REFUSED: list[tuple[Any, int, str]] = [
    ({"x": [1.0] * (DIM - 1)}, 422, "x"),
    ({"x": [1.0] * (DIM + 1)}, 422, "x"),
    ({"x": {"indices": [0], "values": [1]}}, 422, "x"),
    ({"x": [1e39] + [0] * (DIM - 1)}, 422, "x"),
    ({"x": [1e300] * DIM}, 422, "x"),
    ({"x": [10**400] + [0] * (DIM - 1)}, 422, "x[0]"),
    ({"views": {"y": [1.0] * DIM}}, 422, "views.x"),
    ({"views": {"x": [1.0] * DIM, "y": [1.0]}}, 422, "views"),
    ({"views": {"x": [1.0]}}, 422, "views.x"),
    ({"id": "nobody"}, 404, "id"),
    ({"id": "a55"}, 404, "id"),
]
SPARSE_REFUSED: list[tuple[Any, int, str]] = [
    ({"x": [1.0] * DIM}, 422, "x"),
    ({"x": {"indices": [DIM], "values": [1]}}, 422, "x.indices"),
    ({"x": {"indices": [0], "values": [1e39]}}, 422, "x.values"),
    ({"views": {"x": {"indices": [2**31 - 1], "values": [1]}}}, 422, "views.x.indices"),
    ({"id": "nobody"}, 404, "id"),
]


def test_what_the_space_does_not_know_is_refused_with_the_field(world: World) -> None:
    cases = DENSE_REFUSED if world.items.kind == "dense" else SPARSE_REFUSED
    for body, status, field in cases:
        found, answer = world.served.post(body)
        assert (found, answer["error"]["field"]) == (status, field), json.dumps(body)[:80]
        in_batch = world.served.post({"queries": [{"id": "a1"}, body]}, BATCH)[1]
        error = in_batch["error"] if "error" in in_batch else in_batch["answers"][1]["error"]
        assert error["field"] == f"queries[1].{field}"


def test_odd_vectors_are_answered_or_refused_and_never_a_bug(world: World) -> None:
    rng = np.random.default_rng(8)
    odd: list[Any] = [
        np.zeros(DIM),
        np.full(DIM, 1e-45),
        np.full(DIM, 1e15),
        -np.ones(DIM),
        np.full(DIM, 3e-39),
    ]
    odd += [rng.standard_normal(DIM) * 10.0 ** rng.integers(-30, 30, DIM) for _ in range(10)]
    for values in odd:
        status, answer = world.served.post({"x": vector(world, values.astype(np.float64))})
        assert status in (200, 422)
        if status == 200:
            assert all(hit["score"] is not None and np.isfinite(hit["score"]) for hit in answer["results"])
    assert world.served.metric("tripletd_http_bugs_total") == 0


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_an_answer_behind_a_version_can_be_recomputed_from_what_it_says(kind: str) -> None:
    items, W = several_parts(kind), {10: learned(1), 14: learned(1) + 0.1 * learned(2)}
    formed = replace(view_of(W[10], number=3), formed=10)
    searcher, replica = searcher_of(items)
    carried = CarriedForm.of(ServingForm.from_matrix(W[10]), W[10].copy())
    carried.state_matrix[:] = W[14]  # as steps change it
    served_now = replace(
        formed, model=ModelId(3, 4, None, 14), form=carried, prepared=searcher.prepare(formed)
    )
    replica.view = served_now
    with running(searching=Both(searcher)) as served:
        answer = served.post({"id": "a0", "k": 20, "alias": "latest"})[1]
    assert (answer["version"], answer["records"], answer["formed"], answer["exact"]) == ("3+4", 14, 10, True)

    at_form = ServingForm.from_matrix(W[answer["formed"]])
    form = CarriedForm.of(at_form, W[answer["formed"]].copy())
    form.state_matrix[:] = W[answer["records"]]
    names, block = items.block()
    query = block.take([names.index("a0")])
    root = inverse_roots(form.self_scores(query))
    scores = against(form.fold(query), block)[0] * root * inverse_roots(at_form.self_scores(block))
    known = dict(zip(names, scores.tolist(), strict=True))
    del known["a0"]
    best = sorted(known.items(), key=lambda one: -one[1])[:20]
    np.testing.assert_allclose([hit["score"] for hit in answer["results"]], [s for _, s in best], rtol=1e-4)
    assert {hit["id"] for hit in answer["results"][:15]} <= {name for name, _ in best}


def test_a_searcher_without_a_version_is_503() -> None:
    searcher, _ = searcher_of(several_parts("dense"))
    with running(searching=Both(searcher)) as served:
        status, answer, headers = served.ask("POST", SIMILAR, {"id": "a1"})
        assert (status, answer["error"]["code"], headers["retry-after"]) == (503, "not_serving", "1")
