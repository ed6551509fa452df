"""Who listens where a broker is expected, and what a broker that lets us in does not permit."""

from __future__ import annotations

import pytest

from streams.errors import StreamRefused, StreamUnavailable, TopicMissing
from streams.kafka.preflight import Need, preflight
from streams.source import Address, KafkaSettings
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.control import create_topic
from tests.harness.kafka.fixtures import ONE_AT_A_TIME, mend
from tests.harness.kafka.ports import free_ports
from tests.harness.kafka.refusals import assert_fault, assert_words, fault
from tests.harness.kafka.secured import Secured
from tests.harness.kafka.strangers import listener, web_server

pytestmark = ONE_AT_A_TIME


@pytest.mark.parametrize(
    ("granted", "need", "missing"),
    [
        ((), "read", "READ"),
        ((), "write", "WRITE"),
        (("DESCRIBE",), "read", "READ"),
        (("READ",), "write", "WRITE"),
        (("READ", "WRITE"), "create", "CREATE"),
    ],
)
def test_a_missing_permission_is_named(
    kafka_secured: Secured,
    topic: str,
    granted: tuple[str, ...],
    need: Need,
    missing: str,
) -> None:
    if need != "create":
        create_topic(kafka_secured.cluster, topic)
    if granted:
        kafka_secured.allow(*granted, topic=topic)
    kind, told = fault(kafka_secured.door(), kafka_secured.settings, topic, need)
    assert kind is StreamRefused
    assert_words(told, f"the user 'learner' may not {missing} the topic '{topic}': permit it")
    kafka_secured.allow(missing, topic=topic)
    preflight(Address("kafka", kafka_secured.door(), topic, kafka_secured.settings), need)


def test_a_missing_topic_is_not_a_missing_permission(
    kafka: Cluster, kafka_secured: Secured, topic: str
) -> None:
    kafka_secured.allow("DESCRIBE", topic=topic)
    secured = (kafka_secured.door(), kafka_secured.settings)
    for path, settings in ((kafka.servers(), KafkaSettings()), secured):
        kind, told = fault(path, settings, topic)
        assert kind is TopicMissing
        assert_words(told, "tripletd topics create")


def test_who_listens_is_told(kafka: Cluster, topic: str) -> None:
    secure = KafkaSettings(security_protocol="SSL")
    closed = f"127.0.0.1:{free_ports(1)[0]}"
    for settings in (KafkaSettings(), secure):
        assert_fault(closed, settings, StreamUnavailable, "nobody listens")
        with web_server() as place:
            assert_fault(place, settings, StreamRefused, "is a web server, not a Kafka broker")
        with listener(b"220 mail.test ESMTP\r\n") as place:
            assert_fault(place, settings, StreamRefused, "does not speak Kafka's language")
        with listener(None) as place:
            assert_fault(place, settings, StreamUnavailable, "accepts connections but does not answer")
    unknown = "no-such-host.invalid:9092"
    assert_fault(unknown, KafkaSettings(), StreamUnavailable, "no address is known for the host 'no-such")
    create_topic(kafka, topic)
    preflight(Address("kafka", f"{closed},{unknown},{kafka.servers()}", topic), "read")
    both = f"{closed},{unknown}"
    assert_fault(both, KafkaSettings(), StreamUnavailable, "nobody listens.*no address is known")


def test_a_frozen_broker_is_unavailable_not_refusing(kafka_secured: Secured) -> None:
    cluster = kafka_secured.cluster
    cluster.nodes[1].freeze()
    try:
        assert_fault(cluster.servers(), KafkaSettings(), StreamUnavailable, "does not answer")
    finally:
        mend(cluster)


def test_brokers_that_send_their_clients_astray_are_named(kafka_secured: Secured, topic: str) -> None:
    kind, told = fault(kafka_secured.door("ASTRAY"), KafkaSettings(), topic, "create")
    assert kind is StreamUnavailable
    assert_words(told, r"sends its clients on \(advertised.listeners\), but there: no address is known")
