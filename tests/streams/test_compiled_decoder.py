"""Ordinary events are taken by the compiled code itself; order, catalogs, and forms that nobody writes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import msgpack
import numpy as np
import pytest

from streams.codec import encode_event
from streams.compiled import reading
from streams.event import Event, ObjectRef, SparseVector
from streams.ids import hash_ids
from tests.fuzz.cases import BOTH, DENSE, IDS, SPARSE, Case, catalog_of
from tests.fuzz.compare import assert_same, batch_of, facts, hash_of, taken
from tests.fuzz.dirty import dirty_memory

SPARSE_CASE = Case("sparse", SPARSE)
CATALOG_CASE = Case("catalog", DENSE, catalog_of(DENSE))
X = ObjectRef(x=SparseVector(np.array([1, 50], np.int32), np.array([0.5, 2], np.float32)))
ORDINARY = encode_event(Event("e1", 5, X, X, X, weight=0.5, source="web", propensity=0.25, space="texts"))


@pytest.fixture(autouse=True, scope="module")
def _dirty():
    with dirty_memory():
        yield


BIG = SparseVector(np.arange(20_000, dtype=np.int32), np.ones(20_000, np.float32))
OBJECT = {"x": [bytes(8), bytes(8)]}
FIELDS = {"v": 1, "id": "e", "ts": 1_700_000_000_000, "q": OBJECT, "c": OBJECT, "s": OBJECT}


@pytest.mark.parametrize(
    "value",
    [
        ORDINARY,
        msgpack.packb(FIELDS),
        msgpack.packb(dict(reversed(FIELDS.items()))),  # Go's maps come in any order
        msgpack.packb(FIELDS | {"w": 0.5, "prop": 0.5}, use_single_float=True),
        msgpack.packb(FIELDS | {"w": 3}),
        msgpack.packb(FIELDS | {"imp": "é" * 100, "src": "x" * 300}),
        b"\xde\x00\x06" + msgpack.packb(FIELDS)[1:],  # msgpackr writes every map so
        msgpack.packb(FIELDS).replace(b"\xcf\x00\x00\x01", b"\xd3\x00\x00\x01"),  # Go: int64 stays int64
        msgpack.packb(FIELDS).replace(b"\xa1v\x01", b"\xa1v\xd3" + bytes(7) + b"\x01"),
        msgpack.packb(FIELDS).replace(b"\xa2id\xa1e", b"\xa2id\xd9\x01e"),
        msgpack.packb(FIELDS).replace(b"\xc4\x08", b"\xc5\x00\x08").replace(b"\x92\xc5", b"\xdc\x00\x02\xc5"),
        pytest.param(
            encode_event(Event("e", 5, ObjectRef(x=BIG), X, ObjectRef("é", x=BIG))),
            id="bin32, beyond one piece",
        ),
        encode_event(Event("e", 5, ObjectRef(views={"x": X.x}), X, X)),
    ],
)
def test_what_producers_write_goes_the_fast_way(value):
    wide = Case("wide", SPARSE, limit=1 << 20)
    assert len(assert_same(wide, [value])) == taken(wide, [value]) == 1


def unusual(index):
    """A legal event as nobody writes it: four bytes for the number of its fields."""
    value = encode_event(Event(f"e{index}", index, X, X, X, weight=1 + index))
    return b"\xdf\0\0\0" + bytes([value[0] & 15]) + value[1:]


def test_a_batch_of_nothing_but_unusual_events():
    values = [unusual(index) for index in range(300)]
    assert taken(SPARSE_CASE, values) == 0
    decoded = assert_same(SPARSE_CASE, values)
    assert decoded.timestamps.tolist() == list(range(300))
    assert decoded.query.inline["x"].indices.tolist() == [1, 50] * 300


def test_an_unusual_event_of_the_greatest_length_allowed_is_one_when_written_anew():
    ordinary = msgpack.packb(FIELDS | {"w": 0.5, "prop": 0.5}, use_single_float=True)
    value = b"\xdf\0\0\0\x08" + ordinary[1:]  # 4 bytes more; its floats get 4 bytes more each
    tight = Case("tight", SPARSE, limit=len(value))
    assert len(assert_same(tight, [value])) == 1


def test_a_mixed_batch_keeps_its_order_across_pieces(monkeypatch):
    monkeypatch.setattr(reading, "PIECE_BYTES", 1000)
    values = []
    for index in range(200):
        good = encode_event(Event(f"e{index}", index, X, X, X))
        values += [[good], [unusual(index)], [good[:-1]], [None], [good, b"\xc1"], [good] * 20][index % 6]
    decoded = assert_same(SPARSE_CASE, values)
    assert len(SPARSE_CASE.compiled._reading.find([v or b"" for v in values], 1 << 20).pieces) > 50
    assert (np.diff(decoded.timestamps) >= 0).all()
    assert [one.offset for one in decoded.poison] == sorted(one.offset for one in decoded.poison)


def test_a_record_longer_than_a_piece_is_a_piece(monkeypatch):
    monkeypatch.setattr(reading, "PIECE_BYTES", 10)
    assert len(assert_same(SPARSE_CASE, [ORDINARY, b"", ORDINARY, b"", None, ORDINARY, ORDINARY])) == 4
    pieces = SPARSE_CASE.compiled._reading.find([ORDINARY] * 3, 1 << 20).pieces
    assert pieces == [(0, 1, 0, 1), (1, 2, 1, 2), (2, 3, 2, 3)]


def test_a_damaged_stretch_of_the_log_is_poison():
    batch = replace(batch_of([None], first=99), damaged="partition 2, offsets 90 to 99: checksum")
    ours, plain = SPARSE_CASE.compiled.decode(batch), SPARSE_CASE.plain.decode(batch)
    assert facts(ours) == facts(plain)
    assert [(one.reason, one.offset, one.detail) for one in ours.poison] == [
        ("corrupt_batch", 99, "partition 2, offsets 90 to 99: checksum")
    ]
    assert (len(ours), ours.next_offset) == (0, 100)


def named(*ids):
    return encode_event(Event("e", 5, *map(ObjectRef, ids)))


def test_rows_of_a_catalog_by_every_id():
    values = [named(one, two, one) for one in IDS for two in IDS]
    decoded = assert_same(CATALOG_CASE, values)
    assert taken(CATALOG_CASE, values) == len(values)
    assert decoded.query.rows.tolist() == [row for row in range(len(IDS)) for _ in IDS]


def test_ids_whose_places_in_the_index_collide_are_told_apart():
    crowd = sorted((f"id{number}" for number in range(40_000)), key=lambda one: hash_of(one) & 0xFFFF)[:300]
    case = Case("crowd", DENSE, catalog_of(DENSE, crowd[:200]))
    assert len({hash_of(one) & 511 for one in crowd[:200]}) < 190  # many share a slot
    decoded = assert_same(case, [named(one, crowd[0], crowd[199]) for one in crowd])
    assert decoded.query.rows.tolist() == list(range(200))
    assert [one.reason for one in decoded.poison] == ["unknown_object"] * 100


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7, 8, 1000])
def test_catalogs_of_any_size_find_what_they_have_and_nothing_else(count):
    ids = [f"object {number}" for number in range(count)]
    case = Case("some", DENSE, catalog_of(DENSE, ids))
    decoded = assert_same(case, [named(one, one, one) for one in [*ids, "nobody", "object", "object 10000"]])
    assert decoded.skipped.rows.tolist() == list(range(count))


def test_a_mapping_of_all_views_in_any_order_and_rows_of_the_catalog_between_them():
    views = {"x": X.x, "colour": np.array([1, 2], np.float32)}
    one, other = ObjectRef(views=views), ObjectRef("a", views=dict(reversed(views.items())))
    case = Case("both", BOTH, catalog_of(BOTH))
    a = ObjectRef("a")
    decoded = assert_same(case, [encode_event(Event("e", 5, q, a, a)) for q in (one, a, other)])
    assert decoded.query.inline["colour"].values.tolist() == [[1, 2], [0, 0], [1, 2]]
    assert decoded.query.inline["x"].indptr.tolist() == [0, 2, 2, 4]


def test_ids_are_hashed_by_xxh64():
    texts = ["", *("é" * n + "x" * m for n in range(12) for m in range(12)), "y" * 512]
    hashes = hash_ids(texts)
    assert (hashes.dtype, hashes.tolist()) == (np.uint64, [hash_of(text) for text in texts])


def test_numba_comes_in_only_with_a_decoder_and_leaves_the_kernels_their_level():
    code = (
        "import sys, streams.decode; assert 'numba' not in sys.modules\n"
        "import daemon.learn.reader, daemon.learn.compatible\n"
        "from streams.event import SpaceSpec, ViewSpec\n"
        "streams.decode.BatchDecoder(SpaceSpec('s', (ViewSpec('x', 'dense', 3),)), None, 't')\n"
        "from daemon.learn.compatible import runtime\n"
        "from learners.kernels.cpu import X86_64_V3, GENERIC\n"
        "assert runtime()['cpu_level'] in (X86_64_V3, GENERIC), runtime()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
