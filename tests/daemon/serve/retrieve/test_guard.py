"""Approximate search is as wide as it has to be for the version that asks, or gives way to exact search."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from daemon.exits import EX_UNAVAILABLE, UserError
from daemon.replica.view import View
from daemon.serve.query import Query, QueryError
from daemon.serve.retrieve import AnnSettings, GuardResult, Searcher
from daemon.serve.retrieve.part import choose_width, recall
from learners.block import Block
from tests.daemon.serve.retrieve.makers import Floats, Items, OneReplica, learned, view_of

DIM, TOLD, COUNT = 32, 24, 6000


def clustered() -> Items:
    """Objects in 60 groups, which few cells find; their last numbers are alike in all groups."""
    rng, items = np.random.default_rng(0), Items("dense", DIM)
    centres = rng.standard_normal((60, DIM))
    centres[:, TOLD:] = 0
    values = centres[rng.integers(0, 60, COUNT)] + 0.35 * rng.standard_normal((COUNT, DIM))
    items.put([f"a{i}" for i in range(COUNT)], values.astype(np.float32))
    return items


def strongly_changed() -> Floats:
    """A W that looks at what the groups do not tell."""
    return np.diag(np.where(np.arange(DIM) < TOLD, 1e-3, 1)).astype(np.float32)


@pytest.fixture(scope="module")
def guarded_search() -> tuple[Items, OneReplica, Searcher, list[GuardResult]]:
    heard: list[GuardResult] = []
    items, replica = clustered(), OneReplica()
    searcher = Searcher(
        {"latest": replica},
        items.snapshot,
        lambda queries, snapshot, maps: [
            items.block()[1].take([int((query.id or "a0")[1:])]) for query in queries
        ],
        AnnSettings(recall=0.95, least=1000),
        heard.append,
    )
    return items, replica, searcher, heard


def recalls(items: Items, searcher: Searcher, view: object, exact_view: object, names: list[str]) -> float:
    """Share of the exact top 10 found, over these queries."""
    shares = []
    for name in names:
        found, exact = (
            {hit.id for hit in searcher.search_view(one, [Query(id=name, k=10)]).results[0]}  # type: ignore[arg-type, union-attr]
            for one in (view, exact_view)
        )
        shares.append(len(found & exact) / 10)
    return float(np.mean(shares))


def test_a_strong_change_of_w_raises_the_width_or_ends_in_exact_search(
    guarded_search: tuple[Items, OneReplica, Searcher, list[GuardResult]],
) -> None:
    items, _, searcher, heard = guarded_search
    serial = items.snapshot().parts[0].serial
    names = [f"a{i}" for i in range(5, COUNT, 73)]
    heard.clear()
    untrained, changed = view_of(np.eye(DIM, dtype=np.float32), 0), view_of(strongly_changed(), 1)
    widths = []
    for view in (untrained, changed):
        norms = searcher.prepare(view)
        ready = norms.parts[serial]
        widths.append(ready.width)
        exact = replace(norms, parts={serial: replace(ready, width=None)})
        # At the width that was enough for the untrained W, the changed one finds too little.
        narrow = replace(norms, parts={serial: replace(ready, width=widths[0])})
        prepared = replace(view, prepared=norms)
        exact_view = replace(view, prepared=exact)
        assert recalls(items, searcher, prepared, exact_view, names) >= 0.95
        if view is changed:
            assert recalls(items, searcher, replace(view, prepared=narrow), exact_view, names) < 0.8
    assert widths[0] is not None
    assert widths[1] is None or widths[1] > widths[0]
    first, second = heard
    assert (first.model, first.items, first.width) == ("0", COUNT, widths[0])
    assert first.recall >= 0.95
    assert second.attempts[0][1] < 0.95
    assert second.recall >= 0.95


def test_what_is_found_has_the_exact_score_and_no_dead_object(
    guarded_search: tuple[Items, OneReplica, Searcher, list[GuardResult]],
) -> None:
    items, _, searcher, _ = guarded_search
    view = view_of(np.eye(DIM, dtype=np.float32), 0)
    norms = searcher.prepare(view)
    serial = items.snapshot().parts[0].serial
    assert norms.parts[serial].width is not None
    prepared = replace(view, prepared=norms)
    exact = replace(view, prepared=replace(norms, parts={serial: replace(norms.parts[serial], width=None)}))
    query = [Query(id="a9", k=10)]
    found, truth = (searcher.search_view(one, query).results[0] for one in (prepared, exact))
    assert not isinstance(found, QueryError)
    assert not isinstance(truth, QueryError)
    scores = {hit.id: hit.score for hit in truth}
    assert all(scores[hit.id] == hit.score for hit in found if hit.id in scores)
    filtered = [Query(id="a9", k=10, tags=frozenset({"none"}))]
    assert searcher.search_view(prepared, filtered).results[0] == []
    named = [Query(id="a9", k=10, include=frozenset({"a1"}))]
    assert searcher.search_view(prepared, [*query, *filtered, *named]).exact == [False, True, True]
    assert searcher.search_view(exact, [*query, *filtered, *named]).exact == [True, True, True]
    gone = found[0].id
    items.remove([gone])
    again = searcher.search_view(prepared, query).results[0]
    assert not isinstance(again, QueryError)
    assert gone not in {hit.id for hit in again}
    assert len(again) == 10


def test_as_many_hits_as_are_asked_for_are_found_whatever_is_left_out() -> None:
    items = clustered()

    def lookup(queries: Sequence[Query], snapshot: object, maps: object) -> list[Block | QueryError]:
        names, block = items.block()
        return [block.take([names.index(query.id or "")]) for query in queries]

    searcher = Searcher({}, items.snapshot, lookup, AnnSettings(recall=0.9, least=1000))
    view = view_of(np.eye(DIM, dtype=np.float32), 0)
    norms = searcher.prepare(view)
    (serial,) = norms.parts
    narrowed = replace(norms, parts={serial: replace(norms.parts[serial], width=1)})
    exactly = replace(norms, parts={serial: replace(norms.parts[serial], width=None)})
    near, exact = (replace(view, prepared=one) for one in (narrowed, exactly))

    def ids(view: View, *queries: Query) -> list[list[str]]:
        results = searcher.search_view(view, queries).results
        return [[hit.id for hit in one] for one in results if not isinstance(one, QueryError)]

    (order,) = ids(exact, Query(id="a9", k=3000))
    seen = Query(id="a9", k=10, exclude=frozenset(order[:1000]))
    (left,) = ids(near, seen)
    assert left == order[1000:1010]
    four = replace(norms, parts={serial: replace(norms.parts[serial], width=4)})
    (left,) = ids(replace(view, prepared=four), replace(seen, exclude=frozenset(order[:260])))
    assert left == order[260:270], "what the cells still hold is not the best there is"
    few, more, most = (Query(id="a9", k=k) for k in (10, 40, 3000))
    assert ids(near, most) == [order], "wider than is worth it is exact"
    assert searcher.search_view(near, [few, more, most, seen]).exact == [False, False, True, True]
    assert ids(near, few, more, most) == [*ids(near, few), *ids(near, more), order]
    assert len(set(ids(near, more)[0]) & set(order[:40])) > len(set(ids(near, few)[0]) & set(order[:10]))
    items.remove(order[:500])  # more than the one cell holds
    assert ids(near, few) == [order[500:510]]


def test_objects_too_short_to_have_a_direction_spoil_no_index() -> None:
    items = Items("dense", DIM)
    values = np.random.default_rng(3).standard_normal((2000, DIM)).astype(np.float32)
    values[7], values[8] = 0, 0
    values[8, 0] = 1e-42
    items.put([f"a{i}" for i in range(2000)], values)
    searcher = Searcher({}, items.snapshot, lambda queries, snapshot, maps: [], AnnSettings(least=1000))
    assert len(searcher.prepare(view_of(np.eye(DIM, dtype=np.float32))).parts) == 1


def test_the_narrowest_width_that_is_enough_is_taken() -> None:
    by_width = {4: (0.5, 0.1), 8: (0.9, 0.1), 16: (0.96, 0.02), 32: (0.97, 0.01)}
    recalls_of = tuple((width, recall) for width, (recall, _) in by_width.items())
    found = choose_width(by_width.__getitem__, 800, 0.94)
    assert (found.width, found.recall) == (16, 0.96)
    assert found.attempts == recalls_of[:3]
    assert choose_width(by_width.__getitem__, 800, 0.95).width == 32  # .96 may as well be .94
    assert choose_width(by_width.__getitem__, 800, 0.999) == GuardResult(None, 1.0, recalls_of)
    assert choose_width(by_width.__getitem__, 800, 0.4).width == 4
    assert choose_width(by_width.__getitem__, 63, 0.1) == GuardResult(None, 1.0, ())  # nothing to save


def test_recall_leaves_out_oneself_and_what_is_absent() -> None:
    exact = np.array([[7, 1, 2], [8, 3, -1]])
    own = np.array([7, 8])
    half, none = [7, 1, 9], [8, -1, -1]
    assert recall(exact, np.array([half, none]), own) == pytest.approx((0.25, 0.25 / np.sqrt(2)))
    assert recall(exact, exact, own) == (1, 0)
    assert recall(np.full((2, 3), -1), exact, own) == (1, 0)


def test_small_and_sparse_parts_are_searched_exactly() -> None:
    heard: list[GuardResult] = []
    for kind, least in (("dense", 500), ("sparse", 10)):
        items = Items(kind)
        items.put([f"a{i}" for i in range(100)], learned(0, 100)[:, :24])
        searcher = Searcher(
            {}, items.snapshot, lambda queries, snapshot, maps: [], AnnSettings(least=least), heard.append
        )
        norms = searcher.prepare(view_of(learned(1)))
        assert [part.width for part in norms.parts.values()] == [None]
    assert heard == []


def test_without_faiss_the_remedy_is_told_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    items = Items("dense")
    with pytest.raises(UserError, match="faiss") as missing:
        Searcher({}, items.snapshot, lambda queries, snapshot, maps: [], AnnSettings())
    assert "tripletd[ann]" in missing.value.remedy
    assert missing.value.code == EX_UNAVAILABLE
    Searcher({}, items.snapshot, lambda queries, snapshot, maps: [])
