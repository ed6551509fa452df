"""What the two Kafka clients do alike: raw records in columns, positions chosen by us alone.

`make_consumer` and `make_producer` make the client that the settings name; the other one is never
imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from streams.errors import LogMismatch, StreamError
from streams.source import Address, OutRecord, RecordBatch, TopicIdentity


@dataclass(frozen=True, slots=True)
class Fetched(RecordBatch):
    """Consecutive records of one partition and one leader epoch (-1: unknown)."""

    epoch: int = -1


class CorruptBatch(StreamError):
    """Records at the position of some assigned partition cannot be read: checksum, lengths, size.

    last: offset of the last record of the batch, where its checksum is right and says so; None while unknown.
    """

    def __init__(self, message: str, last: int | None = None) -> None:
        super().__init__(message)
        self.last = last


class OutOfRange(StreamError):
    """The broker has no such offset, or not of the log that was read: expired, past the end, cut off."""


class Overfull(StreamError):
    """What was fetched is too large to be held at once: another client reads on where this one stands."""


def recreated(address: Address, opened: str, found: str | None) -> LogMismatch:
    """The topic of that id is no more; `found`: the id of the one that has its name now."""
    return LogMismatch(
        f"{address}: the topic was removed or re-created while it was open (its id was {opened}, "
        f"now it is {found or 'gone'}); open it again"
    )


class ConsumerClient(Protocol):
    """Reads assigned partitions of one topic; committed records only, checksums verified.

    Never joins a group, never resumes from a committed offset, never resets a position by itself.
    After any exception out of `poll` the caller throws the client away and makes another.
    """

    def assign(self, positions: Mapping[int, int]) -> None:
        """Read these partitions from these next offsets; what was fetched before is forgotten."""

    def poll(self, max_records: int, timeout_s: float) -> list[Fetched]:
        """Up to `max_records` next records of any assigned partitions; empty after `timeout_s`.

        Raises CorruptBatch, OutOfRange, Overfull, StreamRefused (no permission) or StreamUnavailable.
        """

    def positions(self) -> dict[int, int]:
        """Per assigned partition: the next offset to be polled.

        Gaps that hold no record are passed too, by polls that find nothing if not before.
        """

    def close(self) -> None:
        """Release threads and sockets within a bounded time; may be called twice."""


class ProducerClient(Protocol):
    """Appends to one topic: idempotent, acknowledged by all in-sync replicas, in the order given."""

    def send(self, placed: Sequence[tuple[int, OutRecord]]) -> list[int]:
        """Write records, each with its partition; comes back with their offsets once they are durable.

        Raises StreamUnavailable when it is in doubt whether all were written, RecordRefused for a record the
        broker will not take, StreamRefused without permission. The client is of no use after an exception.
        """

    def close(self) -> None:
        """Release threads and sockets within a bounded time; may be called twice."""


def make_consumer(address: Address, identity: TopicIdentity) -> ConsumerClient:
    """Connect for reading the topic of that identity; raises StreamUnavailable or StreamRefused."""
    if address.settings.client == "confluent":
        from streams.kafka.clients.confluent_consumer import ConfluentConsumer

        return ConfluentConsumer(address, identity.topic_id)
    from streams.kafka.clients.python import PythonConsumer

    return PythonConsumer(address, identity.topic_id)


def make_producer(address: Address, max_message_bytes: int) -> ProducerClient:
    """Connect for writing batches of at most so many bytes; raises StreamUnavailable or StreamRefused."""
    if address.settings.client == "confluent":
        from streams.kafka.clients.confluent import ConfluentProducer

        return ConfluentProducer(address)
    from streams.kafka.clients.python import PythonProducer

    return PythonProducer(address, max_message_bytes)
