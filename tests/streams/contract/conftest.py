"""Every kind of log, under one set of tests; Kafka with either client, on a real broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from streams.errors import TopicMissing
from streams.open import ensure_topic, open_sink, open_source, retain
from streams.source import Address, KafkaSettings, Sink, Source, TopicIdentity, parse_address
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.control import delete_records, set_topic
from tests.harness.topics import delete_topic

EMBEDDED = ("memory", "log")
CLIENTS = {"kafka": "kafka-python", "confluent": "confluent"}


@dataclass
class Backend:
    """One topic of one kind of log, and whatever was opened on it.

    `patience`: how long a poll may take that finds something, `silence`: how long to wait to believe that
    there is nothing; in seconds, both 0 where a poll looks by itself.
    """

    address: Address
    cluster: Cluster | None = None
    opened: list[Source | Sink] = field(default_factory=list)

    @property
    def topic(self) -> str:
        return self.address.topic

    @property
    def patience(self) -> float:
        return 20.0 if self.cluster else 0.0

    @property
    def silence(self) -> float:
        return 0.3 if self.cluster else 0.0

    def create(self, partitions: int = 1, *, times_of_writers: bool = False) -> TopicIdentity:
        """The topic; a broker says when a record came, unless records keep the times of their writers."""
        made = ensure_topic(self.address, partitions)
        if self.cluster and times_of_writers:
            set_topic(self.cluster, self.topic, message_timestamp_type="CreateTime")
        return made

    def delete(self) -> None:
        delete_topic(self.address)

    def source(self) -> Source:
        self.opened.append(source := open_source(self.address))
        return source

    def sink(self) -> Sink:
        self.opened.append(sink := open_sink(self.address))
        return sink

    def expire(self, before: Mapping[int, int]) -> None:
        """Remove the records below these offsets, as retention does."""
        if self.cluster is None:
            retain(self.address, None, 0, before=before)
            return
        for partition, offset in before.items():
            delete_records(self.cluster, self.topic, offset, partition)

    def retain(
        self,
        max_age_s: float | None = None,
        max_bytes: int | None = None,
        now_ms: int | None = None,
        before: Mapping[int, int] | None = None,
    ) -> dict[int, int]:
        return retain(self.address, max_age_s, max_bytes, now_ms, before=before)

    def poll_in_vain(self, source: Source) -> None:
        """Poll until something is raised; a broker is asked only every few seconds whose topic it is."""
        for _ in range(100):
            assert source.poll(1, self.silence) is None

    def everything(self, source: Source, poll: int = 100) -> list[tuple[int, int, bytes | None]]:
        """From where the source stands to the end, as (partition, offset, value)."""
        ends = {partition: end for partition, (_, end) in source.bounds().items()}
        got: list[tuple[int, int, bytes | None]] = []
        while any(at < ends[partition] for partition, at in source.reached().items()):
            batch = source.poll(poll, self.patience)
            assert batch is not None
            got += [(batch.partition, *one) for one in zip(batch.offsets, batch.values, strict=True)]
        return got


@pytest.fixture(params=[*EMBEDDED, *CLIENTS])
def backend(request: pytest.FixtureRequest, tmp_path) -> Iterator[Backend]:
    """Each kind of log."""
    yield from _backend(request, tmp_path)


@pytest.fixture(params=EMBEDDED)
def embedded(request: pytest.FixtureRequest, tmp_path) -> Iterator[Backend]:
    """The logs whose retention is ours."""
    yield from _backend(request, tmp_path)


@pytest.fixture(params=CLIENTS)
def broker(request: pytest.FixtureRequest, tmp_path) -> Iterator[Backend]:
    """Kafka alone."""
    yield from _backend(request, tmp_path)


def _backend(request: pytest.FixtureRequest, tmp_path) -> Iterator[Backend]:
    if request.param in CLIENTS:
        cluster = request.getfixturevalue("kafka")
        settings = KafkaSettings(client=CLIENTS[request.param])
        backend = Backend(
            Address("kafka", cluster.servers(), f"clicks-{uuid.uuid4().hex}", settings), cluster
        )
    else:
        place = str(tmp_path / "clicks.log") if request.param == "log" else uuid.uuid4().hex
        backend = Backend(parse_address(f"{request.param}:{place}#clicks"))
    yield backend
    for one in backend.opened:
        one.close()
    if backend.cluster:
        for address in (backend.address, backend.address.dead):
            with suppress(TopicMissing):
                delete_topic(address)
