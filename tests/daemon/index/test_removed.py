"""A store still holds what was removed here: it is in no answer of any mode, and `k` is filled by others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from daemon.config.services import IndexConfig
from daemon.index import StoreRefused
from daemon.index.protocol import AskedVector, IndexHit
from daemon.index.verdicts import ModeChoice
from daemon.serve.indexed import MOST_ASKED, IndexSearch
from daemon.serve.query import Query, QueryError, VectorAnswers
from tests.daemon.serve.http.toy import ToyModel

HELD = 20_000


class HalfRemoved:
    """A store of objects in order of their numbers; the catalog has those from `first` on."""

    name = "a store"

    def __init__(self, first: int, held: int = HELD) -> None:
        self.first, self.count = first, held
        self.asked: list[int] = []

    def search(
        self,
        vector: AskedVector,
        k: int,
        tags: Sequence[str] = (),
        *,
        exact: bool = False,
        similarity: str = "",
    ) -> list[IndexHit]:
        self.asked.append(k)
        if k > MOST_ASKED:
            raise StoreRefused("too many", "ask for fewer")
        return [IndexHit(f"o{number}", -float(number)) for number in range(min(k, self.count))]

    def close(self) -> None:
        """Nothing is open."""

    def held(self, ids: Sequence[str]) -> list[bool]:
        return [int(one[1:]) >= self.first for one in ids]

    def vectors(self, alias: str, queries: Sequence[Query], wanted: str) -> VectorAnswers:
        return VectorAnswers(ToyModel(), 0, [[1.0]], "inner_product", True, 1)


def found(store: HalfRemoved, mode: Any, query: Query) -> list[str]:
    config = IndexConfig(
        store="qdrant", address="http://localhost:1", collection="c", mode=mode, version=12, candidates=40
    )
    search = IndexSearch(store, config, store, lambda version: ModeChoice("own", ""))
    answer = search.find("stable", query)
    if mode == "rescored":
        assert answer.ids is not None
        return sorted(answer.ids, key=lambda one: int(one[1:]))
    assert answer.hits is not None
    return [hit.id for hit in answer.hits]


@pytest.mark.parametrize("mode", ["own", "folded", "embedded", "rescored"])
@pytest.mark.parametrize("removed", [0, 3, 500])
def test_only_what_the_catalog_has_is_answered(mode: str, removed: int) -> None:
    store = HalfRemoved(removed)
    ids = found(store, mode, Query(id=f"o{removed}", k=10, exclude=frozenset([f"o{removed + 2}"])))
    assert ids[:10] == [f"o{n}" for n in range(removed + 1, removed + 12) if n != removed + 2]
    assert len(ids) == 10 or mode == "rescored"
    if (removed < 40 and mode == "rescored") or removed == 0:
        assert len(store.asked) == 1
    else:
        assert 2 <= len(store.asked) <= 4


def test_a_store_is_asked_for_more_within_a_bound() -> None:
    store = HalfRemoved(HELD)
    assert found(store, "own", Query(id="o1", k=10)) == []
    assert store.asked[-1] == MOST_ASKED
    assert len(store.asked) < 8
    small = HalfRemoved(5, held=8)
    assert found(small, "folded", Query(id="o1", k=10)) == ["o5", "o6", "o7"]
    assert len(small.asked) == 1


def test_a_query_that_is_refused_asks_no_store() -> None:
    store = HalfRemoved(0)
    zero = QueryError("zero_query", "the vector is zero", "x")
    store.vectors = lambda *asked: VectorAnswers(ToyModel(), 0, [zero], "inner_product", True, 1)  # type: ignore[method-assign]
    with pytest.raises(QueryError, match="is zero"):
        found(store, "own", Query(x=[0.0], k=3))
    assert not store.asked
