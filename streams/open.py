"""Opening what an address names: the one place that knows every kind of log.

A log in memory, for tests and trials, is an embedded log on a temporary file: known by a name to one process,
and gone when that ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from streams.errors import AddressError, TopicMissing
from streams.log import database as log_topics
from streams.log.source import LogSink, LogSource
from streams.partitions import TopicLimits
from streams.source import Address, Sink, Source, TopicIdentity


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="tripletd-", ignore_cleanup_errors=True)


def memory_path(name: str) -> str:
    """Where the records of the log with this name are, as long as the process lasts."""
    return str(Path(_folder().name, f"{sha256(name.encode()).hexdigest()[:32]}.log"))


class MemorySource(LogSource):
    """Reads one topic of a log of this process (see `streams.source.Source`)."""

    def __init__(self, name: str, topic: str) -> None:
        super().__init__(memory_path(name), topic)


class MemorySink(LogSink):
    """Appends to one topic of a log of this process (see `streams.source.Sink`)."""

    def __init__(self, name: str, topic: str) -> None:
        super().__init__(memory_path(name), topic, durable=False)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A topic that is there, and whether it was made just now."""

    identity: TopicIdentity
    created: bool


def prepare_topic(address: Address, partitions: int, *needs: Literal["read", "write"]) -> TopicIdentity:
    """The topic, ready to be opened.

    An embedded log and its topic are made unless they exist (`ensure_topic`). A Kafka topic has to exist,
    with any number of partitions, and let us do what is needed: raises TopicMissing naming the command that
    creates it, StreamRefused or StreamUnavailable.
    """
    if address.scheme == "kafka":
        from streams.kafka import topics
        from streams.kafka.preflight import preflight

        preflight(address, *needs)
        return topics.find_topic(address)
    return ensure_topic(address, partitions)


def create_topic(address: Address, partitions: int, limits: TopicLimits) -> Prepared:
    """Make one topic unless it exists.

    On Kafka it gets the safe settings of `streams.kafka.topics` and these limits; one that exists is left as
    it is, and raises LogMismatch when its number of partitions is another. An embedded log takes its limits
    with each `retain` instead.
    """
    if address.scheme == "kafka":
        from streams.kafka import topics

        return Prepared(*topics.ensure_topic(address, partitions, limits))
    with suppress(TopicMissing), closing(open_source(address)):
        return Prepared(ensure_topic(address, partitions), created=False)
    return Prepared(ensure_topic(address, partitions), created=True)


def ensure_topic(address: Address, partitions: int) -> TopicIdentity:
    """Create the log and topic unless they exist; raises LogMismatch for another partition count."""
    if partitions < 1:
        raise AddressError(f"{address}: a topic needs at least one partition, not {partitions}")
    if address.scheme == "kafka":
        from streams.kafka import topics

        return topics.ensure_topic(address, partitions, TopicLimits())[0]
    return log_topics.ensure_topic(_path(address), address.topic, partitions)


def open_source(address: Address) -> Source:
    """Open a topic for reading; raises TopicMissing, LogFileError, StreamRefused or StreamUnavailable."""
    if address.scheme == "memory":
        return MemorySource(address.path, address.topic)
    if address.scheme == "kafka":
        from streams.kafka.source import KafkaSource

        return KafkaSource(address)
    return LogSource(address.path, address.topic)


def records_given(address: Address) -> int:
    """How many records a topic was ever given, those included that retention removed.

    Who may write to a Kafka topic may ask this, too. Raises TopicMissing, StreamRefused or StreamUnavailable.
    """
    if address.scheme == "kafka":
        from streams.kafka.admin import Admin

        with closing(Admin(address)) as admin:
            bounds = admin.bounds(admin.identity().partitions)
    else:
        with closing(open_source(address)) as source:
            bounds = source.bounds()
    return sum(end for _, end in bounds.values())


def open_sink(address: Address, *, durable: bool = True) -> Sink:
    """Open a topic for writing; raises TopicMissing, LogFileError, StreamRefused or StreamUnavailable.

    An embedded log that is not `durable` leaves it to the system when records reach the disk: a power cut,
    but no end of the process, may take the newest. Brokers acknowledge as they always do.
    """
    if address.scheme == "memory":
        return MemorySink(address.path, address.topic)
    if address.scheme == "kafka":
        from streams.kafka.source import KafkaSink

        return KafkaSink(address)
    return LogSink(address.path, address.topic, durable=durable)


def retain(
    address: Address,
    max_age_s: float | None,
    max_bytes: int | None,
    now_ms: int | None = None,
    *,
    before: Mapping[int, int] | None = None,
) -> dict[int, int]:
    """Remove old records from the start of each partition; comes back with how many, per partition.

    A record goes when it and every record before it are older than `max_age_s` (by when they came, against
    `now_ms`, default the clock), or when the records from it on pass the partition's equal
    share of `max_bytes`. None sets no limit. With `before`, only records below that offset of their
    partition can go, and none of a partition it does not name. Offsets are never used again, even when all
    are gone.

    A Kafka topic keeps records as its own settings say: nothing is removed, and nothing comes back.
    """
    if address.scheme == "kafka":
        return {}
    return log_topics.retain(_path(address), address.topic, max_age_s, max_bytes, now_ms, before=before)


def compact(address: Address) -> dict[int, int]:
    """Of the records with one key let only the last stay, where enough are new to make that worth its while.

    Comes back with how many records went, per partition. Readers see a gap in the offsets. A broker
    compacts by itself where the topic's settings say so: nothing is done then, and nothing comes back.
    """
    return {} if address.scheme == "kafka" else log_topics.compact(_path(address), address.topic)


def _path(address: Address) -> str:
    return memory_path(address.path) if address.scheme == "memory" else address.path
