"""Batches as other programs compress them: by librdkafka, by Java (the broker itself), by kafka-python."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Protocol

from confluent_kafka import Producer
from kafka import KafkaProducer

from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.control import create_topic, set_topic

CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""As batches number them."""

PATIENCE_S = 60.0
LARGEST_BATCH = 16 << 20


class Write(Protocol):
    """Writes one batch to partition 0; the record's keys are given, or there are none."""

    def __call__(
        self, kafka: Cluster, topic: str, codec: str, values: Sequence[bytes], keys: Sequence[bytes] = ()
    ) -> None: ...


def topic_of_anybody(kafka: Cluster, topic: str) -> None:
    """A topic as brokers make it: what producers have compressed is kept as it is."""
    configs = {"compression.type": "producer", "max.message.bytes": str(LARGEST_BATCH)}
    create_topic(kafka, topic, configs=configs)


def by_librdkafka(
    kafka: Cluster, topic: str, codec: str, values: Sequence[bytes], keys: Sequence[bytes] = ()
) -> None:
    """One batch of librdkafka; its snappy has no frame."""
    room = 2 * sum(map(len, values)) + (1 << 20)
    settings = {
        "bootstrap.servers": kafka.servers(),
        "compression.type": codec,
        "linger.ms": 60_000,
        "batch.size": room,
        "message.max.bytes": room,
        "queue.buffering.max.kbytes": room // 1024 + 1,
        "batch.num.messages": 1_000_000,
    }
    failed: list[object] = []
    producer = Producer(settings)
    producer.list_topics(
        topic, PATIENCE_S
    )  # what waits for the partition to be known goes in batches of its own
    for value, key in zip_longest(values, keys):
        producer.produce(topic, value, key, partition=0, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert failed == [None] * len(values), failed


def by_java(
    kafka: Cluster, topic: str, codec: str, values: Sequence[bytes], keys: Sequence[bytes] = ()
) -> None:
    """One batch that the broker compresses, as any Java client does; its snappy has Xerial's frame."""
    set_topic(kafka, topic, compression_type=codec)
    by_librdkafka(kafka, topic, "none", values, keys)
    set_topic(kafka, topic, compression_type="producer")


def by_kafka_python(
    kafka: Cluster, topic: str, codec: str, values: Sequence[bytes], keys: Sequence[bytes] = ()
) -> None:
    """One batch of kafka-python; its snappy has Xerial's frame."""
    room = 2 * sum(map(len, values)) + (1 << 20)
    producer = KafkaProducer(
        bootstrap_servers=kafka.servers(),
        compression_type=codec,
        batch_size=room,
        max_request_size=room,
        linger_ms=60_000,
    )
    try:
        sent = [producer.send(topic, value, key, partition=0) for value, key in zip_longest(values, keys)]
        producer.flush()
        for future in sent:
            future.get(PATIENCE_S)
    finally:
        producer.close()


WRITERS: dict[str, Write] = {
    "librdkafka": by_librdkafka,
    "java": by_java,
    "kafka-python": by_kafka_python,
}
