"""What was removed is in no answer from then on, and `k` is filled by others."""

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
