"""Foreign input: records of the stream."""

from __future__ import annotations

import json
from functools import cache
from itertools import count
from random import Random
from typing import Any

import numpy as np

from daemon.config import load_config
from daemon.dead_letters import escaped
from daemon.learn.state import LearnState
from daemon.learn.step import Assembler, ReadyBatch, step
from daemon.serve.items.decoding import ItemDecoder
from daemon.serve.items.display import DisplayFile
from daemon.validate.scorer import check_impression
from learners.block import DenseBlock
from learners.caps import CapsConfig
from learners.maps import FittedSpaceMap, SpaceMap, ViewConfig
from learners.oasis import Oasis
from streams.codec import decode_impression, encode_event, encode_impression
from streams.decode import BatchDecoder
from streams.event import Event, Impression, ObjectRef, SparseVector
from streams.items import Display, ItemPut, ItemRemove, decode_item, encode_item
from streams.objects.columns import ObjectColumns
from streams.objects.from_lines import document_reading, object_rows
from streams.objects.from_topic import current, id_of
from streams.objects.json_vectors import read_json
from streams.objects.rows import CatalogError
from streams.poison import Poison, dead_letter_record, parse_dead_letter
from streams.queries import query_in_views
from streams.source import RecordBatch
from tests.fuzz.cases import CASES, DENSE, Case
from tests.fuzz.generate import DEEP, LIES, record
from tests.fuzz.law import ForeignInput

SETTINGS = {"space.views.x.kind": "dense", "space.views.x.dim": 3}
ARRIVED = 1_767_225_600_000
OFFSETS = count()


class Refused(Exception):
    """The record became a dead letter."""


def batch_of(value: bytes, key: bytes | None = None, arrived: int = ARRIVED) -> RecordBatch:
    """A batch of this record alone."""
    return RecordBatch(0, [next(OFFSETS)], [arrived], [value], [key], [()])


def decoder_of(case: Case) -> BatchDecoder:
    """A decoder that refuses far-off times, which that of the case does not, since it is compared."""
    space, catalog = case.space, case.catalog
    return BatchDecoder(space, catalog, "t", case.limit, keyed=True, max_future_ms=86_400_000)


def decoded_by(case: Case) -> Any:
    """Reads an event as `learn` does, and a dead letter of it as people do."""
    decoder = decoder_of(case)

    def read(value: bytes) -> None:
        found = decoder.decode(batch_of(value))
        if found.poison:
            (letter,) = found.poison
            made = dead_letter_record(letter)
            parse_dead_letter(made.value, made.headers)
            escaped(letter.value)
            raise Refused(letter.reason)

    return read


def event_seeds(case: Case) -> tuple[bytes, ...]:
    """Events of the case, some of which are refused."""
    return tuple(record(Random(seed), case.space) for seed in range(110, 150))


def clean() -> bytes:
    """An event that is learned."""
    rows = np.eye(3, dtype=np.float32)
    return encode_event(Event("clean", ARRIVED, *(ObjectRef(x=row) for row in rows)))


def identity() -> FittedSpaceMap:
    """The space of the first case as it is."""
    made = SpaceMap({"x": ViewConfig("identity")}, unit=False)
    return made.fit({"x": DenseBlock(np.eye(3, dtype=np.float32))})


@cache
def learning() -> tuple[Assembler, LearnState]:
    """A learner of the first case with caps."""
    fitted, config = identity(), load_config(None, SETTINGS, {}).learner
    decoder = decoder_of(CASES[0])
    learner = Oasis(3)
    caps = CapsConfig(100, source=5.0)
    return Assembler(decoder, fitted, CASES[0].catalog), LearnState.first(learner, fitted, config, caps)


def learn(value: bytes) -> None:
    """Decode, map and learn the record."""
    assemble, state = learning()
    batch = batch_of(value)
    done = step(state, ReadyBatch(batch, *assemble(batch), 0.0, 0.0), "t")
    assert np.isfinite(done.info.loss).all()
    if done.letters or not len(done.info):
        raise Refused


def judged(case: Case) -> Any:
    """Reads an impression as `validate` does."""

    def read(value: bytes) -> None:
        found = decode_impression(value)
        query_in_views(found.query, case.space, {})
        check_impression(found, case.space, case.catalog)

    return read


def impressions() -> tuple[bytes, ...]:
    """Lists of objects by id, and by their features."""
    row = np.array([0.5, 1.0, 2.0], np.float32)
    ids, objects = [ObjectRef("a"), ObjectRef("b"), ObjectRef("ab")], [ObjectRef(x=row), ObjectRef(x=2 * row)]
    return (
        encode_impression(Impression("i1", ARRIVED, ids[0], tuple(ids[1:]), (0,))),
        encode_impression(Impression("i2", ARRIVED, objects[0], tuple(objects), (1,), key="k", trained=True)),
    )


@cache
def items() -> ItemDecoder:
    """Decodes items of the first case."""
    return ItemDecoder(DENSE, identity(), "t.items", DisplayFile())


def item(value: bytes) -> None:
    """Read an item as `serve` and `items list` do."""
    found = items().decode(batch_of(value, b"a"))
    decode_item(value, b"a")
    if found.refused:
        raise Refused


def put(vector: np.ndarray | SparseVector, display: Display | None = None) -> bytes:
    """An item that is put in."""
    return encode_item(ItemPut(ObjectRef("a", x=vector), display or Display()))


ITEMS = (
    put(np.array([0.5, 1.0, 2.0], np.float32), Display("Lamp", "desk", tags=("b",))),
    put(SparseVector(np.array([1], np.int32), np.array([1.0], np.float32))),
    encode_item(ItemRemove("a")),
)


def of_catalog(columns: ObjectColumns) -> Any:
    """Reads a record of a catalog's topic; the first bytes up to a tab are its key."""
    reading = document_reading(columns, DENSE if columns else None)

    def read(value: bytes) -> None:
        key, _, document = value.partition(b"\t")
        found = current(read_json(document))
        if isinstance(found, dict) and "id" not in found:
            found = {"id": id_of(key), **found}
        if found is not None:
            list(object_rows([((0, 0), found)], reading, str))

    return read


MAPPED = ObjectColumns(id="id", x="x")
OBJECT = {"id": "a", "x": [0.5, 1.0, 2.0], "title": "Lamp", "tags": ["b"]}
CHANGE = {"payload": {"op": "u", "before": None, "after": OBJECT}, "schema": {}}
OBJECTS = tuple(b"a\t" + json.dumps(one).encode() for one in (OBJECT, CHANGE, CHANGE["payload"]))
OBJECTS += (b'{"payload": {"id": 7}}\t' + json.dumps({"x": [1, 2, 3]}).encode(),)

INPUTS: tuple[ForeignInput, ...] = (
    *(
        ForeignInput(f"event: {case.name}", decoded_by(case), event_seeds(case), (Refused,), (*DEEP, *LIES))
        for case in CASES
    ),
    ForeignInput("event: learned", learn, (clean(), *event_seeds(CASES[0])), (Refused,), (*DEEP, *LIES)),
    *(
        ForeignInput(f"impression: {case.name}", judged(case), impressions(), (Poison,), (*DEEP, *LIES))
        for case in (CASES[0], CASES[4])
    ),
    ForeignInput("item", item, ITEMS, (Refused, Poison), (*DEEP, *LIES)),
    ForeignInput("catalog topic", of_catalog(ObjectColumns()), OBJECTS, (ValueError, CatalogError)),
    ForeignInput(
        "catalog topic: mapped",
        of_catalog(ObjectColumns(id="id", x="x")),
        OBJECTS,
        (ValueError, CatalogError),
    ),
)
