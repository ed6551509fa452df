"""Search over a graph is as wide as it has to be for the version that asks, or gives way to exact search."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from daemon.replica.view import View
from daemon.serve.query import Query, QueryError, ScoredId
from daemon.serve.retrieve import GraphKeeper, GuardResult, Searcher
from daemon.serve.retrieve.part import Norms, choose_width, recall
from tests.daemon.serve.retrieve.graphed import (
    COUNT,
    DIM,
    clustered,
    keeper_of,
    searcher_over,
    strongly_changed,
)
from tests.daemon.serve.retrieve.makers import Items, learned, view_of

Scene = tuple[Items, GraphKeeper, Searcher, list[GuardResult]]
NAMES = [f"a{i}" for i in range(5, COUNT, 73)]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    heard: list[GuardResult] = []
    items = clustered()
    keeper = keeper_of(items, tmp_path_factory.mktemp("graphs"))
    return items, keeper, searcher_over(items, keeper, 0.95, heard.append), heard


def with_width(view: View, norms: Norms, width: int | None) -> View:
    return replace(view, prepared=replace(norms, graphs=replace(norms.graphs, width=width)))


def hits(searcher: Searcher, view: View, *queries: Query) -> list[list[ScoredId]]:
    results = searcher.search_view(view, queries).results
    return [list(one) for one in results if not isinstance(one, QueryError)]


def ids(searcher: Searcher, view: View, *queries: Query) -> list[list[str]]:
    return [[hit.id for hit in one] for one in hits(searcher, view, *queries)]


def found_share(searcher: Searcher, near: View, exact: View) -> float:
    queries = [Query(id=name, k=10) for name in NAMES]
    pairs = zip(ids(searcher, near, *queries), ids(searcher, exact, *queries), strict=True)
    return float(np.mean([len(set(some) & set(every)) / 10 for some, every in pairs]))


def test_a_strong_change_of_w_widens_the_walk_or_ends_in_exact_search(scene: Scene) -> None:
    _, _, searcher, heard = scene
    heard.clear()
    widths: list[int | None] = []
    for view in (view_of(np.eye(DIM, dtype=np.float32), 0), view_of(strongly_changed(), 1)):
        norms = searcher.prepare(view)
        widths.append(norms.graphs.width)
        exact, near = with_width(view, norms, None), replace(view, prepared=norms)
        assert found_share(searcher, near, exact) >= 0.94
    assert widths[0] is not None
    first, second = heard
    assert (first.model, first.items, first.width) == ("0", COUNT, widths[0])
    assert first.recall >= 0.95
    assert second.recall >= 0.95
    assert second.attempts[0][1] < first.attempts[0][1]
    assert widths[1] is None or widths[1] > widths[0]


def test_what_is_found_has_the_exact_score_and_says_how_it_was_found(scene: Scene) -> None:
    _, _, searcher, _ = scene
    view = view_of(learned(3, DIM), 2)
    norms = searcher.prepare(view)
    near, exact = with_width(view, norms, 32), with_width(view, norms, None)
    query = Query(id="a9", k=10)
    (some,), (every,) = hits(searcher, near, query), hits(searcher, exact, query)
    scores = {hit.id: hit.score for hit in every}
    assert len(set(scores) & {hit.id for hit in some}) >= 8
    assert all(scores[hit.id] == hit.score for hit in some if hit.id in scores)
    tagged, named = replace(query, tags=frozenset({"none"})), replace(query, include=frozenset({"a1"}))
    answers = searcher.search_view(near, [query, tagged, named])
    assert [one.exact for one in answers.each] == [False, True, True]
    assert [one.recall for one in answers.each] == [norms.graphs.recall, None, None]
    assert answers.results[1] == []
    answers = searcher.search_view(exact, [query])
    assert ([one.exact for one in answers.each], [one.recall for one in answers.each]) == ([True], [None])


def test_a_query_finds_the_same_alone_and_in_a_batch(scene: Scene) -> None:
    _, _, searcher, _ = scene
    view = view_of(np.eye(DIM, dtype=np.float32), 0)
    near = with_width(view, searcher.prepare(view), 16)
    queries = [
        Query(id=name, k=k) for name, k in zip(NAMES[:12], [1, 10, 11, 10, 25, 3, 10, 30, 2, 10, 7, 9])
    ]
    alone = [ids(searcher, near, query)[0] for query in queries]
    assert ids(searcher, near, *queries) == alone
    assert [len(one) for one in alone] == [query.k for query in queries]


def test_filters_find_all_that_there_is(tmp_path: Path) -> None:
    items = Items("dense", DIM)
    values = clustered().vectors
    tags = [("many",) if i % 2 else ("few",) if i % 100 == 0 else () for i in range(COUNT)]
    items.put(list(values), np.array(list(values.values())), tags)
    searcher = searcher_over(items, keeper_of(items, tmp_path), 0.5)
    view = view_of(np.eye(DIM, dtype=np.float32), 0)
    norms = searcher.prepare(view)
    near, exact = with_width(view, norms, 32), with_width(view, norms, None)
    half, few = (Query(id="a9", k=10, tags=frozenset({tag})) for tag in ("many", "few"))
    answers = searcher.search_view(near, [half, few])
    assert [one.exact for one in answers.each] == [False, True], "a selective filter is answered exactly"
    wanted = ids(searcher, exact, half, few)
    found = ids(searcher, near, half, few)
    assert found[1] == wanted[1]
    assert len(set(found[0]) & set(wanted[0])) >= 9
    (order,) = ids(searcher, exact, Query(id="a9", k=400))
    seen = Query(id="a9", k=10, exclude=frozenset(order[:390]))
    assert ids(searcher, near, seen)[0] == order[390:400], "too little is left in the pool: exactly then"
    assert ids(searcher, near, replace(seen, exclude=frozenset(order[:5]))) == [order[5:15]]


def test_the_narrowest_width_that_is_enough_is_taken() -> None:
    by_width = {16: (0.5, 0.1), 20: (0.9, 0.1), 24: (0.96, 0.02), 28: (0.97, 0.01), 32: (0.97, 0.01)}
    by_width |= {40: (0.98, 0.01)}
    attempts = tuple((width, share) for width, (share, _) in by_width.items())
    found = choose_width(by_width.__getitem__, 40 * 64, 0.94)
    assert (found.width, found.recall) == (24, 0.96)
    assert found.attempts == attempts[:3]
    assert choose_width(by_width.__getitem__, 40 * 64, 0.95).width == 28  # .96 may as well be .94
    assert choose_width(by_width.__getitem__, 40 * 64, 0.965).width == 40
    assert choose_width(by_width.__getitem__, 40 * 64, 0.999) == GuardResult(None, 1.0, attempts)
    assert choose_width(by_width.__getitem__, 16 * 64 - 1, 0.1) == GuardResult(None, 1.0, ())


def test_recall_leaves_out_oneself_and_what_is_absent() -> None:
    exact = np.array([[7, 1, 2], [8, 3, -1]])
    own = np.array([7, 8])
    half, none = [7, 1, 9], [8, -1, -1]
    assert recall(exact, np.array([half, none]), own) == pytest.approx((0.25, 0.25 / np.sqrt(2)))
    assert recall(exact, exact, own) == (1, 0)
    assert recall(np.full((2, 3), -1), exact, own) == (1, 0)


def test_the_newest_questions_are_what_it_is_measured_on(scene: Scene) -> None:
    items, keeper, _, _ = scene
    searcher = searcher_over(items, keeper, 0.9)
    view = view_of(np.eye(DIM, dtype=np.float32), 0)
    first = searcher.prepare(view)
    assert searcher._newest(5) is None
    hits(searcher, replace(view, prepared=first), *(Query(id=name, k=1) for name in NAMES))
    newest = searcher._newest(5)
    assert newest is not None
    assert np.array_equal(newest.values, [items.vectors[name] for name in NAMES[-5:]])


def test_few_and_sparse_objects_are_searched_exactly(tmp_path: Path) -> None:
    for kind, least in (("dense", 500), ("sparse", 10)):
        items = Items(kind)
        items.put([f"a{i}" for i in range(100)], learned(0, 100)[:, :24])
        keeper = GraphKeeper([tmp_path / kind], items.snapshot, least)
        assert not keeper.look()
        heard: list[GuardResult] = []
        norms = searcher_over(items, keeper, observe=heard.append).prepare(view_of(learned(1)))
        assert norms.graphs.width is None
        assert heard == []
    assert not (tmp_path / "dense").exists(), "a folder is made when there is something to put into it"
