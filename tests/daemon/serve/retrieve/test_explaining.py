"""What a hit's reasons say: the shares of the views sum to the score, and version 0 is version 0."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from daemon.replica.view import ModelId, View
from daemon.serve.items.snapshot import resolve
from daemon.serve.query import ExplainedId, HitClicks, Query
from daemon.serve.retrieve import Searcher
from daemon.serve.retrieve.explaining import Clicks, Explainer
from learners import ServingForm
from learners.forms.quadratic import DiagonalForm
from learners.maps.base import OwnRanking
from streams.event import SpaceSpec, ViewSpec
from tests.daemon.serve.items.objects import identity
from tests.daemon.serve.retrieve.makers import DIM, Items, backing_off, learned, several_parts
from tests.learners.examples import block

BLOCKS = {"text": range(10), "image/0": range(10, 16), "image/1": range(16, DIM)}


def searcher(items: Items, own: OwnRanking | None = None, clicks: Clicks | None = None) -> Searcher:
    space = SpaceSpec("s", (ViewSpec("x", items.kind, DIM),))  # type: ignore[arg-type]
    fitted = identity(space)

    def lookup(queries: Any, snapshot: Any, maps: Any) -> Any:
        return resolve(queries, snapshot, maps, space=space, fitted=fitted)

    return Searcher({}, items.snapshot, lookup, explainer=Explainer(BLOCKS, own, clicks))


def view_of(form: Any) -> View:
    return View(ModelId(3, 0, None, 3), "map", form, 3)


def forms() -> dict[str, Any]:
    W = learned(1)
    psd = (W @ W.T).astype(np.float32)
    weights = np.random.default_rng(0).uniform(0.1, 3, DIM).astype(np.float32)
    return {
        "normalised": ServingForm.from_matrix(W, True),
        "backing off": backing_off(W),
        "raw": ServingForm.from_matrix(W, False),
        "distance": replace(ServingForm.from_matrix(psd, False), distance=True),
        "diagonal": DiagonalForm(weights, True),
        "diagonal distance": DiagonalForm(weights, False, True),
    }


def test_clicks_are_asked_for_with_what_is_nearest_by_version_0() -> None:
    items, asked_for = several_parts("dense"), []

    def told(query: str | None, near: Any, objects: Any, key: str | None = None) -> list[HitClicks]:
        asked_for.append((query, list(near), list(objects), key))
        return [HitClicks(None, None, place, 0, 5) for place in range(len(objects))]

    hits = asked(searcher(items, clicks=told), view_of(forms()["normalised"]), id="a7", k=4)
    cosine = view_of(DiagonalForm(np.ones(DIM, np.float32), True))
    nearest = searcher(items).search_view(cosine, [Query(id="a7", k=20)]).results[0]
    assert asked_for == [("a7", [hit.id for hit in nearest], [hit.id for hit in hits], None)]  # type: ignore[union-attr]
    assert [hit.clicks.near_clicked for hit in hits if hit.clicks] == [0, 1, 2, 3]


def asked(one: Searcher, view: View, **more: Any) -> list[ExplainedId]:
    found = one.search_view(view, [Query(explain=True, **more)]).results[0]
    assert all(isinstance(hit, ExplainedId) for hit in found)  # type: ignore[union-attr]
    return list(found)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("name", list(forms()))
def test_the_shares_of_the_views_sum_to_the_score(kind: str, name: str) -> None:
    items, form = several_parts(kind), forms()[name]
    one, view = searcher(items), view_of(form)
    hits = asked(one, view, id="a7", k=20)
    plain = one.search_view(view, [Query(id="a7", k=20)]).results[0]
    assert [(hit.id, hit.score) for hit in hits] == [(hit.id, hit.score) for hit in plain]  # type: ignore[union-attr]
    for hit in hits:
        assert hit.shares is not None
        total = sum(share.contribution for share in hit.shares)
        assert total == pytest.approx(hit.score, abs=2e-5 * max(1, abs(hit.score)))


def test_a_share_is_that_of_its_columns_alone() -> None:
    items = several_parts("dense")
    W = learned(2)
    form = ServingForm.from_matrix(W, False)
    (hit,) = asked(searcher(items), view_of(form), id="a7", k=1)
    query, item = items.vectors["a7"].astype(float), items.vectors[hit.id].astype(float)
    S = form.fold(block(np.eye(DIM, dtype=np.float32), "dense")).astype(float)
    told = {share.views: share.contribution for share in hit.shares or ()}
    names, columns = list(BLOCKS), [slice(of.start, of.stop) for of in BLOCKS.values()]
    for a, name in enumerate(names):
        expected = query[columns[a]] @ S[columns[a], columns[a]] @ item[columns[a]]
        assert told[name,] == pytest.approx(expected, abs=1e-4)
        for b in range(a + 1, 3):
            both = query[columns[a]] @ S[columns[a], columns[b]] @ item[columns[b]]
            both += query[columns[b]] @ S[columns[b], columns[a]] @ item[columns[a]]
            assert told[name, names[b]] == pytest.approx(both, abs=1e-4)


def test_views_that_do_not_speak_to_each_other_are_not_named_together() -> None:
    hits = asked(searcher(several_parts("dense")), view_of(forms()["diagonal"]), id="a7", k=5)
    assert all([share.views for share in hit.shares or ()] == [(name,) for name in BLOCKS] for hit in hits)


METRIC = np.random.default_rng(5).uniform(0.2, 2, DIM).astype(np.float32)
BEFORE: dict[str, tuple[OwnRanking | None, DiagonalForm]] = {
    "cosine of the map": (None, DiagonalForm(np.ones(DIM, np.float32), True)),
    "own cosine": (OwnRanking("cosine", METRIC), DiagonalForm(METRIC, True)),
    "own inner product": (OwnRanking("inner_product", METRIC), DiagonalForm(METRIC, False)),
    "own distance": (OwnRanking("euclidean", METRIC), DiagonalForm(METRIC, False, True)),
}


@pytest.mark.parametrize("name", list(BEFORE))
@pytest.mark.parametrize(
    "more", [{}, {"tags": frozenset({"big"})}, {"exclude": frozenset({"a1", "b4"})}, {"k": 300}]
)
def test_version_0_has_its_own_score_and_rank(name: str, more: dict[str, Any]) -> None:
    own, form = BEFORE[name]
    items = several_parts("dense")
    one = searcher(items, own)
    hits = asked(one, view_of(forms()["normalised"]), id="a7", **{"k": 12, **more})
    zero = searcher(items).search_view(view_of(form), [Query(id="a7", **{**more, "k": 1000})]).results[0]
    ranks = {hit.id: rank for rank, hit in enumerate(zero, 1)}  # type: ignore[arg-type]
    scores = {hit.id: hit.score for hit in zero}  # type: ignore[union-attr]
    equal = [sum(other == scores[hit.id] for other in scores.values()) for hit in hits]
    for hit, ties in zip(hits, equal, strict=True):
        assert hit.zero_score == pytest.approx(scores[hit.id], abs=1e-5)
        assert hit.zero_rank == ranks[hit.id] or ties > 1  # those that tie share the best of their ranks


def test_included_objects_are_ranked_among_themselves() -> None:
    among = frozenset({"a1", "a2", "b3"})
    hits = asked(searcher(several_parts("dense")), view_of(forms()["normalised"]), id="a7", include=among)
    assert sorted(hit.zero_rank for hit in hits) == [1, 2, 3]


def test_what_changed_in_the_catalog_changes_the_ranks() -> None:
    items = several_parts("dense")
    one, view = searcher(items), view_of(forms()["diagonal"])
    first = asked(one, view, id="a7", k=3)
    items.remove([first[0].id])
    assert [hit.id for hit in asked(one, view, id="a7", k=2)] == [hit.id for hit in first[1:]]


def test_nothing_is_explained_where_nobody_asked() -> None:
    one, view = searcher(several_parts("dense")), view_of(forms()["raw"])
    plain, told = one.search_view(view, [Query(id="a7"), Query(id="a8", explain=True)]).results
    assert not any(isinstance(hit, ExplainedId) for hit in plain)  # type: ignore[union-attr]
    assert all(isinstance(hit, ExplainedId) for hit in told)  # type: ignore[union-attr]
