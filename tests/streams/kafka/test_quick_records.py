"""Batches read in compiled code are what kafka-python's own reader makes of them, to the last error."""

from __future__ import annotations

import socket
import struct
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import TopicPartition
from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError, KafkaConnectionError
from kafka.protocol.consumer import IsolationLevel
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.util import calc_crc32c

from streams.kafka.clients import patches as quick_records
from streams.kafka.clients.patches import RECEIVE_BYTES, QuickRecords, WideTransport
from tests.harness.kafka.compressed import CODECS

PLACE = TopicPartition("clicks", 0)
PRODUCERS = {"plain": 7, "committed": 8, "aborted": 9}
BYTES = st.none() | st.binary(max_size=200)
RECORD = st.tuples(st.integers(1, 300), st.integers(0, 1 << 41), BYTES, BYTES)
HEADERS = st.sampled_from([[], [], [], [("kind", b"x"), ("empty", None)]])
BATCH = st.tuples(
    st.lists(RECORD, min_size=1, max_size=12),
    HEADERS,
    st.sampled_from([0, 0, 0, *CODECS.values()]),
    st.sampled_from(["plain", "plain", "committed", "aborted"]),
    st.integers(0, 3),
    st.sampled_from([0, 0, 2]),
)


@pytest.fixture(autouse=True, scope="module")
def every_answer():
    """However few bytes it has."""
    before, quick_records.MIN_BYTES = quick_records.MIN_BYTES, 0
    yield
    quick_records.MIN_BYTES = before


def batch_of(records, headers=(), codec=0, kind="plain", epoch=0, compacted=0, base=0):
    """One batch and the offset behind it: steps between offsets, times, keys and values of its records.

    headers: of the last record. compacted: how many records are gone from behind it.
    """
    builder = DefaultRecordBatchBuilder(2, codec, kind != "plain", PRODUCERS[kind], 0, 0, 1 << 20)
    offset = -1
    for place, (step, time, key, value) in enumerate(records):
        offset += step
        last = list(headers) if place == len(records) - 1 else []
        assert builder.append(offset, time, key, value, last) is not None
    data, last = bytearray(builder.build()), offset + compacted
    struct.pack_into(">q", data, 0, base)
    struct.pack_into(">i", data, 12, epoch)
    struct.pack_into(">i", data, 23, last)
    return resealed(data), base + last + 1


def resealed(data):
    """With the checksum that fits what is there."""
    at = DefaultRecordBatch.ATTRIBUTES_OFFSET
    struct.pack_into(">I", data, DefaultRecordBatch.CRC_OFFSET, calc_crc32c(bytes(data[at:])))
    return data


def read(kind, data, start, takes, aborted=()):
    """All that `kind` tells of an answer: records and standing after each take, or the error's words."""
    told = []
    part = kind(
        start,
        PLACE,
        MemoryRecords(bytes(data)),
        isolation_level=IsolationLevel.READ_COMMITTED,
        aborted_transactions=aborted,
    )
    try:
        while part:
            records = part.take(takes)
            fields = [
                (r.leader_epoch, r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in records
            ]
            told.append((fields, part.next_fetch_offset))
    except Exception as error:
        told.append((type(error).__name__, str(error), part.next_fetch_offset))
    return told


def both_alike(data, *how):
    how = how or (0, 5)
    assert read(QuickRecords, data, *how) == read(Fetcher.PartitionRecords, data, *how)


@settings(deadline=None)
@given(st.lists(BATCH, min_size=1, max_size=4), st.integers(1, 30), st.integers(0, 40))
def test_what_is_read_is_what_the_library_reads(batches, takes, start):
    data, base, aborted = bytearray(), 0, []
    for records, headers, codec, kind, epoch, compacted in batches:
        if kind == "aborted":
            aborted.append(SimpleNamespace(first_offset=base, producer_id=PRODUCERS[kind]))
        one, base = batch_of(records, headers, codec, kind, epoch, compacted, base)
        data += one
    both_alike(data, start, takes, aborted)


@settings(deadline=None)
@given(st.lists(RECORD, min_size=1, max_size=6), st.sampled_from([0, 0, *CODECS.values(), 7]), st.data())
def test_a_damaged_batch_ends_in_the_same_error(records, codec, data):
    whole, end = batch_of(records, codec=codec % 7)
    if codec == 7:
        whole[22] |= codec
        whole = resealed(whole)
    place = data.draw(
        st.integers(len(whole) - min(len(whole) - 61, 300), len(whole) - 1) | st.integers(16, 60)
    )
    whole[place] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        whole = resealed(whole)
    following, _ = batch_of(records, base=end)
    both_alike(whole + following)


@pytest.mark.parametrize("quick", [True, False])
def test_a_batch_too_short_for_its_header_has_no_end_of_the_batch_before(quick, monkeypatch):
    monkeypatch.setattr(quick_records, "MIN_BYTES", 0 if quick else 1 << 20)
    whole, end = batch_of([(1, 0, None, b"v")] * 3)
    part = QuickRecords(0, PLACE, MemoryRecords(bytes(whole) + struct.pack(">qih", end, 2, 0)))
    assert len(part.take(3)) == 3
    with pytest.raises(CorruptRecordError) as raised:
        part.take(1)
    assert quick_records.last_offset_of(raised.value) is None


def test_times_given_by_the_log_are_those_of_the_batch():
    data, _ = batch_of([(1, 1000, b"k", b"v"), (1, 2000, None, None)])
    data[22] |= DefaultRecordBatch.TIMESTAMP_TYPE_MASK
    both_alike(resealed(data))


def test_a_count_of_records_that_cannot_be_there_takes_no_memory():
    data, _ = batch_of([(1, 0, None, b"v")])
    struct.pack_into(">i", data, 57, 2**31 - 1)
    both_alike(resealed(data))


def test_many_tiny_records_of_a_compressed_batch_are_taken_one_at_a_time(monkeypatch):
    monkeypatch.setattr(quick_records, "MOST_INFLATED", 2)
    both_alike(batch_of([(1, 0, None, b"v")] * 5, codec=CODECS["zstd"])[0])


@pytest.mark.parametrize("codec", [0, *CODECS.values()])
def test_nearly_all_is_read_in_compiled_code(monkeypatch, codec):
    monkeypatch.setattr(DefaultRecordBatch, "__next__", None)
    data, _ = batch_of([(1, 5, b"key", b"value"), (3, 6, None, b""), (1, 7, b"", None)], codec=codec)
    ((fields, _),) = read(QuickRecords, data, 0, 9)
    assert [(offset, key, value) for _, offset, _, key, value, _ in fields] == [
        (0, b"key", b"value"),
        (3, None, b""),
        (4, b"", None),
    ]


def test_a_connection_gives_all_that_has_come_and_tells_its_end():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        transport = WideTransport.__new__(WideTransport)
        transport._sock = ours
        ours.setblocking(False)
        assert transport._sock_recv() == (b"", None)
        theirs.setblocking(False)
        sent = theirs.send(bytes(4 * RECEIVE_BYTES))
        got, problem = transport._sock_recv()
        assert (len(got), problem) == (sent, None)
        theirs.close()
        assert isinstance(transport._sock_recv()[1], KafkaConnectionError)
