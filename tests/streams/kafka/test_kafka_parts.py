"""The parts of the Kafka backend that need no broker."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import errors

from streams.address import Address
from streams.errors import RecordRefused, StreamRefused, StreamUnavailable, TopicMissing
from streams.kafka.bounded import call_within
from streams.kafka.clients.protocol import CorruptBatch, Fetched, OutOfRange
from streams.kafka.connection import Connection
from streams.kafka.continuity import LastRead, follows, last_of
from streams.kafka.damage import Prober, find_damage
from streams.kafka.faults import stream_error
from streams.kafka.topics import safe_settings
from streams.kafka.waiting import Waiting

ADDRESS = Address("kafka", "host:9092", "clicks")


def piece(partition, first, values, epoch=0):
    n = len(values)
    offsets = list(range(first, first + n))
    return Fetched(partition, epoch, offsets, offsets[:], list(values), [None] * n, [()] * n)


def test_kafka_is_imported_only_when_it_is_used():
    told = subprocess.run(
        [sys.executable, "-c", "import sys, streams.open; print([m for m in sys.modules if 'kafka' in m])"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert eval(told.stdout) == ["streams.kafka", "streams.kafka.settings"]


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9)), max_size=12),
    st.integers(1, 10),
    st.integers(1, 60),
)
def test_what_waits_comes_out_whole_in_order_and_within_the_limits(sizes, max_records, max_bytes):
    waiting, ends, expected = Waiting(), [0, 0, 0], {0: [], 1: [], 2: []}
    for partition, size in sizes:
        values = [
            bytes((offset * 7) % 30) or None for offset in range(ends[partition], ends[partition] + size)
        ]
        waiting.add(piece(partition, ends[partition], values))
        expected[partition] += zip(range(ends[partition], ends[partition] + size), values, strict=True)
        ends[partition] += size
    got, turns = {0: [], 1: [], 2: []}, []
    while waiting:
        announced = waiting.next().partition
        taken = waiting.take(max_records, max_bytes)
        assert taken.partition == announced
        assert 1 <= len(taken.offsets) <= max_records
        assert sum(len(value or b"") for value in taken.values[:-1]) < max_bytes
        assert taken.timestamps == taken.offsets
        assert len(taken.keys) == len(taken.headers) == len(taken.values) == len(taken.offsets)
        got[taken.partition] += zip(taken.offsets, taken.values, strict=True)
        turns.append((taken.partition, {p for p in range(3) if p in waiting}))
    assert got == expected
    for (before, still), (after, _) in pairwise(turns):
        assert after != before or still == {before}, "nobody has two turns while another waits"


def test_a_piece_that_fits_is_handed_on_as_it_is():
    waiting = Waiting()
    waiting.add(whole := piece(0, 0, [b"x"] * 5))
    assert waiting.take(5, 100) is whole
    waiting.add(piece(0, 5, [b"x"]))
    waiting.clear()
    assert not waiting


def test_a_call_ends_in_time_and_a_late_result_is_thrown_away():
    go, thrown = threading.Event(), []
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        call_within(0.05, lambda: go.wait(30) and "late", thrown.append)
    assert time.monotonic() - began < 20
    go.set()
    while not thrown:
        time.sleep(0.001)
    assert thrown == ["late"]
    assert call_within(30, lambda: 7, thrown.append) == 7
    with pytest.raises(KeyError):
        call_within(30, lambda: {}["x"], thrown.append)
    assert thrown == ["late"]


def test_a_new_client_is_waited_for_in_pieces():
    go, made, closed = threading.Event(), [], []

    class Slow(Torn):
        def close(self):
            closed.append(self)

    def make():
        made.append(1)
        go.wait(30)
        return Slow((), 10)

    connection = Connection(make)
    for _ in range(3):
        assert connection.client({0: 3}, 0.01) is None
    go.set()
    client = connection.client({0: 3}, 30)
    assert client.positions() == {0: 3}
    assert connection.client({0: 9}, 0) is client
    assert len(made) == 1
    connection.drop()
    assert closed == [client]
    go.clear()
    assert connection.client({0: 3}, 0) is None
    connection.close()
    go.set()
    while len(closed) < 2:
        time.sleep(0.001)


def test_a_client_that_cannot_be_made_is_tried_again():
    def make():
        raise StreamUnavailable("no broker")

    connection = Connection(make)
    for _ in range(2):
        with pytest.raises(StreamUnavailable):
            connection.client({0: 0}, 30)


@pytest.mark.parametrize("level", ["DEBUG", "WARNING"])
def test_the_client_s_own_lines_are_not_printed_and_hold_no_password(level):
    code = f"""
