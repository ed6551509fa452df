"""Encoding refuses what decoding would refuse; the numbers inside vectors are checked one by one."""

import msgpack
import numpy as np
import pytest

from streams import poison
from streams.catalog import gather_objects
from streams.codec import (
    check_object,
    check_vector,
    decode_event,
    decode_impression,
    encode_event,
    encode_impression,
)
from streams.event import Event, Impression, ObjectRef, SpaceSpec, SparseVector, ViewSpec
from streams.limits import MAX_MAGNITUDE
from streams.poison import Poison

from .same import same_vector

A, B, C = ObjectRef("a"), ObjectRef("b"), ObjectRef("c")
NAN = ObjectRef(x=np.array([1, np.nan], np.float32))


def event(**changes):
    return Event(**{"id": "e", "ts": 1, "query": A, "clicked": B, "skipped": C} | changes)


def impression(**changes):
    return Impression(**{"id": "i", "ts": 1, "query": A, "shown": (B, C), "clicked": (0,)} | changes)


def sparse(indices, values):
    return SparseVector(np.array(indices, np.int32), np.array(values, np.float32))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"id": ""}, poison.OUT_OF_RANGE),
        ({"id": "x" * 513}, poison.TOO_LARGE),
        ({"id": "\ud800"}, poison.BAD_TEXT),
        ({"ts": -1}, poison.OUT_OF_RANGE),
        ({"ts": 2**70}, poison.OUT_OF_RANGE),
        ({"ts": 1.5}, poison.WRONG_TYPE),
        ({"weight": float("nan")}, poison.OUT_OF_RANGE),
        ({"propensity": 0.0}, poison.OUT_OF_RANGE),
        ({"source": object()}, poison.WRONG_TYPE),
        ({"query": ObjectRef()}, poison.BAD_OBJECT),
        ({"query": ObjectRef(x=np.zeros(1, np.float32), views={})}, poison.BAD_OBJECT),
        ({"query": NAN}, poison.NOT_FINITE),
        ({"skipped": ObjectRef(x=sparse([2, 1], [1, 1]))}, poison.INDICES_NOT_INCREASING),
        ({"skipped": ObjectRef(x=sparse([1, 2], [1]))}, poison.BAD_VECTOR),
    ],
)
def test_an_event_that_could_not_be_read_is_not_written(changes, reason):
    with pytest.raises(Poison) as refused:
        encode_event(event(**changes))
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"shown": ()}, poison.WRONG_TYPE),
        ({"shown": (B,) * 1001}, poison.TOO_LARGE),
        ({"clicked": (1, 0)}, poison.OUT_OF_RANGE),
        ({"propensity": (0.5,)}, poison.OUT_OF_RANGE),
        ({"shown": (B, NAN)}, poison.NOT_FINITE),
    ],
)
def test_an_impression_that_could_not_be_read_is_not_written(changes, reason):
    with pytest.raises(Poison) as refused:
        encode_impression(impression(**changes))
    assert refused.value.reason == reason


def test_a_detail_names_the_place():
    with pytest.raises(Poison, match=r"shown\[1\]"):
        encode_impression(impression(shown=(B, NAN)))
    with pytest.raises(Poison, match="wrong_type: w is not a number"):
        decode_event(
            encode_event(event(weight=0.5)).replace(b"\xa1w\xcb?\xe0\0\0\0\0\0\0", b"\xa1w\xa80.500000")
        )


def test_arrays_of_other_types_are_written_as_float32_and_int32():
    wide = ObjectRef(x=np.array([0.1, 2], np.float64))
    back = decode_event(encode_event(event(query=wide))).query.x
    assert same_vector(back, np.array([0.1, 2], np.float32))
    wide = ObjectRef(x=SparseVector(np.array([1, 5], np.int64), np.array([1, 2], np.float64)))
    back = decode_event(encode_event(event(query=wide))).query.x
    assert same_vector(back, sparse([1, 5], [1, 2]))


def test_unchecked_decoding_leaves_the_numbers_alone():
    good = encode_event(event(query=ObjectRef(x=np.array([1], np.float32))))
    bad = good.replace(np.float32(1).tobytes(), np.float32(np.nan).tobytes())
    assert np.isnan(decode_event(bad, check_values=False).query.x[0])
    with pytest.raises(Poison):
        decode_event(bad)


def test_the_magnitude_limit_is_inclusive():
    check_vector(np.array([MAX_MAGNITUDE, -MAX_MAGNITUDE], np.float32))
    with pytest.raises(Poison, match="magnitude"):
        check_vector(np.array([-1.001 * MAX_MAGNITUDE], np.float32))
    check_vector(np.zeros(0, np.float32))
    check_object(A)


def test_gathering_an_index_beyond_the_view_is_refused():
    space = SpaceSpec("s", (ViewSpec("x", "sparse", 10),))
    columns = gather_objects([ObjectRef(x=sparse([9], [1])), ObjectRef(x=sparse([], []))], space, None)
    assert columns.inline["x"].indptr.tolist() == [0, 1, 1]
    with pytest.raises(Poison, match="object 1: view x has size 10") as refused:
        gather_objects([ObjectRef(x=sparse([9], [1])), ObjectRef(x=sparse([10], [1]))], space, None)
    assert refused.value.reason == poison.INDEX_OUT_OF_RANGE
    with pytest.raises(Poison) as refused:
        gather_objects([ObjectRef()], space, None)
    assert refused.value.reason == poison.BAD_OBJECT


def test_an_impression_keeps_the_order_shown():
    got = decode_impression(
        encode_impression(impression(shown=(C, A, B), clicked=(1, 2), propensity=(1, 0.5, 0.25)))
    )
    assert [ref.id for ref in got.shown] == ["c", "a", "b"]
    assert (got.clicked, got.propensity) == ((1, 2), (1.0, 0.5, 0.25))


def test_poison_takes_only_known_reasons():
    with pytest.raises(ValueError, match="unknown poison reason"):
        Poison("bored")


def test_a_list_is_held_out_learned_by_all_or_learned_by_arms():
    for changes, version in (({}, 1), ({"trained": True}, 5), ({"for_arms": True}, 7)):
        value = encode_impression(impression(**changes))
        got = decode_impression(value)
        assert (got.trained, got.for_arms) == ("trained" in changes, "for_arms" in changes)
        assert got.is_learned is bool(changes)
        assert msgpack.unpackb(value)["v"] == version
    for both in (
        {"trained": True, "for_arms": True},
        {"trained": True, "kind": "a"},
        {"for_arms": True, "kind": "a"},
    ):
        with pytest.raises(Poison):
            encode_impression(impression(**both))
