"""A query whose vector is zero is refused in every way of asking, where zero is as near to all objects."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from daemon.replica.view import View
from daemon.serve.query import Query, QueryError
from learners.forms.quadratic import DiagonalForm
from learners.kernels.kinds import KernelName
from learners.multikernel import KernelConfig, Omks, OmksConfig, ViewKernels
from tests.daemon.serve.retrieve.graphed import DIM as WIDE
from tests.daemon.serve.retrieve.graphed import clustered, keeper_of, searcher_over
from tests.daemon.serve.retrieve.makers import DIM, Items, learned, searcher_of, several_parts, view_of
from tests.daemon.serve.retrieve.test_keys import keyed_view
from tests.learners.examples import triplets

NOTHING = [0.0] * DIM
WAYS = {
    "id": Query(id="zero", k=3),
    "vector": Query(x=NOTHING, k=3),
    "sparse": Query(x={"indices": [], "values": []}, k=3),
    "view": Query(views={"x": NOTHING}, k=3),
    "included": Query(x=NOTHING, k=3, include=frozenset(["a1", "a2"])),
    "tags": Query(x=NOTHING, k=3, tags=frozenset(["red"])),
}


def with_zero(kind: str = "dense") -> Items:
    items = several_parts(kind)
    items.put(["zero"], np.zeros((1, DIM), np.float32))
    return items


def kernels(kind: KernelName) -> View:
    views = (ViewKernels(0, DIM, (KernelConfig(kind),)),)
    learner = Omks(DIM, OmksConfig(views, triplets=60, objects=96))
    learner.learn_many(triplets(3, 120, DIM, "dense"))
    return replace(view_of(np.eye(DIM, dtype=np.float32)), form=learner.form(True))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("normalised", [True, False])
def test_it_is_refused_and_the_others_of_its_batch_are_answered(way: str, normalised: bool) -> None:
    items = with_zero("sparse" if way == "sparse" else "dense")
    searcher, _ = searcher_of(items, view_of(learned(8), normalised=normalised))
    zero, other = searcher.search("latest", [WAYS[way], Query(id="a1", k=3)]).results
    assert isinstance(zero, QueryError)
    field = {"id": "id", "view": "views"}.get(way, "x")
    assert (zero.status, zero.code, zero.field) == (422, "zero_query", field)
    assert "is zero, so no object is nearest to it" in zero.message
    assert not isinstance(other, QueryError)
    assert len(other) == 3


def test_it_is_refused_over_graphs_and_by_a_key(tmp_path: Path) -> None:
    items = clustered()
    items.put(["zero"], np.zeros((1, WIDE), np.float32))
    searcher = searcher_over(items, keeper_of(items, tmp_path))
    view = view_of(np.eye(WIDE, dtype=np.float32))
    norms = searcher.prepare(view)
    assert norms.graphs.width is not None
    prepared = replace(view, prepared=norms)
    (zero,) = searcher.search_view(prepared, [Query(id="zero", k=3)]).results
    assert isinstance(zero, QueryError)
    keyed, _ = searcher_of(with_zero(), keyed_view("dense"))
    for one in keyed.search("latest", [Query(id="zero", key=key) for key in ("a", "nobody", None)]).results:
        assert isinstance(one, QueryError)
        assert one.code == "zero_query"


def test_a_version_is_warmed_by_a_zero_object_and_zero_objects_are_found() -> None:
    items = Items("dense")
    items.put(["zero", "a"], np.eye(2, DIM, dtype=np.float32) * np.float32([[0], [1]]))
    searcher, replica = searcher_of(items, view_of(learned(8)))
    assert replica.view is not None
    searcher.warm(replica.view)
    (hits,) = searcher.search("latest", [Query(id="a", k=3)]).results
    assert not isinstance(hits, QueryError)
    assert [hit.id for hit in hits] == ["zero"]


def test_under_a_distance_zero_is_a_point_like_any_other() -> None:
    items = with_zero()
    form = DiagonalForm(np.ones(DIM, np.float32), False, True)
    searcher, _ = searcher_of(items, replace(view_of(np.eye(DIM, dtype=np.float32)), form=form))
    for query in (WAYS["id"], WAYS["vector"]):
        (hits,) = searcher.search("latest", [query]).results
        assert not isinstance(hits, QueryError)
        lengths = {name: float(row @ row) for name, row in items.vectors.items() if name != query.id}
        nearest = sorted(lengths, key=lengths.__getitem__)[:3]
        assert [hit.id for hit in hits] == nearest
        assert [-hit.score for hit in hits] == pytest.approx([lengths[one] for one in nearest], abs=1e-5)


@pytest.mark.parametrize(("kernel", "ranks"), [("linear", False), ("rbf", True)])
def test_a_kernel_of_distances_gives_zero_a_norm(kernel: KernelName, ranks: bool) -> None:
    searcher, _ = searcher_of(with_zero(), kernels(kernel))
    (found,) = searcher.search("latest", [WAYS["vector"]]).results
    assert isinstance(found, QueryError) != ranks