import logging, sys
root = logging.getLogger()
root.setLevel({level!r})
if {level!r} == "DEBUG": root.addHandler(logging.StreamHandler())
from streams.address import Address
from streams.kafka.settings import KafkaSettings
from streams.kafka.admin import Admin
kafka = KafkaSettings(sasl_mechanism="PLAIN", security_protocol="SASL_PLAINTEXT", sasl_username="me",
                      sasl_password="hunter2", ssl_key_password="hunter3", timeout_s=0.3)
admin = Admin(Address("kafka", "127.0.0.1:1", "clicks", kafka))
try:
    admin.identity()
except Exception as error:
    print(type(error).__name__)
admin.close()
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "StreamUnavailable\n"
    assert "hunter" not in told.stderr
    assert (told.stderr == "") is (level == "WARNING")


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (errors.TopicAuthorizationFailedError(), StreamRefused, "no permission for the topic"),
        (errors.GroupAuthorizationFailedError(), StreamRefused, "no permission for the group"),
        (errors.ClusterAuthorizationFailedError(), StreamRefused, "IDEMPOTENT_WRITE"),
        (errors.TransactionalIdAuthorizationFailedError(), StreamRefused, "no permission"),
        (errors.SaslAuthenticationFailedError("no"), StreamRefused, "refuses the login"),
        (errors.UnknownTopicOrPartitionError(), TopicMissing, "tripletd topics create"),
        (errors.MessageSizeTooLargeError(), RecordRefused, "takes no such record"),
        (errors.PolicyViolationError("two replicas at least"), StreamRefused, "two replicas at least"),
        (errors.UnsupportedCodecError("no zstd here"), StreamRefused, "no zstd here"),
        (errors.KafkaTimeoutError("Unable to bootstrap"), StreamUnavailable, "see that the broker runs"),
        (TimeoutError("no answer within 5 s"), StreamUnavailable, "no answer within 5 s"),
        (OutOfRange("kept as it is"), OutOfRange, "kept as it is"),
    ],
)
def test_errors_of_the_client_are_put_plainly(error, kind, words):
    found = stream_error(error, ADDRESS)
    assert type(found) is kind
    assert words in str(found)
    assert kind is OutOfRange or str(ADDRESS) in str(found)
    assert found.retriable is (kind is StreamUnavailable)
    assert "\n" not in str(found)


def test_safe_settings():
    safe = safe_settings(False, 3, 3600.0, 1000, 4)
    assert safe["min.insync.replicas"] == "2"
    assert (safe["retention.ms"], safe["retention.bytes"]) == ("3600000", "250")
    assert safe["unclean.leader.election.enable"] == "false"
    assert safe["compression.type"] == "uncompressed"
    alone = safe_settings(True, 1, None, None, 1)
    assert (alone["min.insync.replicas"], alone["retention.ms"], alone["retention.bytes"]) == (
        "1",
        "-1",
        "-1",
    )
    assert int(alone["max.message.bytes"]) > int(safe["max.message.bytes"]), "a dead letter holds a record"


def test_another_leader_epoch_asks_for_a_look_back():
    last = last_of(piece(0, 3, [b"a", b"b"], epoch=4))
    assert last == LastRead(4, 4, last.digest)
    assert follows(None, piece(0, 5, [b"c"], epoch=9))
    assert follows(last, piece(0, 5, [b"c"], epoch=4))
    assert not follows(last, piece(0, 5, [b"c"], epoch=5))
    assert follows(last, piece(0, 5, [b"c"], epoch=-1)), "a client that does not know says nothing"


class Torn:
    """A log of records in which some cannot be read, one partition; stands in for a client."""

    def __init__(self, damaged, end):
        self.damaged, self.end, self.offset, self.broken = damaged, end, 0, False

    def assign(self, positions):
        ((_, self.offset),) = positions.items()

    def poll(self, max_records, timeout_s):
        assert not self.broken, "a client is of no use after an error"
        if self.offset in self.damaged:
            self.broken = True
            raise CorruptBatch("torn")
        return [piece(0, self.offset, [b"x"])] if self.offset < self.end else []

    def positions(self):
        return {0: self.offset}

    def close(self):
        pass


@given(st.integers(0, 50), st.integers(1, 2000), st.integers(0, 300))
def test_damage_is_found_from_its_first_to_its_last_offset(first, length, rest):
    damaged, end = range(first, first + length), first + length + rest
    tries = []

    def make():
        tries.append(1)
        return Torn(damaged, end)

    found = find_damage(Prober(make, 1.0), {0: first}, {0: (0, end)})
    assert (found.partition, found.first, found.last) == (0, first, first + length - 1)
    assert str(found) == f"offsets {first} to {first + length - 1} cannot be read: torn"
    assert len(tries) <= 26


def test_what_can_be_read_again_is_not_damaged():
    assert find_damage(Prober(lambda: Torn((), 10), 1.0), {0: 3}, {0: (0, 10)}) is None
    assert find_damage(Prober(lambda: Torn((), 10), 1.0), {0: 10}, {0: (0, 10)}) is None
