"""A topic of a real broker, read and written through either client."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from streams.kafka.source import KafkaSink, KafkaSource
from streams.open import ensure_topic
from streams.source import Address, KafkaSettings, OutRecord
from tests.harness.kafka.cluster import Cluster

PATIENCE_S = 20.0
ENOUGH_S = 15.0
"""Far beyond any limit of ours, far below any of the clients' own: what ended before was not stuck."""


@dataclass
class Place:
    """A topic, and whatever was opened on it."""

    cluster: Cluster
    address: Address
    opened: list[KafkaSource | KafkaSink] = field(default_factory=list)
    writer: KafkaSink | None = None

    def source(self) -> KafkaSource:
        self.opened.append(source := KafkaSource(self.address))
        return source

    def reading(self, position: int = 0) -> KafkaSource:
        """A source that stands at a position of partition 0."""
        source = self.source()
        source.assign({0: position})
        return source

    def sink(self) -> KafkaSink:
        self.opened.append(sink := KafkaSink(self.address))
        return sink

    def patient_sink(self) -> KafkaSink:
        """A sink with more time than the address gives: a client's first record may take long."""
        settings = self.address.kafka or KafkaSettings()
        patient = replace(self.address, kafka=replace(settings, timeout_s=PATIENCE_S))
        self.opened.append(sink := KafkaSink(patient))
        return sink

    def send(self, *values: bytes) -> None:
        """Records to partition 0 in one batch."""
        if self.writer is None:
            self.writer = self.patient_sink()
        self.writer.send([OutRecord(value) for value in values])


def drain(source: KafkaSource, poll: int = 100) -> list[tuple[int, bytes | None]]:
    """All there is of partition 0 from where the source stands, as (offset, value)."""
    end = source.bounds()[0][1]
    got: list[tuple[int, bytes | None]] = []
    while source.reached()[0] < end:
        batch = source.poll(poll, 0.2)  # a gap at the end brings nothing, however long one waits
        if batch is not None:
            got += zip(batch.offsets, batch.values, strict=True)
    return got


def poll_in_vain(source: KafkaSource) -> None:
    """Poll until something is raised."""
    for _ in range(100):
        assert source.poll(5, 0.2) is None


def within(seconds, call):
    """Its outcome; fails when it takes longer."""
    box = []

    def run():
        try:
            box.append(call())
        except BaseException as error:
            box.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert box, "still not back"
    return box[0]


def leave(before):
    """Wait until the threads that were started since have ended."""
    for thread in set(threading.enumerate()) - before:
        thread.join(ENOUGH_S)
        assert not thread.is_alive(), thread.name


def sockets() -> set[str]:
    """The sockets that this process has open, each by a name that no other gets while it is."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # closed since
            found.add(os.readlink(os.path.join("/proc/self/fd", name)))
    return {target for target in found if target.startswith("socket:")}


@pytest.fixture
def place_in() -> Iterator[Callable[..., Place]]:
    """Makes topics in a cluster, and closes all that was opened there."""
    places: list[Place] = []

    def make(
        cluster: Cluster,
        client: str = "kafka-python",
        *,
        partitions: int = 1,
        create: bool = True,
        **settings: Any,
    ) -> Place:
        address = Address(
            "kafka", cluster.servers(), f"clicks-{uuid.uuid4().hex}", KafkaSettings(client=client, **settings)
        )
        if create:
            ensure_topic(address, partitions)
        places.append(place := Place(cluster, address))
        return place

    yield make
    for place in places:
        for one in place.opened:
            one.close()


@pytest.fixture(params=["kafka-python", "confluent"])
def place(request: pytest.FixtureRequest, kafka: Cluster, place_in: Callable[..., Place]) -> Place:
    """A new topic of one partition on the shared broker."""
    return place_in(kafka, request.param)
