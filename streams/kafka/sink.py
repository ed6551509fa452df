"""Writing to a Kafka topic."""

from __future__ import annotations

from collections.abc import Sequence

from streams.address import Address
from streams.errors import RecordRefused
from streams.kafka.admin import Admin
from streams.kafka.clients.protocol import ProducerClient, make_producer
from streams.kafka.preflight import preflight
from streams.limits import MAX_RECORD_BYTES
from streams.partitions import place_records, record_bytes
from streams.source import OutRecord, TopicIdentity

_AROUND = 1024
"""Bytes that Kafka puts around a record: 61 for its batch, 40 for lengths and times, 10 for each header.

With more headers than that leaves room for, it is the broker that refuses the largest records.
"""


class KafkaSink:
    """Appends to one topic of a Kafka cluster (see `streams.source.Sink`).

    Idempotent and acknowledged by all in-sync replicas. A record has a value or a key.
    """

    def __init__(self, address: Address) -> None:
        preflight(address, "write")
        self._address = address
        self._admin = Admin(address)
        try:
            self._identity = self._admin.identity()
            self._max_message_bytes = self._admin.max_message_bytes()
        except BaseException:
            self._admin.close()
            raise
        self._client: ProducerClient | None = None

    @property
    def max_record_bytes(self) -> int:
        """The most bytes of one record: what the topic takes, without what is put around it."""
        return min(MAX_RECORD_BYTES, self._max_message_bytes - _AROUND)

    def identity(self) -> TopicIdentity:
        """Which log and topic this is."""
        return self._identity

    def send(self, records: Sequence[OutRecord]) -> list[tuple[int, int]]:
        """Write all records; when it returns they are durable. StreamUnavailable means in doubt."""
        identity = self._identity
        placed = place_records(identity.topic, identity.partitions, records)
        self._check_records(records)
        if not records:
            return []
        self._admin.check(identity)
        if self._client is None:
            self._client = make_producer(self._address, self._max_message_bytes)
        try:
            offsets = self._client.send(list(zip(placed, records, strict=True)))
        except BaseException:
            self._drop_client()
            raise
        return list(zip(placed, offsets, strict=True))

    def close(self) -> None:
        """Release threads and sockets."""
        self._admin.close()
        self._drop_client()

    def _check_records(self, records: Sequence[OutRecord]) -> None:
        for number, record in enumerate(records):
            size = record_bytes(record)
            if size > self.max_record_bytes:
                raise RecordRefused(
                    f"record {number} has {size} bytes, {self._address} takes {self.max_record_bytes}: "
                    "its setting max.message.bytes"
                )
            if record.value is None and record.key is None:
                raise RecordRefused(f"record {number} has neither value nor key; Kafka takes no such record")

    def _drop_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()
