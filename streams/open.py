"""Opening what an address names: the one place that knows every kind of log."""

from __future__ import annotations

from collections.abc import Mapping

from streams import memory
from streams.address import Address
from streams.errors import AddressError
from streams.log import topics as log_topics
from streams.log.retention import retain as log_retain
from streams.log.sink import LogSink
from streams.log.source import LogSource
from streams.source import Sink, Source, TopicIdentity


def ensure_topic(address: Address, partitions: int) -> TopicIdentity:
    """Create the log and topic unless they exist; raises LogMismatch for another partition count."""
    if partitions < 1:
        raise AddressError(f"{address}: a topic needs at least one partition, not {partitions}")
    if address.scheme == "memory":
        return memory.ensure_topic(address.path, address.topic, partitions)
    return log_topics.ensure_topic(address.path, address.topic, partitions)


def delete_topic(address: Address) -> None:
    """Remove a topic with all its records; raises TopicMissing when there is none."""
    if address.scheme == "memory":
        memory.delete_topic(address.path, address.topic)
    else:
        log_topics.delete_topic(address.path, address.topic)


def open_source(address: Address) -> Source:
    """Open a topic for reading; raises TopicMissing, LogFileError or StreamUnavailable."""
    if address.scheme == "memory":
        return memory.MemorySource(address.path, address.topic)
    return LogSource(address.path, address.topic)


def open_sink(address: Address) -> Sink:
    """Open a topic for writing; raises TopicMissing, LogFileError or StreamUnavailable."""
    if address.scheme == "memory":
        return memory.MemorySink(address.path, address.topic)
    return LogSink(address.path, address.topic)


def retain(
    address: Address,
    max_age_s: float | None,
    max_bytes: int | None,
    now_ms: int | None = None,
    *,
    before: Mapping[int, int] | None = None,
) -> dict[int, int]:
    """Remove old records from the start of each partition; comes back with how many, per partition.

    A record goes when it and every record before it are older than `max_age_s` (by timestamp,
    against `now_ms`, default the clock), or when the records from it on pass the partition's equal
    share of `max_bytes`. None sets no limit. With `before`, only records below that offset of their
    partition can go, and none of a partition it does not name. Offsets are never used again, even when all
    are gone.
    """
    if address.scheme == "memory":
        return memory.retain(address.path, address.topic, max_age_s, max_bytes, now_ms, before=before)
    return log_retain(address.path, address.topic, max_age_s, max_bytes, now_ms, before=before)
