"""The whole way of a click from a real Kafka to W, as the real `tripletd learn` process does it.

`kafka_to_w_vs_kernel_*`, by client: as `log_to_w_vs_kernel`, from a one-node broker that runs beside on the
same cores, so that its share of them is paid for too. `kafka_poll_vs_*`: what our source adds to the bare
client, reading the same topic with nothing else to do.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from kafka import KafkaConsumer, TopicPartition
from kafka.net import manager
from kafka.net.transport import KafkaTCPTransport

from streams.open import open_source
from streams.partitions import TopicLimits
from streams.source import Address, Client, KafkaSettings, parse_address
from tests.benchmarks.harness import Figure, ratio_figure
from tests.benchmarks.triplets import random_triplets
from tests.benchmarks.whole_path import DISTINCT, EVENTS, FOLDER, bare_kernel, whole_path, write_events
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.missing import KafkaMissing
from tests.harness.topics import create_topics

POLL = 4096
CLIENTS: tuple[Client, ...] = ("kafka-python", "confluent")
REPEATS = 5
COLUMNS = ("offset", "timestamp", "value", "key", "headers")


def figures() -> list[Figure]:
    """Path and poll of both clients, on one topic of `EVENTS` events; none where no broker can run."""
    batch = random_triplets(DISTINCT)
    try:
        with Cluster() as cluster:
            address = parse_address(cluster.address("clicks"))
            create_topics(address, 1, TopicLimits())
            write_events(with_client(address, "confluent"), batch)
            kernel = bare_kernel(batch)
            paths = [path_figure(address, client, kernel) for client in CLIENTS]
            return paths + [poll_figure(address, client) for client in CLIENTS]
    except KafkaMissing as problem:
        sys.stderr.write(f"the figures of Kafka are left as they were: {problem}\n")
        return []
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)


def path_figure(address: Address, client: Client, kernel: Callable[[], float]) -> Figure:
    """A `learn` process on the topic over the bare kernel, in turn."""
    name = f"kafka_to_w_vs_kernel_{client.replace('-', '_')}"
    against = "the bare kernel on the same events; d = 10,000, 70 non-zeros, 1.7 KB events, broker beside"
    stream = f'address = "{address}"\n[stream.kafka]\nclient = "{client}"'
    return ratio_figure(name, against, partial(whole_path, stream), kernel, REPEATS)


def poll_figure(address: Address, client: Client) -> Figure:
    """Our source over the bare client."""
    name = f"kafka_poll_vs_{client.replace('-', '_')}"
    against = "the bare client polling the same topic: offsets, times, values, keys and headers as lists"
    bare = bare_confluent if client == "confluent" else bare_kafka_python
    ours = partial(our_poll, with_client(address, client))
    return ratio_figure(name, against, ours, partial(bare, address), REPEATS)


def with_client(address: Address, client: Client) -> Address:
    """The same topic through that client."""
    return replace(address, kafka=KafkaSettings(client=client))


def our_poll(address: Address) -> float:
    """Records per second of `Source.poll`, from the first to the last of the topic."""
    source = open_source(address)
    try:
        source.assign({0: 0})
        return _rate(lambda: len(source.poll(POLL, 0.2) or ()))
    finally:
        source.close()


def bare_kafka_python(address: Address) -> float:
    """Records per second of kafka-python's own poll, with the same settings.

    With connections of its own, too: our client replaces theirs in a process.
    """
    manager.KafkaTCPTransport = KafkaTCPTransport
    consumer = KafkaConsumer(
        bootstrap_servers=address.path.split(","),
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed",
        max_partition_fetch_bytes=4 << 20,
    )
    where = TopicPartition(address.topic, 0)
    consumer.assign([where])
    consumer.seek(where, 0)

    def poll() -> int:
        records = consumer.poll(timeout_ms=200, max_records=POLL).get(where, [])
        read = ([getattr(record, name) for record in records] for name in COLUMNS)
        return max(map(len, read))

    try:
        return _rate(poll)
    finally:
        consumer.close()


def bare_confluent(address: Address) -> float:
    """Records per second of confluent-kafka's own `consume`, with the same settings."""
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Where

    from streams.kafka.clients.confluent_consumer import READING

    consumer = Consumer({"bootstrap.servers": address.path, "group.id": "bench", **READING})
    consumer.assign([Where(address.topic, 0, 0)])

    def poll() -> int:
        found = [message for message in consumer.consume(POLL, 0.2) if message.error() is None]
        read = ([getattr(message, name)() for message in found] for name in COLUMNS)
        return max(map(len, read))

    try:
        return _rate(poll)
    finally:
        consumer.close()


def _rate(poll: Callable[[], int]) -> float:
    """Records per second after the first poll that brought some, until all `EVENTS` are there."""
    first = count = 0
    while not first:
        first = count = poll()
    begin = time.perf_counter()
    while count < EVENTS:
        count += poll()
    return (count - first) / (time.perf_counter() - begin)
