"""The parts of the Kafka backend that need no broker."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import errors

from streams.errors import RecordRefused, StreamRefused, StreamUnavailable, TopicMissing
from streams.kafka.clients.protocol import OutOfRange, Overfull
from streams.kafka.connect import stream_error
from streams.kafka.damage import LastRead, Prober, find_damage, follows, last_of
from streams.kafka.source import FetchedQueue
from streams.kafka.topics import safe_settings
from streams.partitions import TopicLimits
from streams.source import Address
from tests.streams.kafka.parts import Torn, piece

ADDRESS = Address("kafka", "host:9092", "clicks")


def test_kafka_is_imported_only_when_it_is_used():
    told = subprocess.run(
        [sys.executable, "-c", "import sys, streams.open; print([m for m in sys.modules if 'kafka' in m])"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert eval(told.stdout) == []


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9)), max_size=12),
    st.integers(1, 10),
    st.integers(1, 60),
)
def test_what_waits_comes_out_whole_in_order_and_within_the_limits(sizes, max_records, max_bytes):
    waiting, ends, expected = FetchedQueue(), [0, 0, 0], {0: [], 1: [], 2: []}
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
    waiting = FetchedQueue()
    waiting.add(whole := piece(0, 0, [b"x"] * 5))
    assert waiting.take(5, 100) is whole
    waiting.add(piece(0, 5, [b"x"]))
    waiting.clear()
    assert not waiting


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
    safe = safe_settings(False, 3, TopicLimits(3600.0, 1000), 4)
    assert safe["min.insync.replicas"] == "2"
    assert (safe["retention.ms"], safe["retention.bytes"]) == ("3600000", "250")
    assert safe["unclean.leader.election.enable"] == "false"
    assert safe["compression.type"] == "uncompressed"
    alone = safe_settings(True, 1, TopicLimits(), 1)
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


@given(st.integers(0, 50), st.integers(1, 2000), st.integers(0, 300))
def test_damage_is_found_from_its_first_to_its_last_offset(first, length, rest):
    damaged, end = range(first, first + length), first + length + rest
    tries = []

    def make():
        tries.append(1)
        return Torn(damaged, end)

    found = find_damage(Prober(make, 1.0, "clicks"), {0: first}, {0: (0, end)})
    assert (found.partition, found.first, found.last) == (0, first, first + length - 1)
    assert str(found) == f"offsets {first} to {first + length - 1} cannot be read: torn"
    assert len(tries) <= 26


def test_what_can_be_read_again_is_not_damaged():
    assert find_damage(Prober(lambda: Torn((), 10), 1.0, "clicks"), {0: 3}, {0: (0, 10)}) is None
    assert find_damage(Prober(lambda: Torn((), 10), 1.0, "clicks"), {0: 10}, {0: (0, 10)}) is None


def test_an_answer_too_large_at_once_is_asked_for_again():
    clients = [Torn([3], 10, Overfull), Torn((), 10)]
    assert Prober(lambda: clients.pop(0), 1.0, "clicks").read(0, 3).offsets == [3]
    with pytest.raises(StreamUnavailable, match="offset 3"):
        Prober(lambda: Torn([3], 10, Overfull), 0.1, "clicks").read(0, 3)
