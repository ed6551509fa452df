"""A broker that is frozen or gone: every call ends in time and nothing is lost."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import closing, suppress

import pytest

from streams.errors import StreamUnavailable
from streams.kafka import admin as watch
from streams.kafka.admin import Admin
from streams.kafka.source import KafkaSink, KafkaSource
from streams.kafka.topics import find_topic
from streams.open import ensure_topic
from streams.source import Address, KafkaSettings, OutRecord
from tests.harness.kafka.fixtures import OWN_NODE
from tests.harness.topics import delete_topic
from tests.harness.waiting import until
from tests.streams.kafka.conftest import ENOUGH_S, PATIENCE_S, drain, leave, sockets, within

pytestmark = OWN_NODE

LIMIT_S = 1.0


@pytest.fixture(params=["kafka-python", "confluent"])
def place(request, kafka_node, place_in):
    return place_in(kafka_node, request.param, timeout_s=LIMIT_S)


@pytest.fixture
def frozen(kafka_node):
    """A function that freezes the broker until the test is over: what is open is closed after that."""
    yield kafka_node.nodes[1].freeze
    kafka_node.nodes[1].thaw()


def test_every_call_on_a_frozen_broker_ends_in_time_as_unavailable(place, frozen):
    place.send(b"0")
    source, sink = place.reading(), place.sink()
    frozen()
    for call in (
        source.bounds,
        lambda: source.offsets_at(0),
        lambda: source.commit({0: 1}),
        source.committed,
        lambda: source.assign({0: 0}),
        lambda: sink.send([OutRecord(b"x")]),
    ):
        assert isinstance(within(ENOUGH_S, call), StreamUnavailable), call
    within(ENOUGH_S, source.close)
    within(ENOUGH_S, sink.close)


@pytest.mark.parametrize(
    "call", [KafkaSource, KafkaSink, find_topic, delete_topic, lambda address: ensure_topic(address, 1)]
)
def test_opening_on_a_frozen_broker_ends_in_time_as_unavailable(kafka_node, place_in, frozen, call):
    place = place_in(kafka_node, timeout_s=LIMIT_S)
    frozen()
    before = set(threading.enumerate())
    assert isinstance(within(ENOUGH_S, lambda: call(place.address)), StreamUnavailable)
    leave(before)


def test_a_poll_keeps_to_its_timeout_when_the_broker_freezes_and_then_says_so(place, frozen, monkeypatch):
    monkeypatch.setattr(watch, "PERIOD_S", 0.1)
    place.send(b"0", b"1")
    source = place.reading()
    assert len(source.poll(1, PATIENCE_S)) == 1
    frozen()
    assert len(source.poll(1, PATIENCE_S)) == 1, "what is there already is handed out"
    said = None
    for _ in range(100):
        began = time.monotonic()
        try:
            assert source.poll(1, 0.2) is None
        except StreamUnavailable as error:
            said = error
        assert time.monotonic() - began < ENOUGH_S
        if said is not None:
            break
    assert said is not None
    assert source.reached() == {0: 2}


def test_reading_goes_on_after_a_freeze(place, frozen, kafka_node):
    place.send(*(b"%d" % n for n in range(10)))
    source = place.reading()
    assert source.poll(4, PATIENCE_S).offsets == [0, 1, 2, 3]
    source._connection.drop()
    source._waiting.clear()
    frozen()
    assert isinstance(within(ENOUGH_S, lambda: source.poll(4, 0.2)), StreamUnavailable | None)
    kafka_node.nodes[1].thaw()
    got = []
    while source.reached()[0] < 10:
        try:
            batch = source.poll(4, 0.5)
        except StreamUnavailable:
            continue
        got += batch.offsets if batch is not None else []
    assert got == [4, 5, 6, 7, 8, 9]


def _sent(sink, value):
    with suppress(StreamUnavailable):
        sink.send([OutRecord(value)])
        return True
    return False


def test_a_send_that_gets_no_answer_is_in_doubt_and_writes_nothing_after_it_has_ended(
    place, frozen, kafka_node
):
    before = set(threading.enumerate())
    sink = place.sink()
    until(lambda: _sent(sink, b"before"))  # a broker that has just started may take longer for its first
    checked = sink._admin.check
    sink._admin.check = lambda identity: (checked(identity), frozen())[0]  # freezes between look and write
    with pytest.raises(StreamUnavailable, match=r"in doubt|perhaps some"):
        sink.send([OutRecord(b"maybe %d" % n) for n in range(3)])
    sink.close()
    leave(before)
    kafka_node.nodes[1].thaw()
    kafka_node.wait_ready()
    place.writer = None
    place.send(b"after")
    values = [value for _, value in drain(place.reading())]
    assert values[0] == b"before"
    assert values.count(b"after") == 1
    assert [value for value in values if value.startswith(b"maybe")] in (
        [],
        [b"maybe 0", b"maybe 1", b"maybe 2"],
    )
    assert values[-1] == b"after", "nothing of the send that was given up comes late"


def test_a_client_that_never_comes_back_is_given_up(kafka_node, place_in):
    place = place_in(kafka_node, timeout_s=LIMIT_S)
    stuck = threading.Event()
    admin = Admin(place.address)
    assert isinstance(within(ENOUGH_S, lambda: admin.call(lambda client: stuck.wait())), StreamUnavailable)
    stuck.set()
    assert admin.identity().topic == place.address.topic
    admin.close()


def test_nobody_listens():
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    address = Address("kafka", f"127.0.0.1:{port}", "clicks", KafkaSettings(timeout_s=LIMIT_S))
    before = set(threading.enumerate())
    for call in (KafkaSource, KafkaSink, find_topic, delete_topic):
        assert isinstance(within(ENOUGH_S, lambda: call(address)), StreamUnavailable)
    leave(before)


def test_no_socket_is_left_after_close(place):
    place.send(b"0")
    place.writer.close()
    before = sockets()
    source, sink = place.reading(), place.patient_sink()
    sink.send([OutRecord(b"x")])
    source.poll(1, PATIENCE_S)
    opened = sockets() - before  # those of tests before this one may close meanwhile
    assert opened
    source.close()
    sink.close()
    until(lambda: not sockets() & opened)  # librdkafka closes them in threads of its own
