"""Reading and writing through kafka-python."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka import errors as kafka_errors

from streams.errors import StreamError, StreamUnavailable
from streams.kafka import connect
from streams.kafka.clients import patches
from streams.kafka.clients.protocol import CorruptBatch, Fetched, OutOfRange, Overfull, recreated
from streams.source import Address, OutRecord

PARTITION_FETCH_BYTES = 4 << 20
FETCH_BYTES = 16 << 20
"""Read ahead per broker, over all partitions. A partition is fetched again once its part is handed out."""

_REQUEST_S = 15.0
"""A fetch of so many bytes may take this long; polls end in time all the same, they do not wait for it."""

_PAUSE_S = 0.05
"""After so long without a poll the topic may have been re-created, with no fetch under way that failed."""

_CONFIRM_S = 1.0
_FRESH_S, _FRESH_SLICE_S = 0.5, 0.005
"""The first polls after an assignment are short: the client sleeps 100 ms while it waits for metadata, such
as where a leader is, and only its next poll continues."""

_GAPS_S = 0.005
_LEAVE_S, _LEAVE_MS = 2.0, 500

_READING: dict[str, Any] = {
    "group_id": None,
    "enable_auto_commit": False,
    "auto_offset_reset": "none",
    "isolation_level": "read_committed",
    "check_crcs": True,
    "allow_auto_create_topics": False,
    "metrics_enabled": False,
    "max_partition_fetch_bytes": PARTITION_FETCH_BYTES,
    "fetch_max_bytes": FETCH_BYTES,
}


class PythonConsumer:
    """`ConsumerClient` by kafka-python. With `topic_id`, it never reads from another topic of that name."""

    def __init__(self, address: Address, topic_id: str | None = None) -> None:
        patches.install_limits()
        patches.install_wide_receive()
        self._address = address
        self._topic_id = topic_id
        self._places: dict[int, TopicPartition] = {}
        self._reached: dict[int, int] = {}
        timeout_s = address.settings.timeout_s
        options = connect.client_options(address) | _READING
        options["request_timeout_ms"] = connect.milliseconds(max(_REQUEST_S, timeout_s))
        try:
            self._consumer, network = connect.open_client(KafkaConsumer, options, timeout_s)
        except Exception as error:
            raise connect.stream_error(error, address) from error
        self._consumer._fetcher.PartitionRecords = patches.QuickRecords
        self._cluster = network.cluster
        self._polled_at = self._fresh_until = time.monotonic()

    def assign(self, positions: Mapping[int, int]) -> None:
        """Read these partitions from these next offsets; what was fetched before is forgotten."""
        self._places = {number: TopicPartition(self._address.topic, number) for number in positions}
        self._consumer.assign([])  # partitions that stay would keep what was fetched for them
        self._consumer.assign(list(self._places.values()))
        for number, place in self._places.items():
            self._consumer.seek(place, positions[number])
        self._reached = dict(positions)
        self._fresh_until = time.monotonic() + _FRESH_S

    def poll(self, max_records: int, timeout_s: float) -> list[Fetched]:
        """Up to `max_records` next records of any assigned partitions; empty after `timeout_s`."""
        if time.monotonic() - self._polled_at > _PAUSE_S:
            self._cluster.request_update()
        patches.begin_poll()
        try:
            polled = self._poll(max_records, timeout_s)
            if not polled:
                self._pass_gaps()
        except Exception as error:
            raise self._fault(error) from error
        self._polled_at = time.monotonic()
        if polled and (self._cluster.need_update or self._cluster.topic_id(self._address.topic) is None):
            # a fetch may have failed because the topic was removed, and the next one found another
            self._await_metadata()
        self._check_topic()
        fetched: list[Fetched] = []
        for place, records in polled.items():
            fetched += _columns(place.partition, records)
            self._reached[place.partition] = records[-1].offset + 1
        return fetched

    def _poll(self, max_records: int, timeout_s: float) -> dict[TopicPartition, list[Any]]:
        until = time.monotonic() + timeout_s
        while True:
            left = until - time.monotonic()
            fresh = time.monotonic() < self._fresh_until
            wait_s = min(left, _FRESH_SLICE_S) if fresh else left
            polled: dict[TopicPartition, list[Any]] = self._consumer.poll(
                timeout_ms=max(0, round(wait_s * 1000)), max_records=max_records
            )
            if polled or not fresh or left <= 0:
                return polled

    def positions(self) -> dict[int, int]:
        """Per assigned partition: the next offset to be polled; polls that find nothing pass gaps."""
        return dict(self._reached)

    def close(self) -> None:
        """Release threads and sockets."""
        with suppress(TimeoutError):  # a thread that waits for a name server is left behind
            connect.call_within(_LEAVE_S, lambda: connect.close_quietly(self._consumer, timeout_ms=_LEAVE_MS))

    def _check_topic(self) -> None:
        # the client asks for the topic's id often, and at once after any fetch that failed
        known = self._cluster.topic_id(self._address.topic)
        if self._topic_id is not None and known is not None and str(known) != self._topic_id:
            raise recreated(self._address, self._topic_id, str(known))

    def _pass_gaps(self) -> None:
        """Ask the client where it stands, some partitions at a time: with many, each answer takes long."""
        until = time.monotonic() + _GAPS_S
        for number, reached in list(self._reached.items()):
            del self._reached[number]  # and back in at the end: the next time begins with another
            self._reached[number] = max(reached, self._consumer.position(self._places[number], 0))
            if time.monotonic() > until:
                break

    def _await_metadata(self) -> None:
        known = threading.Event()
        self._cluster.request_update().add_both(lambda _: known.set())
        if not known.wait(_CONFIRM_S):
            raise StreamUnavailable(f"{self._address}: no broker tells whether this is still the same topic")

    def _fault(self, error: Exception) -> StreamError:
        if isinstance(error, kafka_errors.OffsetOutOfRangeError | kafka_errors.LogTruncationError):
            return OutOfRange(f"{self._address}: {error}")
        if isinstance(error, Overfull):
            return error
        last = patches.last_offset_of(error)
        if isinstance(error, patches.TooLarge | patches.CutShort | kafka_errors.CorruptRecordError):
            return CorruptBatch(str(error), last)
        if isinstance(error, kafka_errors.UnsupportedCodecError):  # all that are known can be read
            return CorruptBatch(f"{error}: a codec that is not known here", last)
        if isinstance(error, kafka_errors.KafkaError | OSError | MemoryError):
            return connect.stream_error(error, self._address)
        # anything else was raised while taking records apart: numbers, lengths or texts in them are damaged
        return CorruptBatch(f"{type(error).__name__}: {error}", last)


def _columns(partition: int, records: list[Any]) -> list[Fetched]:
    """Records of one partition as columns, one set for each leader epoch; epochs only rise within a log."""
    if records[0].leader_epoch != records[-1].leader_epoch:
        first = records[0].leader_epoch
        cut = next(place for place, record in enumerate(records) if record.leader_epoch != first)
        return _columns(partition, records[:cut]) + _columns(partition, records[cut:])
    return [
        Fetched(
            partition,
            [record.offset for record in records],
            [record.timestamp for record in records],
            [record.value for record in records],
            [record.key for record in records],
            [tuple((n, v or b"") for n, v in one.headers) if one.headers else () for one in records],
            epoch=records[0].leader_epoch,
        )
    ]


_BATCH_BYTES = 256 * 1024
_PRODUCER_LEAVE_S = 0.5

_WRITING: dict[str, Any] = {
    "acks": "all",
    "enable_idempotence": True,
    "allow_auto_create_topics": False,
    "metrics_enabled": False,
    "compression_type": None,
}


class PythonProducer:
    """`ProducerClient` by kafka-python."""

    def __init__(self, address: Address, max_message_bytes: int) -> None:
        self._address = address
        self._timeout_s = address.settings.timeout_s
        limit = connect.milliseconds(self._timeout_s)
        options = connect.client_options(address) | _WRITING
        options |= {
            "batch_size": min(_BATCH_BYTES, max_message_bytes),
            "max_request_size": max_message_bytes,
            "max_block_ms": limit,
            # what is not acknowledged by then is given up, so that nothing is written after `send` has ended
            "delivery_timeout_ms": limit,
            "request_timeout_ms": max(1, limit // 2),
            # what is sent together goes out together: `send` flushes behind its last record
            "linger_ms": limit // 4,
        }
        try:
            self._producer, _ = connect.open_client(KafkaProducer, options, self._timeout_s)
        except Exception as error:
            raise connect.stream_error(error, address) from error

    def send(self, placed: Sequence[tuple[int, OutRecord]]) -> list[int]:
        """Write records, each with its partition; comes back with their offsets once they are durable."""
        deadline = time.monotonic() + self._timeout_s
        try:
            futures = [self._append(partition, record) for partition, record in placed]
            self._producer.flush(max(0.0, deadline - time.monotonic()))
            offsets = [future.get(max(0.0, deadline - time.monotonic())).offset for future in futures]
        except Exception as error:
            fault = connect.stream_error(error, self._address)
            if isinstance(fault, StreamUnavailable):
                fault = StreamUnavailable(f"in doubt whether all records were written: {fault}")
            raise fault from error
        if min(offsets) < 0:
            raise StreamUnavailable(f"{self._address}: written, but the broker does not tell where")
        return offsets

    def close(self) -> None:
        """Release threads and sockets; nothing is written any more."""
        # or what is unfinished keeps its thread, which keeps trying to write it
        self._producer._sender.force_close()
        connect.close_quietly(self._producer, timeout=_PRODUCER_LEAVE_S)

    def _append(self, partition: int, record: OutRecord) -> Any:
        return self._producer.send(
            self._address.topic,
            record.value,
            record.key,
            list(record.headers),
            partition,
            int(time.time() * 1000) if record.timestamp is None else record.timestamp,
        )
