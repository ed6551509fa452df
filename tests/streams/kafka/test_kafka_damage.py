"""Records that cannot be read: bytes flipped on the broker's disk, and batches that are bombs."""

from __future__ import annotations

import tracemalloc

import pytest
from kafka.errors import MessageSizeTooLargeError

from streams.kafka.clients import patches
from streams.kafka.source import KafkaSource
from streams.source import OutRecord
from tests.harness.kafka.compressed import CODECS, by_kafka_python, topic_of_anybody
from tests.streams.kafka.conftest import PATIENCE_S, drain
from tests.streams.kafka.segments import batches, damage

MIB = 1 << 20


@pytest.fixture
def place(kafka, place_in):
    """Read with kafka-python: librdkafka may end the process at a damaged batch (an assertion of its own)."""
    return place_in(kafka)


def write(place, sizes):
    """Batches of these many records, numbered through."""
    number = 0
    for size in sizes:
        place.send(*(b"%d" % n for n in range(number, number + size)))
        number += size
    assert [batch.last - batch.first + 1 for batch in batches(place.cluster, place.address.topic)] == sizes


def with_damage(source: KafkaSource, poll: int):
    """Everything to the end: the sound records, and (last offset, text) of each damaged stretch."""
    end = source.bounds()[0][1]
    sound, damaged = [], []
    while source.reached()[0] < end:
        batch = source.poll(poll, PATIENCE_S)
        if batch.damaged is None:
            sound += zip(batch.offsets, batch.values, strict=True)
        else:
            assert (batch.values, batch.keys, batch.headers, len(batch)) == ([None], [None], [()], 1)
            damaged += [(batch.offsets[0], batch.damaged)]
    return sound, damaged


@pytest.mark.parametrize(
    ("poll", "sizes", "wanted", "first", "last"),
    [
        (1, [10] * 5, [20], 20, 29),
        (7, [10] * 5, [0], 0, 9),
        (500, [10] * 5, [40], 40, 49),
        (7, [1] * 8, [3], 3, 3),
        (500, [7, 300, 7], [7], 7, 306),
        (7, [10] * 6, [20, 30, 40], 20, 49),
    ],
)
def test_a_batch_with_a_flipped_byte_is_one_damaged_record_and_reading_goes_on(
    place, poll, sizes, wanted, first, last
):
    write(place, sizes)
    damage(place.cluster, place.address.topic, *wanted)
    sound, damaged = with_damage(place.reading(), poll)
    assert sound == [(n, b"%d" % n) for n in range(sum(sizes)) if not first <= n <= last]
    ((offset, text),) = damaged
    assert offset == last
    assert text.startswith(f"offsets {first} to {last} cannot be read: ")


def test_two_damaged_batches_with_sound_ones_between_are_two_damaged_records(place):
    write(place, [10] * 5)
    damage(place.cluster, place.address.topic, 10, 30)
    sound, damaged = with_damage(place.reading(), 500)
    assert [offset for offset, _ in sound] == [*range(10), *range(20, 30), *range(40, 50)]
    assert [offset for offset, _ in damaged] == [19, 39]


def test_beginning_inside_a_damaged_batch(place):
    write(place, [10] * 3)
    damage(place.cluster, place.address.topic, 10)
    source = place.reading(15)
    sound, damaged = with_damage(source, 500)
    assert [offset for offset, _ in sound] == list(range(20, 30))
    assert damaged[0][1].startswith("offsets 15 to 19 ")


def test_damage_in_one_partition_does_not_hold_up_another(kafka, place_in):
    # the healthy partition always brings something: that must not make the damaged one forgotten
    place = place_in(kafka, partitions=2)
    write(place, [10] * 3)
    sink = place.sink()
    damage(kafka, place.address.topic, 10)
    source = place.source()
    source.assign({0: 0, 1: 0})
    seen = {0: [], 1: []}
    damaged = None
    while damaged is None or source.reached()[0] < 30:
        assert len(seen[1]) < 1000
        sink.send([OutRecord(b"more", partition=1)])
        batch = source.poll(500, 0.2)
        if batch is not None:
            seen[batch.partition] += batch.offsets
            damaged = batch.damaged or damaged
    assert damaged.startswith("offsets 10 to 19 ")
    assert seen[0] == [*range(10), 19, *range(20, 30)]
    assert seen[1] == list(range(len(seen[1])))


def bomb(place, records, size, codec="gzip", write=by_kafka_python):
    """Zeros in one compressed batch, far fewer bytes on the wire; between two records."""
    place.send(b"before")
    write(place.cluster, place.address.topic, codec, [bytes(size)] * records)
    place.send(b"after")


def test_a_topic_of_ours_takes_no_bomb_and_keeps_nothing_compressed(kafka, place_in):
    place = place_in(kafka)
    with pytest.raises(MessageSizeTooLargeError):
        bomb(place, records=1, size=4 * MIB)
    bomb(place, records=2, size=MIB // 2)
    found = batches(kafka, place.address.topic)
    assert {batch.codec for batch in found} == {0}
    half = bytes(MIB // 2)
    assert [value for _, value in drain(place.reading())] == [b"before", b"before", half, half, b"after"]


@pytest.fixture
def unsafe(kafka, place_in):
    """A topic that somebody else made: the broker keeps what it is given."""
    place = place_in(kafka, create=False)
    topic_of_anybody(kafka, place.address.topic)
    return place


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_costs_no_more_memory_than_a_poll_may_hold(unsafe, monkeypatch, codec):
    monkeypatch.setattr(patches, "MAX_POLL_BYTES", 3 * MIB)
    bomb(unsafe, 40, MIB, codec)
    source = unsafe.reading()
    tracemalloc.start()
    sound, damaged = with_damage(source, 500)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sound == [(0, b"before"), (41, b"after")]
    ((offset, text),) = damaged
    assert offset == 40
    assert "a compressed batch holds more than" in text
    wire = max(batch.size for batch in batches(unsafe.cluster, unsafe.address.topic))
    assert peak < 12 * MIB + 12 * wire, "snappy makes zeros a twentieth: what was sent counts too"


def test_many_bombs_in_one_answer_are_not_held_together(unsafe, monkeypatch):
    monkeypatch.setattr(patches, "MAX_POLL_BYTES", 3 * MIB)
    for _ in range(10):
        bomb(unsafe, 2, MIB)
    source = unsafe.reading()
    got, end = 0, source.bounds()[0][1]  # connected: what the client makes for itself is not counted
    tracemalloc.start()
    while source.reached()[0] < end:
        batch = source.poll(500, 0.5)
        got += 0 if batch is None else len(batch)
        batch = None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert got == end == 40
    assert peak < 17 * MIB, "twenty together were 20 MiB, held more than once"


def test_a_compressed_batch_within_the_limit_is_read(unsafe):
    bomb(unsafe, 4, MIB)
    values = [value for _, value in drain(unsafe.reading())]
    assert values == [b"before", *[bytes(MIB)] * 4, b"after"]
