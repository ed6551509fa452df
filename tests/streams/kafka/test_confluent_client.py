"""confluent-kafka behind our protocol, on a real broker: nothing lost, nothing after an error, no hang."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import KafkaError, Message, Producer

from streams.errors import LogMismatch, StreamUnavailable
from streams.kafka.admin import Admin
from streams.kafka.clients.confluent import ConfluentProducer
from streams.kafka.clients.confluent_consumer import ConfluentConsumer
from streams.kafka.clients.protocol import CorruptBatch, Fetched, OutOfRange
from streams.source import Address, OutRecord, parse_address
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.control import create_topic, delete_records, delete_topic

PER_BATCH = 10


@pytest.fixture
def address(kafka: Cluster, topic: str) -> Address:
    """A new topic of one partition."""
    create_topic(kafka, topic)
    return parse_address(kafka.address(topic))


@pytest.fixture
def consumer(address: Address) -> Iterator[ConfluentConsumer]:
    """A consumer at the beginning of the topic."""
    client = ConfluentConsumer(address)
    client.assign({0: 0})
    yield client
    client.close()


def send_batches(address: Address, count: int) -> None:
    """So many batches of `PER_BATCH` records of 200 bytes."""
    producer = ConfluentProducer(address)
    for batch in range(count):
        producer.send([(0, OutRecord(b"%d-%d" % (batch, i) + b"x" * 190)) for i in range(PER_BATCH)])
    producer.close()


def damage(cluster: Cluster, topic: str, *wanted: int) -> None:
    """Change one byte within these batches, counted from 0, in the broker's own file."""
    file = next((cluster.folder / "data1" / f"{topic}-0").glob("*.log"))
    data, position, number = file.read_bytes(), 0, 0
    with file.open("r+b") as log:
        while position < len(data):
            length = 12 + struct.unpack_from(">qi", data, position)[1]
            if number in wanted:
                log.seek(position + length - 50)
                log.write(b"Q")
            position, number = position + length, number + 1


def read_until(consumer: ConfluentConsumer, end: int) -> list[Fetched]:
    """Everything below the offset `end`."""
    got: list[Fetched] = []
    while consumer.positions()[0] < end:
        got += consumer.poll(7, 0.2)
    return got


def drain(consumer: ConfluentConsumer) -> Iterator[Fetched]:
    """What it brings, until it raises."""
    while True:
        yield from consumer.poll(1000, 0.2)


def offsets(got: list[Fetched]) -> list[int]:
    """Of all records, in the order they came."""
    return [offset for one in got for offset in one.offsets]


def test_columns_are_what_was_sent(address: Address, consumer: ConfluentConsumer) -> None:
    producer = ConfluentProducer(address)
    sent = [
        OutRecord(b"value", b"key", timestamp=5, headers=(("a", b"1"), ("a", b""))),
        OutRecord(None, b"key", timestamp=6),
        OutRecord(b"", None, timestamp=7),
    ]
    assert producer.send([(0, record) for record in sent]) == [0, 1, 2]
    producer.close()
    got = read_until(consumer, 3)
    assert [one.partition for one in got] == [0] * len(got)
    assert [one.epoch for one in got] == [0] * len(got)
    assert [value for one in got for value in one.values] == [b"value", None, b""]
    assert [key for one in got for key in one.keys] == [b"key", b"key", None]
    assert [time for one in got for time in one.timestamps] == [5, 6, 7]
    assert [headers for one in got for headers in one.headers] == [(("a", b"1"), ("a", b"")), (), ()]


@pytest.mark.parametrize(("bad", "before"), [((3,), 30), ((0,), 0), ((5, 6), 50), ((9,), 90)])
def test_nothing_after_a_damaged_batch_is_handed_out(
    kafka: Cluster, address: Address, consumer: ConfluentConsumer, bad: tuple[int, ...], before: int
) -> None:
    send_batches(address, 10)
    damage(kafka, address.topic, *bad)
    consumer.assign({0: 0})  # what it had read ahead was whole
    got: list[Fetched] = []
    with pytest.raises(CorruptBatch) as raised:
        got.extend(drain(consumer))
    assert offsets(got) == list(range(before))
    assert f"partition 0, offset {before}:" in str(raised.value)
    assert consumer.positions() == {0: before}
    with pytest.raises(CorruptBatch):  # it stays so: the client is of no use any more
        consumer.poll(1000, 0.2)


