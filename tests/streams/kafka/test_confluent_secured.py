"""confluent-kafka behind TLS, a password and permissions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streams.errors import StreamRefused, StreamUnavailable
from streams.kafka.clients.confluent import ConfluentProducer
from streams.kafka.clients.confluent_consumer import ConfluentConsumer
from streams.source import KafkaSettings, OutRecord, parse_address
from tests.harness.kafka.control import create_topic
from tests.harness.kafka.fixtures import ONE_AT_A_TIME
from tests.harness.kafka.secured import Secured

pytestmark = ONE_AT_A_TIME


class Place:
    """A topic behind the secured door."""

    def __init__(self, secured: Secured, topic: str) -> None:
        create_topic(secured.cluster, topic)
        self.address = replace(
            parse_address(f"kafka://{secured.door()}/{topic}"), kafka=replace(secured.settings, timeout_s=3.0)
        )

    def write(self) -> list[int]:
        """One record."""
        producer = ConfluentProducer(self.address)
        try:
            return producer.send([(0, OutRecord(b"value"))])
        finally:
            producer.close()

    def read(self, **changed: str) -> bytes | None:
        """The first value; raises what `poll` raises, AssertionError after 30 silent seconds."""
        settings = self.address.kafka or KafkaSettings()
        consumer = ConfluentConsumer(replace(self.address, kafka=replace(settings, **changed)))
        try:
            consumer.assign({0: 0})
            for _ in range(150):
                for fetched in consumer.poll(10, 0.2):
                    return fetched.values[0]
        finally:
            consumer.close()
        raise AssertionError("nothing came and nothing was said")


def test_permissions_are_asked_for_one_by_one(kafka_secured: Secured, topic: str) -> None:
    place = Place(kafka_secured, topic)
    with pytest.raises(StreamRefused, match="no permission to write"):
        place.write()
    kafka_secured.allow("DESCRIBE", "WRITE", topic=topic)
    assert place.write() == [0]
    with pytest.raises(StreamRefused, match=r"no permission (for the group 'tripletd'|to read)"):
        place.read()  # both are missing: librdkafka tells the one that it hears of first
    kafka_secured.allow_group("READ", group="tripletd")
    with pytest.raises(StreamRefused, match="no permission to read"):
        place.read()
    kafka_secured.allow("READ", topic=topic)
    assert place.read() == b"value"


def test_who_is_not_let_in_is_told_so(kafka_secured: Secured, topic: str) -> None:
    place = Place(kafka_secured, topic)
    with pytest.raises(StreamUnavailable, match="no broker can be reached") as raised:
        place.read(sasl_password="another-secret")
    assert "another-secret" not in str(raised.value)
    with pytest.raises(StreamUnavailable, match="no broker can be reached"):
        place.read(ssl_cafile=str(kafka_secured.stranger.cafile))
    with pytest.raises(StreamRefused, match=r"correct \[stream\.kafka\]"):
        place.read(ssl_cafile="/dev/null")
