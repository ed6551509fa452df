"""Routing is stable for ever: fixed values, and the properties feeding relies on."""

import numpy as np
import pytest

from streams.event import ObjectRef, SparseVector
from streams.partitions import is_holdout, partition_of, route_key

KEYS = [f"query {n}".encode() for n in range(4000)]
PARTITIONS = [7, 10, 11, 3, 4, 4, 3, 0]
HELD_OUT = [9]
HELD_OUT_SEED_MINUS_1 = [0, 3, 42]
DENSE_KEY = b"#0324325eebde598e3ae317bdeb7c71fd"
SPARSE_KEY = b"#9b72300ba8cff98380ea3211f00193ac"


def test_values_that_must_never_change():
    assert [partition_of(key, 12) for key in KEYS[:8]] == PARTITIONS
    assert [n for n in range(60) if is_holdout(KEYS[n], 0.1, 0)] == HELD_OUT
    assert [n for n in range(60) if is_holdout(KEYS[n], 0.1, -1)] == HELD_OUT_SEED_MINUS_1
    assert route_key(ObjectRef(x=np.array([1, 2], np.float32))) == DENSE_KEY
    assert (
        route_key(ObjectRef(x=SparseVector(np.array([3], np.int32), np.array([1], np.float32)))) == SPARSE_KEY
    )


def test_the_key_is_the_id_whatever_the_features():
    assert route_key(ObjectRef("ä")) == "ä".encode()
    assert route_key(ObjectRef("a", x=np.zeros(3, np.float32))) == b"a"


def test_the_key_of_features_depends_on_every_byte_and_not_on_the_order_of_views():
    one, two = np.array([1, 2], np.float32), np.array([1, 3], np.float32)
    assert route_key(ObjectRef(x=one)) == route_key(ObjectRef(views={"x": one}))
    assert route_key(ObjectRef(views={"a": one, "b": two})) == route_key(
        ObjectRef(views={"b": two, "a": one})
    )
    different = [
        ObjectRef(x=one),
        ObjectRef(x=two),
        ObjectRef(views={"y": one}),
        ObjectRef(views={"a": one, "b": two}),
        ObjectRef(views={"a": two, "b": one}),
        ObjectRef(x=SparseVector(one.view(np.int32), one)),
        ObjectRef(x=np.concatenate([one, one])),
    ]
    assert len({route_key(ref) for ref in different}) == len(different)
    with pytest.raises(ValueError, match="id or features"):
        route_key(ObjectRef())


def test_holdout_share_seed_and_nesting():
    held = {share: {key for key in KEYS if is_holdout(key, share, 3)} for share in (0.0, 0.1, 0.3, 1.0)}
    assert [len(held[0.0]), len(held[1.0])] == [0, len(KEYS)]
    assert held[0.1] < held[0.3]
    # four standard deviations of a binomial count
    assert abs(len(held[0.1]) - 400) < 4 * (4000 * 0.1 * 0.9) ** 0.5
    other = {key for key in KEYS if is_holdout(key, 0.1, 4)}
    assert 0 < len(other & held[0.1]) < 100


def test_partitions_are_even_and_independent_of_the_holdout():
    counts = np.bincount([partition_of(key, 4) for key in KEYS], minlength=4)
    assert np.abs(counts - 1000).max() < 4 * (4000 * 0.25 * 0.75) ** 0.5
    held = np.bincount([partition_of(key, 4) for key in KEYS if is_holdout(key, 0.5, 0)], minlength=4)
    assert np.abs(held - 500).max() < 4 * (2000 * 0.25 * 0.75) ** 0.5 + 60
    assert {partition_of(key, 1) for key in KEYS} == {0}
