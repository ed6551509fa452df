"""What only a broker does to a reader: gaps, errors out of the client, another topic of the same name."""

from __future__ import annotations

import itertools
import threading

import pytest
from kafka import KafkaProducer
from kafka.errors import KafkaConnectionError
from kafka.record.default_records import DefaultRecordBatch

from streams.errors import LogMismatch, OffsetAhead, OffsetExpired, StreamError, StreamUnavailable
from streams.kafka import admin as watch
from streams.kafka.clients import python as python_client
from streams.kafka.clients.python import PythonConsumer
from streams.open import ensure_topic
from streams.source import OutRecord
from tests.harness.kafka.control import delete_records
from tests.harness.kafka.transactions import until_ended
from tests.harness.topics import delete_topic
from tests.streams.kafka.conftest import PATIENCE_S, drain, poll_in_vain


def transaction(place, values, *, commit):
    """Records written in one transaction, through the client that can."""
    name = f"writer-{place.address.topic}"
    producer = KafkaProducer(bootstrap_servers=place.cluster.servers(), transactional_id=name)
    producer.init_transactions()
    producer.begin_transaction()
    for value in values:
        producer.send(place.address.topic, value, partition=0)
    producer.flush()
    producer.commit_transaction() if commit else producer.abort_transaction()
    producer.close()
    until_ended(place.address)


@pytest.mark.parametrize("poll", [1, 2, 500])
def test_transactions_leave_gaps_that_are_passed_and_aborted_records_that_are_not_read(place, poll):
    place.send(b"0", b"1")
    transaction(place, [b"no", b"never"], commit=False)
    transaction(place, [b"5"], commit=True)
    source = place.reading()
    assert drain(source, poll) == [(0, b"0"), (1, b"1"), (5, b"5")]
    assert source.reached() == {0: 7}, "the marker at 6 is passed"
    assert source.bounds() == {0: (0, 7)}


def test_an_open_transaction_is_not_read_past(place):
    producer = KafkaProducer(
        bootstrap_servers=place.cluster.servers(), transactional_id="open-" + place.address.topic
    )
    producer.init_transactions()
    place.send(b"0")
    producer.begin_transaction()
    producer.send(place.address.topic, b"maybe", partition=0).get(PATIENCE_S)
    place.send(b"2")
    source = place.reading()
    assert source.bounds() == {0: (0, 1)}
    assert drain(source) == [(0, b"0")]
    assert source.poll(1, 0.5) is None
    producer.commit_transaction()
    producer.close()
    until_ended(place.address)
    assert drain(source) == [(1, b"maybe"), (2, b"2")]


class Faults:
    """Raises in place of a client's record, at given calls."""

    def __init__(self, monkeypatch, owner, name, error, calls):
        original, count = getattr(owner, name), itertools.count()

        def faulty(*arguments, **named):
            if next(count) in calls:
                raise error
            return original(*arguments, **named)

        monkeypatch.setattr(owner, name, faulty)


@pytest.mark.parametrize("poll", [1, 7, 500])
def test_an_error_while_records_are_taken_apart_loses_and_repeats_nothing(kafka, place_in, monkeypatch, poll):
    # kafka-python spins for ever in the poll after such an error: only another client goes on
    place = place_in(kafka)
    for batch in range(4):
        place.send(*(b"%d" % (25 * batch + one) for one in range(25)))
    Faults(monkeypatch, DefaultRecordBatch, "_read_msg", ValueError("out of nowhere"), {0, 30, 90, 160})
    source = place.reading()
    assert drain(source, poll) == [(n, b"%d" % n) for n in range(100)]


def test_an_error_of_the_network_is_raised_and_the_next_poll_goes_on(kafka, place_in, monkeypatch):
    place = place_in(kafka)
    place.send(*(b"%d" % n for n in range(10)))
    source = place.reading()
    assert source.poll(3, PATIENCE_S).offsets == [0, 1, 2]
    first = source._connection._client
    source._waiting.clear()  # as if they had not come yet
    Faults(monkeypatch, type(first._consumer), "poll", KafkaConnectionError("gone"), {0})
    with pytest.raises(StreamUnavailable, match="gone"):
        source.poll(3, PATIENCE_S)
    assert drain(source, 3) == [(n, b"%d" % n) for n in range(3, 10)]
    assert source._connection._client is not first


