"""What was removed is in no answer from then on, and `k` is filled by others; what is put again stays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from daemon.serve.query import Query, QueryError
from tests.daemon.serve.retrieve.makers import DIM, Items, learned, searcher_of, several_parts, view_of
from tests.learners.examples import rows


def put_new(items: Items) -> None:
    items.put(["new"], rows(np.random.default_rng(9), 1, DIM, 1.0))


def plain(items: Items, gone: list[str]) -> None:
    items.remove(gone)


def beside_new_ones(items: Items, gone: list[str]) -> None:
    """Norms of the new part are not made yet: search stays in the older snapshot."""
    put_new(items)
    items.remove(gone)


def after_a_merge(items: Items, gone: list[str]) -> None:
    """The parts that norms were made of are no longer there."""
    put_new(items)
    before = {part.serial for part in items.snapshot().parts}
    while items.index.work():
        pass
    assert not before & {part.serial for part in items.snapshot().parts}
    items.remove(gone)


def whole_parts(items: Items, gone: list[str]) -> None:
    """A part all of whose objects are removed is dropped."""
    put_new(items)
    items.remove(sorted({*gone, *(name for name in items.vectors if name.startswith("b"))}))


@pytest.mark.parametrize("how", [plain, beside_new_ones, after_a_merge, whole_parts])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_it_is_in_no_answer_although_norms_are_of_before(how: Callable[..., None], kind: str) -> None:
    items, view = several_parts(kind), view_of(learned(3))
    searcher, _ = searcher_of(items)
    prepared = replace(view, prepared=searcher.prepare(view))
    asked = [Query(id="a0", k=20), Query(id="a1", k=5, tags=frozenset(["red"])), Query(id="a0", k=3)]
    before = searcher.search_view(prepared, asked).results
    gone: list[str] = []
    for hits in before:
        assert not isinstance(hits, QueryError)
        gone += [hit.id for hit in hits[::2] if hit.id not in (*gone, "a1")]
    how(items, gone)
    left = set(items.vectors)
    for query, hits in zip(asked, searcher.search_view(prepared, asked).results, strict=True):
        assert not isinstance(hits, QueryError)
        assert len(hits) == query.k
        assert {hit.id for hit in hits} <= left - {query.id}
        whole = searcher.search_view(replace(view, prepared=searcher.prepare(view)), [query]).results[0]
        assert not isinstance(whole, QueryError)
        assert [hit for hit in whole if hit.id != "new"][: len(hits) - 1] == list(hits)[: len(hits) - 1]


def again(items: Items, best: list[str]) -> None:
    items.put(best, np.array([items.vectors[name] for name in best]))


def again_and_merged(items: Items, best: list[str]) -> None:
    again(items, best)
    while items.index.work():
        pass


@pytest.mark.parametrize("how", [again, again_and_merged])
def test_what_is_put_again_is_in_answers_and_can_be_asked_for_as_before(how: Callable[..., None]) -> None:
    items, view = several_parts("dense"), view_of(learned(3))
    searcher, _ = searcher_of(items)
    prepared = replace(view, prepared=searcher.prepare(view))
    query = Query(id="a0", k=5)
    (before,) = searcher.search_view(prepared, [query]).results
    assert not isinstance(before, QueryError)
    best = [hit.id for hit in before]
    asked = [query, *(Query(id=name, k=3) for name in best)]
    wanted = searcher.search_view(prepared, asked).results
    how(items, best)
    assert searcher.search_view(prepared, asked).results == wanted


def test_thousands_of_removals_cost_one_search_and_are_looked_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    items, rng, view = Items("dense"), np.random.default_rng(0), view_of(learned(3))
    items.put([f"a{i}" for i in range(50)], rows(rng, 50, DIM))
    season = [f"b{i}" for i in range(3_000)]
    items.put(season, rows(rng, len(season), DIM))
    searcher, _ = searcher_of(items)
    prepared = replace(view, prepared=searcher.prepare(view))
    put_new(items)
    items.remove(season)
    lookup, lookups = searcher._lookup, list[int]()
    monkeypatch.setattr(searcher, "_lookup", lambda *given: (lookups.append(1), lookup(*given))[1])
    for _ in range(2):
        (hits,) = searcher.search_view(prepared, [Query(id="a0", k=10)]).results
        assert not isinstance(hits, QueryError)
        assert {hit.id for hit in hits} <= set(items.vectors) - {"a0", "new"}
        assert len(hits) == 10
    assert len(lookups) == 2
    newest = items.snapshot()
    assert prepared.prepared.searchable(newest) is prepared.prepared.searchable(newest)
