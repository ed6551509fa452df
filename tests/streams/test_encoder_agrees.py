"""The encoder checks its input itself; it must refuse exactly what the decoder refuses in the bytes."""

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams import poison
from streams.codec import decode_event, decode_impression, encode_event, encode_impression
from streams.event import Event, Impression, ObjectRef, SparseVector
from streams.poison import Poison


def usually(good, *odd):
    """Mostly the good value, so that most examples have one fault or none."""
    return st.one_of(*[good] * 12, *map(st.just, odd))


def dense(*numbers):
    return np.array(numbers, np.float32)


def sparse(indices, values):
    return SparseVector(np.array(indices, np.int32), np.array(values, np.float32))


FIT = st.sampled_from(["a", "é" * 256, "x" * 512, "x" * 129, "\U0001f600" * 128])
TEXTS = usually(FIT, "", "x" * 513, "é" * 257, "\U0001f600" * 129, "\ud800", "\ud800" * 200, b"a", 5)
VECTORS = usually(
    st.sampled_from([dense(1.0, -1e18), dense(0.0), sparse([], []), sparse([0, 7], [1, 2])]),
    dense(),
    dense(np.nan, 1),
    dense(-np.inf),
    dense(2e18),
    sparse([1], [1, 2]),
    sparse([1, 2], [1]),
    sparse([2, 1], [1, 1]),
    sparse([1, 1], [1, 1]),
    sparse([-1, 1], [1, 1]),
    sparse([1], [np.nan]),
)
VIEWS = usually(
    st.dictionaries(FIT, VECTORS, min_size=1, max_size=3),
    {},
    {"": dense(1)},
    {5: dense(1)},
    {"\ud800": dense(1)},
    {str(number): dense(1) for number in range(32)},
    {str(number): dense(1) for number in range(33)},
)
OBJECTS = st.one_of(
    st.builds(ObjectRef, TEXTS),
    st.builds(ObjectRef, st.none() | TEXTS, x=VECTORS),
    st.builds(ObjectRef, st.none() | TEXTS, views=VIEWS),
    usually(st.builds(ObjectRef, FIT), ObjectRef(), ObjectRef("a", dense(1), {"x": dense(1)})),
)
TIMES = usually(st.sampled_from([0, 5, 2**53 - 1]), -1, 2**53, 2**70, 1.5, True, "1", None)
NUMBERS = usually(st.sampled_from([0.5, 1.0]), 0.0, -1.0, 1.5, 1e6, 2e6, np.nan, np.inf, "1", [1.0])
EVENTS = st.builds(
    Event,
    TEXTS,
    TIMES,
    OBJECTS,
    OBJECTS,
    OBJECTS,
    weight=NUMBERS,
    source=st.none() | TEXTS,
    impression=st.none() | TEXTS,
    propensity=st.none() | NUMBERS,
    space=st.none() | TEXTS,
)


@st.composite
def impressions(draw):
    shown = tuple(draw(st.lists(OBJECTS, max_size=3)))
    clicked = draw(usually(st.just((0,)), (), (0, 1), (1, 0), (0, 0), (3,), (-1,), (True,), (0.0,), ("0",)))
    lengths = st.integers(0, 4) if draw(st.booleans()) else st.just(len(shown))
    propensity = draw(st.none() | lengths.flatmap(lambda n: st.tuples(*[NUMBERS] * n)))
    return Impression(
        draw(TEXTS), draw(TIMES), draw(OBJECTS), shown, clicked, propensity, draw(st.none() | TEXTS)
    )


def written(ref):
    """An object as it is put on the wire when nobody looks."""

    def plain(one):
        if isinstance(one, SparseVector):
            return [one.indices.tobytes(), one.values.tobytes()]
        return one.tobytes()

    fields = {} if ref.id is None else {"id": ref.id}
    if ref.x is not None:
        fields["x"] = plain(ref.x)
    if ref.views is not None:
        fields["views"] = {name: plain(one) for name, one in ref.views.items()}
    return fields


def unchecked(item):
    """The bytes of an event or impression, nothing checked; None where msgpack itself cannot."""
    fields = {"v": 1, "id": item.id, "ts": item.ts, "q": written(item.query)}
    if isinstance(item, Event):
        fields |= {"c": written(item.clicked), "s": written(item.skipped)}
        optional = {"src": item.source, "imp": item.impression, "prop": item.propensity, "sp": item.space}
        if item.weight != 1.0:
            fields["w"] = item.weight
    else:
        fields |= {"shown": [written(ref) for ref in item.shown], "clicked": list(item.clicked)}
        prop = None if item.propensity is None else list(item.propensity)
        optional = {"prop": prop, "src": item.source, "sp": item.space}
    fields |= {name: value for name, value in optional.items() if value is not None}
    try:
        return msgpack.packb(fields)
    except (UnicodeEncodeError, OverflowError):
        return None


def outcome(function, item):
    try:
        return function(item)
    except Poison:
        return None


@settings(max_examples=250, deadline=None)
@given(EVENTS)
def test_an_event_is_refused_exactly_when_its_bytes_would_be(event):
    raw = unchecked(event)
    readable = raw is not None and outcome(decode_event, raw) is not None
    assert outcome(encode_event, event) == (raw if readable else None)


@settings(max_examples=250, deadline=None)
@given(impressions())
def test_an_impression_is_refused_exactly_when_its_bytes_would_be(impression):
    raw = unchecked(impression)
    readable = raw is not None and outcome(decode_impression, raw) is not None
    assert outcome(encode_impression, impression) == (raw if readable else None)


A, B = ObjectRef("a"), ObjectRef("b")


@pytest.mark.parametrize(
    ("views", "reason"),
    [
        ({}, poison.BAD_OBJECT),
        ({str(number): dense(1) for number in range(33)}, poison.TOO_LARGE),
        ({"": dense(1)}, poison.OUT_OF_RANGE),
        ({"x" * 513: dense(1)}, poison.TOO_LARGE),
        ({5: dense(1)}, poison.WRONG_TYPE),
    ],
)
def test_views_that_could_not_be_read_are_not_written(views, reason):
    with pytest.raises(Poison) as refused:
        encode_event(Event("e", 1, A, ObjectRef("b", views=views), A))
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (ObjectRef(x=np.ones(300_000, np.float32)), poison.TOO_LARGE),
        (ObjectRef(x=np.ones((2, 2), np.float32)), poison.BAD_VECTOR),
        (ObjectRef(x=np.array(["a"])), poison.WRONG_TYPE),
        (ObjectRef(x=SparseVector(np.array([2**32 + 5]), np.ones(1))), poison.INDEX_OUT_OF_RANGE),
        (ObjectRef(x=SparseVector(np.array([1.5]), np.ones(1))), poison.INDEX_OUT_OF_RANGE),
        (ObjectRef(x=SparseVector(np.ones((1, 1), np.int32), np.ones(1))), poison.BAD_VECTOR),
    ],
)
def test_what_would_be_written_as_something_else_is_refused(query, reason):
    with pytest.raises(Poison) as refused:
        encode_event(Event("e", 1, query, A, B))
    assert refused.value.reason == reason


def test_scalars_and_texts_of_numpy_are_numbers_and_texts():
    names = np.array(["a", "b"])
    event = Event("e", 1, ObjectRef(names[0]), A, B, weight=np.float32(0.5), propensity=np.float64(0.25))
    plain = Event("e", 1, A, A, B, weight=0.5, propensity=0.25)
    assert encode_event(event) == encode_event(plain)
