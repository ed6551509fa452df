"""A topic of a real broker, read and written through either client."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from streams.address import Address
from streams.kafka.settings import KafkaSettings
from streams.kafka.sink import KafkaSink
from streams.kafka.source import KafkaSource
from streams.open import ensure_topic
from streams.source import OutRecord
from tests.kafka.cluster import Cluster

PATIENCE_S = 20.0


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

    def send(self, *values: bytes) -> None:
        """Records to partition 0 in one batch."""
        if self.writer is None:
            self.writer = self.sink()
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
