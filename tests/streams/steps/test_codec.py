"""Whatever is encoded is decoded alike, in any parts; no bytes make a reader fail in any other way."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.event import DenseColumn, SparseColumn
from streams.steps import codec
from streams.steps.codec import ROOM, Joiner, encode_segment
from streams.steps.segment import (
    BAD_HASH,
    BAD_PARTS,
    BREAK_REASONS,
    GENESIS,
    TOO_LARGE,
    BadSegment,
    Base,
    Body,
    Break,
    ChainPosition,
    RankOneSteps,
    Triplets,
    link,
)

from .examples import BODIES, PLACE, ROOMY, SPARSE, encoded, one, plain

NUMBERS = st.integers(0, 2**53 - 1)
TOKENS = st.text("0123456789abcdef", min_size=32, max_size=32)
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def columns(draw, rows: int, dim: int, dense: bool):
    if dense:
        values = draw(st.lists(FINITE, min_size=rows * dim, max_size=rows * dim))
        return DenseColumn(np.array(values, np.float32).reshape(rows, dim))
    held = [sorted(draw(st.sets(st.integers(0, dim - 1), max_size=4))) for _ in range(rows)]
    indices = [column for row in held for column in row]
    values = draw(st.lists(FINITE, min_size=len(indices), max_size=len(indices)))
    indptr = np.cumsum([0, *map(len, held)]).astype(np.int64)
    return SparseColumn(indptr, np.array(indices, np.int32), np.array(values, np.float32), dim)


@st.composite
def keyed(draw, rows: int):
    """Numbers and keys of so many rows, or none of both."""
    if draw(st.booleans()):
        return None, None
    numbers = sorted(draw(st.sets(NUMBERS, min_size=rows, max_size=rows)))
    texts = st.text(st.characters(codec="utf-8", min_codepoint=1), min_size=1, max_size=16)
    keys = draw(st.lists(texts, min_size=rows, max_size=rows))
    return np.array(numbers, np.int64), np.array([key.encode() for key in keys], "S64")


@st.composite
def bodies(draw) -> Body:
    kind = draw(st.sampled_from(["steps", "triplets", "base", "break"]))
    if kind == "base":
        chain = draw(st.binary(min_size=32, max_size=32))
        return Base(draw(NUMBERS), draw(NUMBERS), chain, draw(TOKENS), draw(TOKENS))
    if kind == "break":
        return Break(draw(NUMBERS), draw(st.sampled_from(BREAK_REASONS)))
    rows, dim, dense = draw(st.integers(0, 5)), draw(st.integers(1, 6)), draw(st.booleans())
    first, last = sorted((draw(NUMBERS), draw(NUMBERS)))
    if kind == "triplets":
        weights = st.none() | st.lists(st.floats(0, 1e300), min_size=rows, max_size=rows).map(np.array)
        given = draw(weights)
        times = np.array(draw(st.lists(NUMBERS, max_size=8)), np.int64)
        numbers = None if given is None else np.asarray(given, np.float64)
        roles = (draw(columns(rows, dim, dense)) for _ in range(3))
        named = draw(keyed(rows))
        told = (first, last, draw(st.none() | NUMBERS), times, numbers)
        return Triplets(*told, *roles, draw(st.booleans()), *named)
    positive = st.floats(width=32, min_value=2.0**-100, max_value=2.0**100)
    return RankOneSteps(
        first,
        last,
        draw(st.none() | NUMBERS),
        np.array(draw(st.lists(NUMBERS, max_size=8)), np.int64),
        np.array(draw(st.lists(positive, min_size=rows, max_size=rows)), np.float32),
        draw(columns(rows, dim, dense)),
        draw(columns(rows, dim, dense)),
        draw(st.booleans()),
        draw(st.booleans()),
    )


@given(
    body=bodies(), at=st.builds(ChainPosition, NUMBERS, NUMBERS, NUMBERS, TOKENS), room=st.integers(1, 200)
)
@settings(deadline=None)
def test_a_segment_survives_in_any_number_of_parts(body, at, room) -> None:
    place, before = at, bytes(range(32))
    roomy = encode_segment(place, body, before, ROOMY)
    head = msgpack.unpackb(roomy.records[0])["head"]
    most = len(head) + ROOM + room
    small = encode_segment(place, body, before, most)
    assert small.after == roomy.after, "the chain does not depend on the parts"
    assert all(len(value) <= most for value in small.records)
    for records in (roomy.records, small.records):
        segment = one(records)
        assert (segment.place, segment.before, segment.after) == (place, before, roomy.after)
        assert plain(segment.body) == plain(body)


def test_the_chain_takes_in_what_was_before_the_header_and_the_payload() -> None:
    values = {link(a, b, c) for a in (GENESIS, b"\1" * 32) for b in (b"h", b"g") for c in (b"p", b"")}
    assert len(values) == 8


@given(st.binary(max_size=300))
def test_no_bytes_crash_a_reader(value: bytes) -> None:
    joiner = Joiner()
    with pytest.raises(BadSegment):
        joiner.feed(value)
    assert joiner.feed(encoded(BODIES["break"])) is not None


@given(name=st.sampled_from(sorted(BODIES)), at=st.floats(0, 1, exclude_max=True), bits=st.integers(1, 255))
@settings(max_examples=300, deadline=None)
def test_no_altered_byte_goes_unseen(name: str, at: float, bits: int) -> None:
    value = bytearray(encoded(BODIES[name]))
    value[int(at * len(value))] ^= bits
    with suppress(BadSegment):
        assert Joiner().feed(bytes(value)) is None, "it may say that there are more parts"


@given(
    name=st.sampled_from(["csr", "dense", "triplets, csr", "triplets, dense", "triplets by key"]),
    key=st.sampled_from(
        ["first", "events", "steps", "dim", "qn", "en", "sn", "weights", "form", "cut", "kind", "seq"]
    ),
    to=st.one_of(
        st.integers(-5, 2**64 - 1), st.none(), st.booleans(), st.text(max_size=3), st.binary(max_size=3)
    ),
)
@settings(max_examples=300, deadline=None)
def test_a_wrong_header_under_a_right_hash_is_refused_or_harmless(name: str, key: str, to: object) -> None:
    record = msgpack.unpackb(encoded(BODIES[name]))
    head = msgpack.packb(msgpack.unpackb(record["head"]) | {key: to})
    record |= {"head": head, "next": link(record["chain"], head, record["data"])}
    try:
        segment = Joiner().feed(msgpack.packb(record))
    except BadSegment:
        return
    assert segment is not None
    body = segment.body
    assert isinstance(body, RankOneSteps | Triplets)
    rows = (
        (body.query, body.error)
        if isinstance(body, RankOneSteps)
        else (body.query, body.clicked, body.skipped)
    )
    for column in rows:
        assert len(column) == len(body)
        if isinstance(column, SparseColumn) and len(column.indices):
            assert 0 <= column.indices.min() <= column.indices.max() < column.dim


def test_every_cut_of_a_record_is_refused() -> None:
    value = encoded(SPARSE)
    for length in range(len(value)):
        with pytest.raises(BadSegment):
            Joiner().feed(value[:length])


def parts(seq: int = 7) -> list[bytes]:
    place = replace(PLACE, seq=seq)
    head = msgpack.unpackb(encoded(SPARSE, place))["head"]
    records = encode_segment(place, SPARSE, GENESIS, ROOM + len(head) + 30).records
    assert len(records) > 2
    return records


def refusal(joiner: Joiner, values: list[bytes]) -> str | None:
    """The reason for which one of the records is refused; none before it completes a segment."""
    for value in values:
        try:
            assert joiner.feed(value) is None
        except BadSegment as error:
            return error.reason
    return None


def test_what_a_writer_sent_twice_is_read_once() -> None:
    first, second, *rest = parts()
    joiner = Joiner()
    heard = [joiner.feed(value) for value in (first, second, first, second, *rest)]
    assert [segment is not None for segment in heard].count(True) == 1
    assert heard[-1] is not None
    assert plain(heard[-1].body) == plain(SPARSE)


def test_a_missing_part_or_one_of_another_segment_is_refused_and_the_next_segment_is_read() -> None:
    first, second, *rest = parts()
    for wrong in ([first, *rest[:1]], [first, parts(seq=8)[1]], [second], [first, second, second]):
        joiner = Joiner()
        assert refusal(joiner, wrong) == BAD_PARTS
        assert [joiner.feed(value) for value in parts()][-1] is not None


def test_parts_exchanged_between_segments_do_not_fit_the_hash() -> None:
    mine = [msgpack.unpackb(value) for value in parts()]
    mine[1]["data"], mine[2]["data"] = mine[2]["data"][: len(mine[1]["data"])], mine[1]["data"]
    assert refusal(Joiner(), list(map(msgpack.packb, mine))) == BAD_HASH


def test_sizes_are_limited_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadSegment) as refused:
        encode_segment(PLACE, SPARSE, GENESIS, ROOM)
    assert refused.value.reason == TOO_LARGE
    records = parts()
    monkeypatch.setattr(codec, "MAX_SEGMENT_BYTES", 50)
    assert refusal(Joiner(), records) == TOO_LARGE
    with pytest.raises(BadSegment) as refused:
        encode_segment(PLACE, SPARSE, GENESIS, ROOMY)
    assert refused.value.reason == TOO_LARGE
