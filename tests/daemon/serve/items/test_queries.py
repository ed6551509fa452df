"""What a query names becomes a vector, or an error that names the field."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.serve.items.display import DisplayFile
from daemon.serve.items.index import ItemIndex
from daemon.serve.items.snapshot import resolve
from daemon.serve.query import Query, QueryError
from learners.block import DenseBlock, SparseBlock
from streams.items import Display
from tests.daemon.serve.items.objects import DENSE, MIXED, SPARSE, changes, dense, identity, row_of, sparse


def snapshot(kind=dense):
    index = ItemIndex("map", DisplayFile())
    index.apply(changes({f"item {n}": (kind(n), Display()) for n in range(5)}))
    index.apply(changes({"item 2": (kind(7), Display())}, ["item 4"]))
    return index.snapshot


def one(query, space=DENSE, kind=dense):
    (found,) = resolve([query], snapshot(kind), {}, space=space, fitted=identity(space))
    return found


def test_by_id_a_living_object_is_its_vector():
    assert row_of(one(Query(id="item 2")), 0) == (7.0, 1.0, 2.0, 3.0)
    found = one(Query(id="item 3"), SPARSE, sparse)
    assert isinstance(found, SparseBlock)
    assert row_of(found, 0) == (0, 1, 2, 3.0, 3.0, 3.0)


@pytest.mark.parametrize(
    "object_id", ["item 4", "nobody", "", "\ud800", pytest.param("i" * 100_000, id="long")]
)
def test_by_id_without_a_living_object_is_404(object_id):
    found = one(Query(id=object_id))
    assert isinstance(found, QueryError)
    assert (found.code, found.field, found.status) == ("unknown_object", "id", 404)


def test_by_vector_it_goes_through_the_map():
    assert row_of(one(Query(x=[1, 2.5, 3, 4])), 0) == (1.0, 2.5, 3.0, 4.0)
    assert row_of(one(Query(views={"x": [1, 2, 3, 4]})), 0) == (1.0, 2.0, 3.0, 4.0)
    (found,) = resolve(
        [Query(x=[0, 3, 4, 0])], snapshot(), {}, space=DENSE, fitted=identity(DENSE, unit=True)
    )
    assert row_of(found, 0) == pytest.approx((0.0, 0.6, 0.8, 0.0))
    mixed = {"words": {"indices": [1, 9], "values": [1, 2]}, "image": [1, 0, 1]}
    assert row_of(one(Query(views=mixed), MIXED), 0) == (0, 2, 4, 12, 1.0, 1.0, 1.0, 2.0)
    assert row_of(one(Query(x={"indices": [], "values": []}), SPARSE), 0) == ()


def sparse_x(indices, values):
    return Query(x={"indices": indices, "values": values})


@pytest.mark.parametrize(
    ("query", "space", "code", "field"),
    [
        (Query(x=[1, 2, 3]), DENSE, "wrong_dim", "x"),
        (Query(x=[]), DENSE, "wrong_dim", "x"),
        (Query(x="abcd"), DENSE, "wrong_type", "x"),
        (Query(x=None), DENSE, "wrong_type", "x"),
        (Query(x=7), DENSE, "wrong_type", "x"),
        (Query(x=[1, 2, 3, "4"]), DENSE, "wrong_type", "x"),
        (Query(x=[1, 2, 3, True]), DENSE, "wrong_type", "x"),
        (Query(x=[1, 2, 3, None]), DENSE, "wrong_type", "x"),
        (Query(x=[[1, 2, 3, 4]]), DENSE, "wrong_type", "x"),
        (Query(x=[1, 2, 3, float("nan")]), DENSE, "not_finite", "x"),
        (Query(x=[1, 2, 3, float("inf")]), DENSE, "magnitude", "x"),
        (Query(x=[1, 2, 3, 1e300]), DENSE, "magnitude", "x"),
        (Query(x=[1, 2, 3, 10**400]), DENSE, "magnitude", "x"),
        (Query(x={"indices": [0], "values": [1]}), DENSE, "wrong_kind", "x"),
        (Query(views={}), DENSE, "wrong_view", "views.x"),
        (Query(views={"y": [1, 2, 3, 4]}), DENSE, "wrong_view", "views.x"),
        (Query(views={"x": [1, 2, 3, 4], "y": []}), DENSE, "wrong_view", "views"),
        (Query(views={"x": [1, 2, 3]}), DENSE, "wrong_dim", "views.x"),
        (Query(x=[1] * 20), SPARSE, "wrong_kind", "x"),
        (Query(x={"indices": [1]}), SPARSE, "bad_vector", "x"),
        (Query(x={"indices": [1], "values": [1], "dim": 3}), SPARSE, "bad_vector", "x"),
        (sparse_x([1, 2], [1]), SPARSE, "bad_vector", "x"),
        (sparse_x([20], [1]), SPARSE, "index_out_of_range", "x.indices"),
        (sparse_x([-1], [1]), SPARSE, "index_out_of_range", "x.indices"),
        (sparse_x([10**400], [1]), SPARSE, "index_out_of_range", "x.indices"),
        (sparse_x([2, 1], [1, 1]), SPARSE, "indices_not_increasing", "x.indices"),
        (sparse_x([1.5], [1]), SPARSE, "wrong_type", "x.indices"),
        (sparse_x("a", [1]), SPARSE, "wrong_type", "x.indices"),
        (sparse_x([1], ["a"]), SPARSE, "wrong_type", "x.values"),
        (Query(x=[1, 2, 3]), MIXED, "wrong_view", "x"),
        (Query(views={"image": [1, 2, 3]}), MIXED, "wrong_view", "views.words"),
        (
            Query(views={"image": [1, 2, 3], "words": {"indices": [10], "values": [1]}}),
            MIXED,
            "index_out_of_range",
            "views.words.indices",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_its_field(query, space, code, field):
    found = one(query, space)
    assert isinstance(found, QueryError)
    assert (found.code, found.field, found.status) == (code, field, 422)
    assert found.message
    assert found.remedy
    assert len(found.message) < 200


def test_one_bad_query_spoils_no_other():
    queries = [Query(id="item 1"), Query(x=[1]), Query(x=[1, 2, 3, 4]), Query(id="nobody")]
    found = resolve(queries, snapshot(), {}, space=DENSE, fitted=identity(DENSE))
    assert [type(each) for each in found] == [DenseBlock, QueryError, DenseBlock, QueryError]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from(["indices", "values", "x", "y"]), inner)
    ),
    max_leaves=10,
)


@settings(max_examples=150, deadline=None)
@given(
    x=json_values,
    views=st.none() | st.dictionaries(st.text(max_size=3) | st.just("x"), json_values, max_size=3),
)
@pytest.mark.parametrize("space", [DENSE, SPARSE, MIXED], ids=["dense", "sparse", "mixed"])
def test_any_json_is_a_vector_or_refused(space, x, views):
    found = one(Query(x=x, views=views), space)
    if not isinstance(found, QueryError):
        assert len(found) == 1
        assert np.isfinite(found.values).all()
