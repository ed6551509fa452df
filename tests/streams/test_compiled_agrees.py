"""The compiled decoder makes of every batch what the plain one does, whatever the bytes."""

from __future__ import annotations

from random import Random

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.codec import encode_event
from streams.event import Event, ObjectRef, SparseVector
from tests.fuzz.cases import CASES, SPARSE, Case
from tests.fuzz.compare import assert_same, taken
from tests.fuzz.dirty import dirty_memory
from tests.fuzz.generate import KEYS, event, record
from tests.fuzz.pack import Map, Raw, Text, pack

SPARSE_CASE = Case("sparse", SPARSE)
X = ObjectRef(x=SparseVector(np.array([1, 50], np.int32), np.array([0.5, 2], np.float32)))
ORDINARY = encode_event(Event("e1", 5, X, X, X, weight=0.5, source="web", propensity=0.25, space="texts"))
cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@pytest.fixture(autouse=True, scope="module")
def _dirty():
    with dirty_memory():
        yield


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(CASES), st.randoms(use_true_random=False), st.integers(1, 12))
def test_any_batch_is_decoded_as_the_plain_decoder_does(case, rng, size):
    assert_same(case, [record(rng, case.space) if rng.random() < 0.97 else None for _ in range(size)])


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(CASES), st.lists(st.binary(max_size=100), min_size=1, max_size=5))
def test_any_bytes_are_decoded_as_the_plain_decoder_does(case, values):
    assert_same(case, values)


def legal(case, rng, full=0.3, wide=0.0):
    """An event of the case, as a tree and packed, that both decoders take."""
    while True:
        tree = event(rng, case.space, full)
        value = pack(tree, rng, wide)
        if len(assert_same(case, [value])):
            return tree, value


@cases
def test_every_length_of_an_event_cut_short_or_followed_by_more(case):
    rng = Random(3)
    whole = [legal(case, rng, wide=wide)[1] for wide in (0.0, 0.5, 1.0) for _ in range(5)]
    cuts = [value[:length] for value in whole for length in range(0, len(value), 1 + len(value) // 400)]
    more = [value + rest for value in whole for rest in (b"", b"\0", b"\xc0", b"\xff" * 9, value)]
    assert len(assert_same(case, cuts + more)) == len(whole)


@cases
def test_every_flipped_bit_of_an_event(case):
    rng = Random(4)
    value = min((legal(case, rng, wide=0.3)[1] for _ in range(20)), key=len)
    flipped = [int.from_bytes(value) ^ (1 << bit) for bit in range(8 * len(value))]
    assert_same(case, [one.to_bytes(len(value)) for one in flipped])


@cases
def test_every_single_edit_of_an_event(case):
    rng = Random(5)
    trees = [legal(case, rng, full=0.6)[0] for _ in range(2)]
    assert_same(
        case, [pack(edit, rng, wide) for tree in trees for edit in edits(tree) for wide in (0.0, 0.5)]
    )


def edits(node):
    """The tree with one thing left out, given twice, renamed or of another value, for each that there is."""
    if isinstance(node, Map):
        for place, (key, value) in enumerate(node.pairs):
            before, after = node.pairs[:place], node.pairs[place + 1 :]
            names = [Text(name.encode()) for name in KEYS] + [name for name, _ in node.pairs]
            others = [(name, value) for name in names if name != key] + [(key.raw, value)]
            inside = [(key, edit) for edit in edits(value)]
            yield Map(before + after)
            yield Map((*before, (key, value), *after, (key, value)))
            yield from (Map((*before, one, *after)) for one in [*others, *inside])
    elif isinstance(node, list):
        for place, one in enumerate(node):
            yield node[:place] + node[place + 1 :]
            yield from (node[:place] + [edit] + node[place + 1 :] for edit in edits(one))
        yield from ([one + bytes(more) for one in node] for more in (1, 2, 4) if isinstance(node[0], bytes))
    if isinstance(node, bytes):
        yield from [node[:-1], node[:-4], node + bytes(1), node + bytes(4)]
    yield from [None, True, 1, -1, 0, 2**53, 0.5, -0.5, 2e6, Text(b"a"), Text(b"x" * 513), Text(b""), b"", []]
    yield from [Map(()), Text(b"\xff"), [b"", b""], [bytes(4)] * 3, bytes(12), Raw(b"\xc1"), Raw(b"\xd4\1a")]


def test_every_first_byte_of_every_field():
    fields = {
        "v": 6,
        "id": "e",
        "ts": 5,
        "w": 2,
        "prop": 0.5,
        "src": "a",
        "imp": "b",
        "sp": "texts",
        "key": "k",
        "pair": 2,
    }
    objects = {name: {"x": [bytes(8), bytes(8)]} for name in "qcs"}
    whole = msgpack.unpackb(msgpack.packb(fields | objects), object_pairs_hook=tuple)
    rest = [b"", b"\0", bytes(2), bytes(4), b"\0\0\0\x01", bytes(8), b"\x3f\xf0" + bytes(6), bytes(40)]
    rest += [b"\xff" * width for width in (1, 2, 4, 8)]  # negative, where there is a sign
    raws = [bytes([head]) + tail for head in range(0xC0, 0xE0) for tail in rest]
    raws += [bytes([head]) + bytes(40) for head in range(256)]
    values = []
    for place in range(len(whole)):
        for raw in raws:
            pairs = [(Text(key.encode()), _tree(value)) for key, value in whole]
            pairs[place] = (pairs[place][0], Raw(raw))
            values.append(pack(Map(tuple(pairs)), Random(0)))
    assert_same(SPARSE_CASE, values)


def _tree(value):
    if isinstance(value, str):
        return Text(value.encode())
    if isinstance(value, tuple):
        return Map(tuple((Text(key.encode()), _tree(one)) for key, one in value))
    return value


def test_utf8_is_judged_as_python_does():
    edges = [0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0]
    leads = [0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF]
    texts = [bytes([lead]) for lead in range(256)]
    texts += [bytes([lead, second]) for lead in leads for second in range(256)]
    texts += [
        bytes([lead, a, b, c]) for lead in leads for a in edges for b in edges for c in (0x7F, 0x80, 0xBF)
    ]
    texts += [bytes([lead, a, b]) for lead in leads for a in edges for b in edges]
    texts += [text + b"z" for text in texts]
    values = [ORDINARY.replace(b"\xa2e1", bytes([0xA0 + len(text)]) + text) for text in texts]
    decoded = assert_same(SPARSE_CASE, values)
    assert len(decoded) == taken(SPARSE_CASE, values) > 500
    assert {one.reason for one in decoded.poison} == {"bad_text"}