def message(offset: int, error: int | None = None, partition: int = 0) -> Message:
    """As confluent-kafka makes them."""
    return Message(
        topic="clicks",
        partition=partition,
        offset=offset,
        value=b"%d" % offset,
        timestamp=(1, 5),
        error=None if error is None else KafkaError(error),
        leader_epoch=0,
    )


def test_rubbish_that_seems_to_go_on_after_an_error_is_not_handed_out() -> None:
    """A writer can choose bytes that look like records where librdkafka reads on after a damaged batch."""
    client = ConfluentConsumer(parse_address("kafka://127.0.0.1:1/clicks"))
    client.assign({0: 0, 1: 0})
    sound = [message(0), message(1), message(0, partition=1)]
    damaged = [message(2, KafkaError._BAD_MSG), message(2), message(3), message(1, partition=1)]
    got = client._accept(sound + damaged)
    assert [(one.partition, one.offsets) for one in got] == [(0, [0, 1]), (1, [0])]
    assert client.positions() == {0: 2, 1: 1}
    with pytest.raises(CorruptBatch):
        client.poll(10, 0.0)
    client.close()


def test_what_lies_behind_a_damaged_batch_is_read_by_a_new_client(kafka: Cluster, address: Address) -> None:
    send_batches(address, 6)
    damage(kafka, address.topic, 2)
    client = ConfluentConsumer(address)
    client.assign({0: 30})
    assert offsets(read_until(client, 60)) == list(range(30, 60))
    client.close()


def test_gaps_of_transactions_are_passed_and_the_end_is_reached(
    kafka: Cluster, address: Address, consumer: ConfluentConsumer
) -> None:
    settings = {"bootstrap.servers": kafka.servers(), "transactional.id": address.topic, "log_level": 0}
    writer = Producer(settings)
    writer.init_transactions(30)
    for commit in (True, False, True, False):
        writer.begin_transaction()
        writer.produce(address.topic, b"committed" if commit else b"aborted", partition=0)
        writer.flush()
        writer.commit_transaction() if commit else writer.abort_transaction()
    got = read_until(consumer, 8)
    assert offsets(got) == [0, 4]
    assert {value for one in got for value in one.values} == {b"committed"}
    assert consumer.positions() == {0: 8}


def test_a_jump_over_records_is_not_followed(address: Address, consumer: ConfluentConsumer) -> None:
    """The position is set back behind the client's back: what it brings next looks like records left out."""
    send_batches(address, 3)
    assert offsets(read_until(consumer, 20))[-1] >= 19
    consumer._positions[0] = 5
    with pytest.raises(StreamUnavailable, match="from offset 5 to"):
        next(drain(consumer))


@pytest.mark.parametrize("position", [3, 50])
def test_no_offset_is_made_up_when_ours_is_gone(kafka: Cluster, address: Address, position: int) -> None:
    send_batches(address, 2)
    delete_records(kafka, address.topic, 10)
    client = ConfluentConsumer(address)
    client.assign({0: position})
    with pytest.raises(OutOfRange):
        next(drain(client))
    client.close()


def test_nothing_of_a_topic_created_again_is_handed_out(kafka: Cluster, address: Address) -> None:
    send_batches(address, 1)
    with closing(Admin(address)) as admin:
        client = ConfluentConsumer(address, admin.identity().topic_id)
    client.assign({0: 0})
    assert offsets(read_until(client, 10)) == list(range(10))
    delete_topic(kafka, address.topic)
    create_topic(kafka, address.topic)
    send_batches(address, 3)
    with pytest.raises(LogMismatch, match="removed or re-created"):
        next(drain(client))
    client.close()


def test_a_header_whose_name_is_no_text_costs_its_headers_not_the_record(
    kafka: Cluster, address: Address, consumer: ConfluentConsumer
) -> None:
    from kafka import KafkaProducer

    class Odd(str):
        """A name that goes out as bytes which are no UTF-8."""

        def encode(self, *_: object) -> bytes:
            return b"\xff\xfe"

    with KafkaProducer(bootstrap_servers=kafka.servers()) as writer:
        writer.send(address.topic, b"first", headers=[(Odd("x"), b"1")]).get(30)
        writer.send(address.topic, b"second", headers=[("x", b"1")]).get(30)
    got = read_until(consumer, 2)
    assert [value for one in got for value in one.values] == [b"first", b"second"]
    assert [headers for one in got for headers in one.headers] == [(), (("x", b"1"),)]