def test_what_waits_when_the_client_fails_is_read_again(kafka, place_in, monkeypatch):
    place = place_in(kafka, partitions=2)
    place.sink().send([OutRecord(b"%d" % n, partition=n % 2) for n in range(20)])
    source = place.source()
    source.assign({0: 0, 1: 0})
    first = source.poll(3, PATIENCE_S)
    assert first.offsets == [0, 1, 2]
    assert source.reached() == {first.partition: 3, 1 - first.partition: 0}
    source._connection.drop()  # as after any failure
    source._waiting.clear()
    seen = {first.partition: first.offsets, 1 - first.partition: []}
    while sum(map(len, seen.values())) < 20:
        batch = source.poll(3, PATIENCE_S)
        seen[batch.partition] += batch.offsets
    assert seen == {0: list(range(10)), 1: list(range(10))}


@pytest.mark.parametrize("fetching", [False, True])
def test_no_record_of_a_recreated_topic_is_handed_out(kafka, place_in, monkeypatch, fetching):
    monkeypatch.setattr(watch, "PERIOD_S", 1000.0)  # the client notices by itself
    monkeypatch.setitem(python_client._READING, "metadata_max_age_ms", 600_000)
    place = place_in(kafka)
    place.send(b"old 0", b"old 1")
    source = place.reading()
    assert len(source.poll(5, PATIENCE_S)) == 2
    assert source.poll(5, 0.2) is None  # leaves a request under way, which the broker answers later
    if not fetching:
        source._connection._client._consumer.pause(*source._connection._client._places.values())
        assert source.poll(5, 1.0) is None
    delete_topic(place.address)
    ensure_topic(place.address, 1)
    place.writer = None
    place.send(*(b"new %d" % n for n in range(10)))  # past the position: no offset tells them apart
    if not fetching:
        source._connection._client._consumer.resume(*source._connection._client._places.values())
    with pytest.raises(LogMismatch, match="re-created"):
        poll_in_vain(source)


def test_the_watch_notices_what_the_client_does_not(kafka, place_in, monkeypatch):
    monkeypatch.setattr(PythonConsumer, "_check_topic", lambda self: None)
    monkeypatch.setattr(watch, "PERIOD_S", 0.05)
    place = place_in(kafka)
    source = place.reading()  # nothing was read yet: no offset and no leader epoch tells the topics apart
    delete_topic(place.address)
    ensure_topic(place.address, 1)
    with pytest.raises(LogMismatch, match=r"re-created|removed"):
        poll_in_vain(source)


def test_partitions_that_nobody_reads_are_a_mismatch(kafka, place_in):
    place = place_in(kafka)
    place.send(b"0")
    source = place.reading()
    assert drain(source) == [(0, b"0")]
    with kafka.admin() as admin:
        admin.create_partitions({place.address.topic: 2})
    with pytest.raises(LogMismatch, match="has 2 partitions now, 1 when it was opened"):
        poll_in_vain(source)
    with pytest.raises(LogMismatch, match="has 2 partitions now"):
        source.bounds()
    place.send(b"1")  # who writes goes on: its records are read


def test_a_removed_topic_is_a_mismatch_too(kafka, place_in):
    place = place_in(kafka)
    source = place.reading()
    delete_topic(place.address)
    with pytest.raises(LogMismatch, match="removed"):
        poll_in_vain(source)
    with pytest.raises(LogMismatch, match="removed"):
        source.bounds()


def test_positions_out_of_range_while_reading_are_told_apart(place):
    place.send(*(b"%d" % n for n in range(10)))
    source = place.reading(4)
    delete_records(place.cluster, place.address.topic, 6)
    with pytest.raises(OffsetExpired) as expired:
        source.poll(1, PATIENCE_S)
    assert (expired.value.wanted, expired.value.earliest) == (4, 6)
    source.assign({0: 10})
    source._positions[0] = 12  # as after an election that lost the end of the log
    with pytest.raises(OffsetAhead) as ahead:
        source.poll(1, PATIENCE_S)
    assert (ahead.value.wanted, ahead.value.end) == (12, 10)


def test_a_partition_whose_records_expire_under_the_reader_does_not_stop_with_the_others(place_in, kafka):
    place = place_in(kafka)
    place.send(b"0")
    source = place.reading()
    drain(source)
    delete_records(kafka, place.address.topic, 1)
    place.send(b"1")
    assert drain(source) == [(1, b"1")]


def test_no_thread_is_left_after_close(place):
    before = set(threading.enumerate())
    source, sink = place.source(), place.sink()
    sink.send([OutRecord(b"x")])
    source.assign({0: 0})
    assert source.poll(1, PATIENCE_S) is not None
    source.close()
    sink.close()
    assert {thread.name for thread in set(threading.enumerate()) - before} == set()


def test_closing_in_the_middle_of_everything(place):
    place.send(*(b"%d" % n for n in range(1000)))
    source = place.reading()
    source.poll(1, PATIENCE_S)
    source.close()
    with pytest.raises(StreamError, match=r"closed|assign"):
        source.poll(1, 0)
    source.close()
