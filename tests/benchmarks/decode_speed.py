"""Figures of decoding alone: a polled batch of records to columns, over plain Python.

`decode_vs_python`: over `msgpack.unpackb` of each record and one `np.frombuffer` per array, the plain
reasonable way. It leaves every vector where it is, while ours also checks the format, hashes ids and lays out
columns.
`decode_vs_own_python`: over our decoder in plain Python, which does exactly what the compiled one does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np

from learners import SparseBlock
from streams.catalog import Catalog
from streams.codec import encode_event
from streams.decode import BatchDecoder, PlainDecoder
from streams.event import DenseColumn, Event, ObjectRef, SpaceSpec, SparseVector, ViewSpec
from streams.source import RecordBatch
from tests.benchmarks.harness import Figure, ratio_figure
from tests.benchmarks.triplets import DIM, random_triplets

COUNT = 4_096
"""Records of a batch: what `learn` polls by default."""
REPEATS = 15
PHOTO_DIM = 300
OBJECTS = 100_000
ROLES = ("q", "c", "s")

Decode = Callable[[RecordBatch], object]


def figures() -> list[Figure]:
    """Sparse, dense and by-id events over plain Python, and the first also over our own plain decoder."""
    texts = SpaceSpec("texts", (ViewSpec("x", "sparse", DIM),))
    photos = SpaceSpec("photos", (ViewSpec("x", "dense", PHOTO_DIM),))
    sparse, dense, named, catalog = sparse_events(), dense_events(), named_events(), catalog_of(photos)
    ours, plain = BatchDecoder(texts, None, "t").decode, PlainDecoder(texts, None, "t").decode
    away = "unpackb and frombuffer per array; batches of 4,096"
    return [
        _figure(
            "decode_vs_python", f"{away}; {_size(sparse)}, three sparse vectors of 70", sparse, ours, by_hand
        ),
        _figure("decode_vs_own_python", f"our plain decoder; {_size(sparse)}, sparse", sparse, ours, plain),
        _figure(
            "decode_dense_vs_python",
            f"{away}; {_size(dense)}, three dense vectors of {PHOTO_DIM}",
            dense,
            BatchDecoder(photos, None, "t").decode,
            by_hand_dense,
        ),
        _figure(
            "decode_ids_vs_python",
            f"unpackb and a dict; batches of 4,096; {_size(named)}, three ids out of {OBJECTS:,}",
            named,
            BatchDecoder(photos, catalog, "t").decode,
            _by_hand_named(catalog),
        ),
    ]


def by_hand(batch: RecordBatch) -> list[Any]:
    """Id, time, weight and six arrays of each record."""
    read, events = np.frombuffer, []
    for value in batch.values:
        one = msgpack.unpackb(value)
        vectors = [(read(one[role]["x"][0], "<i4"), read(one[role]["x"][1], "<f4")) for role in ROLES]
        events.append((one["id"], one["ts"], one.get("w", 1.0), vectors))
    return events


def by_hand_dense(batch: RecordBatch) -> list[Any]:
    """Id, time, weight and three arrays of each record."""
    events = []
    for value in batch.values:
        one = msgpack.unpackb(value)
        vectors = [np.frombuffer(one[role]["x"], "<f4") for role in ROLES]
        events.append((one["id"], one["ts"], one.get("w", 1.0), vectors))
    return events


def _by_hand_named(catalog: Catalog) -> Decode:
    rows = {one: row for row, one in enumerate(catalog.ids)}

    def decode(batch: RecordBatch) -> list[Any]:
        events = []
        for value in batch.values:
            one = msgpack.unpackb(value)
            places = [rows[one[role]["id"]] for role in ROLES]
            events.append((one["id"], one["ts"], one.get("w", 1.0), places))
        return events

    return decode


def sparse_events() -> RecordBatch:
    """The 1.7 KB events of the other benchmarks."""
    batch = random_triplets(COUNT)
    blocks = (batch.query, batch.clicked, batch.skipped)
    return _records([[_sparse(block, row) for block in blocks] for row in range(COUNT)])


def dense_events() -> RecordBatch:
    """Events with three dense vectors each."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((COUNT, 3, PHOTO_DIM)).astype(np.float32)
    return _records([[ObjectRef(x=vector) for vector in event] for event in values])


def named_events() -> RecordBatch:
    """Events with three ids each."""
    drawn = np.random.default_rng(0).integers(0, OBJECTS, (COUNT, 3))
    return _records([[ObjectRef(_name(number)) for number in event] for event in drawn.tolist()])


def catalog_of(space: SpaceSpec) -> Catalog:
    """A catalog of `OBJECTS` objects without features worth the name."""
    zeros = np.broadcast_to(np.zeros(1, np.float32), (OBJECTS, PHOTO_DIM))
    return Catalog([_name(number) for number in range(OBJECTS)], {"x": DenseColumn(zeros)}, space)


def _name(number: int) -> str:
    return f"object-{number:08d}"


def _sparse(block: Any, row: int) -> ObjectRef:
    assert isinstance(block, SparseBlock)
    part = slice(int(block.indptr[row]), int(block.indptr[row + 1]))
    return ObjectRef(x=SparseVector(block.indices[part], block.values[part]))


def _records(objects: list[list[ObjectRef]]) -> RecordBatch:
    values = [
        encode_event(Event(f"event-{number}", 1_700_000_000_000 + number, query, clicked, skipped))
        for number, (query, clicked, skipped) in enumerate(objects)
    ]
    n = len(values)
    return RecordBatch(0, list(range(n)), [0] * n, list(values), [None] * n, [()] * n)


def _size(batch: RecordBatch) -> str:
    return f"{sum(len(value or b'') for value in batch.values) / len(batch.values):,.0f}-byte events"


def _figure(name: str, against: str, batch: RecordBatch, ours: Decode, theirs: Decode) -> Figure:
    return ratio_figure(name, against, _rate(ours, batch), _rate(theirs, batch), repeats=REPEATS)


def _rate(decode: Decode, batch: RecordBatch) -> Callable[[], float]:
    def run() -> float:
        begin = time.perf_counter()
        for _ in range(3):
            decode(batch)
        return 3 * len(batch.values) / (time.perf_counter() - begin)

    return run
