"""Reading through confluent-kafka (librdkafka), for topics that need its speed."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import groupby
from operator import methodcaller
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from streams.errors import StreamError, StreamUnavailable
from streams.kafka.clients.confluent import NOT_ALLOWED, ends_in_time, make, reading_error
from streams.kafka.clients.protocol import Fetched, recreated
from streams.kafka.clients.python import PythonConsumer
from streams.kafka.damage import Prober
from streams.source import Address, Headers


class SameTopic:
    """Asks for the id of one topic; connects when it is asked first."""

    def __init__(self, address: Address, topic_id: str) -> None:
        self._address, self._topic_id = address, topic_id
        self._timeout_s = address.settings.timeout_s
        self._client: AdminClient | None = None

    def check(self) -> None:
        """Raises LogMismatch when the topic was removed or re-created, StreamUnavailable without answer."""
        if self._client is None:
            self._client = make(AdminClient, self._address, {})
        found = self._id(self._client)
        if found != self._topic_id:
            raise recreated(self._address, self._topic_id, found)

    def _id(self, client: AdminClient) -> str | None:
        topic = self._address.topic
        asked = client.describe_topics(TopicCollection([topic]), request_timeout=self._timeout_s)[topic]
        try:
            found = asked.result(self._timeout_s)
        except KafkaException as problem:
            error = problem.args[0]
            if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise StreamUnavailable(f"{self._address}: {error.str()}") from problem
        except TimeoutError as problem:
            raise StreamUnavailable(f"{self._address}: no answer about the topic's id") from problem
        return str(uuid.UUID(bytes=base64.urlsafe_b64decode(f"{found.topic_id}==")))


PARTITION_FETCH_BYTES = 4 << 20
READING: dict[str, object] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "check.crcs": True,
    "enable.partition.eof": True,  # tells where a partition ends, transaction markers included
    "max.partition.fetch.bytes": PARTITION_FETCH_BYTES,
    "fetch.max.bytes": 4 * PARTITION_FETCH_BYTES,
    "queued.max.messages.kbytes": 32 << 10,  # of memory read ahead; the default is 64 MB
    "fetch.queue.backoff.ms": 10,  # once that is full; the default, a second, starves a quick reader
    "fetch.wait.max.ms": 250,
}


_HEADERS_OF = methodcaller("headers")
"""`message.headers()`, with the interpreter's check that a call which sets an exception also fails.

confluent-kafka does both, comes back and sets one, when a header's name is not UTF-8; the interpreter's quick
way of calling a method does not notice, and a name without a value would be in our hands.
"""


class ConfluentConsumer:
    """`ConsumerClient` by librdkafka. With `topic_id`, it never reads from another topic of that name."""

    def __init__(self, address: Address, topic_id: str | None = None) -> None:
        self._address = address
        self._positions: dict[int, int] = {}
        self._failure: StreamError | None = None
        self._down: str | None = None
        self._closed = False
        self._gaps = Prober(partial(PythonConsumer, address), address.settings.timeout_s, address)
        self._same_topic = None if topic_id is None else SameTopic(address, topic_id)
        # a name it insists on, and asks for the coordinator of; no group is joined and nothing is committed
        own = {"group.id": address.settings.client_id, "error_cb": self._on_error}
        self._consumer = make(Consumer, address, READING | own)

    def assign(self, positions: Mapping[int, int]) -> None:
        """Read these partitions from these next offsets; what was fetched before is forgotten."""
        self._positions = dict(positions)
        self._consumer.assign([TopicPartition(self._address.topic, p, o) for p, o in self._positions.items()])

    def poll(self, max_records: int, timeout_s: float) -> list[Fetched]:
        """Up to `max_records` next records of any assigned partitions; empty after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while self._failure is None:
            messages = self._take(max_records, max(0.0, deadline - time.monotonic()))
            if messages and self._same_topic is not None:
                self._same_topic.check()
            fetched = self._accept(messages)
            if fetched:
                return fetched
            if time.monotonic() >= deadline:
                break
        if self._failure is not None:
            raise self._failure
        if self._down is not None:
            raise StreamUnavailable(f"{self._address}: no broker can be reached ({self._down})")
        return []

    def positions(self) -> dict[int, int]:
        """Per assigned partition: the next offset to be polled, past gaps that hold no record."""
        return dict(self._positions)

    def close(self) -> None:
        """Release threads and sockets; a client that does not end in time is left behind."""
        if not self._closed:
            self._closed = True
            self._gaps.close()
            if ends_in_time(self._consumer.close):
                del self._consumer  # it and we refer to each other: its threads would stay until collected

    def _take(self, most: int, timeout_s: float) -> list[Message]:
        """The first that comes and what is there with it: `consume` alone would wait until it has `most`."""
        try:
            first: list[Message] = self._consumer.consume(1, timeout_s)
            return first + self._consumer.consume(most - 1, 0) if first and most > 1 else first
        except KafkaException as problem:
            raise StreamUnavailable(f"{self._address}: {problem.args[0].str()}") from problem

    def _accept(self, messages: list[Message]) -> list[Fetched]:
        """The records before the first error, as columns; the error is kept for the next poll."""
        accepted: list[Fetched] = []
        for (partition, epoch, failed), group in groupby(messages, _kind):
            if partition not in self._positions:
                self._hear_group(group)
                continue
            self._down = None
            if failed:
                self._hear(partition, group)
            else:
                accepted.extend(self._columns(partition, epoch, list(group)))
            if self._failure is not None:
                break
        return accepted

    def _columns(self, partition: int, epoch: int, messages: list[Message]) -> list[Fetched]:
        offsets = cast("list[int]", [message.offset() for message in messages])
        sound = self._continuing(partition, offsets)
        if sound == 0:
            return []
        if sound < len(offsets):
            del offsets[sound:], messages[sound:]
        self._positions[partition] = offsets[-1] + 1
        return [
            Fetched(
                partition,
                offsets,
                [message.timestamp()[1] for message in messages],
                [message.value() for message in messages],
                [message.key() for message in messages],
                [_headers(message) for message in messages],
                epoch=epoch,
            )
        ]

    def _continuing(self, partition: int, offsets: list[int]) -> int:
        """How many of these offsets follow on where we are, every gap between them known to be empty."""
        expected = self._positions[partition]
        if offsets == list(range(expected, expected + len(offsets))):
            return len(offsets)
        for index, offset in enumerate(offsets):
            if offset != expected and not self._is_empty(partition, expected, offset):
                return index
            expected = offset + 1
        return len(offsets)

    def _is_empty(self, partition: int, begin: int, end: int) -> bool:
        """Whether nothing is to be read at `begin` <= offset < `end`; keeps the failure when not."""
        try:
            if end > begin:
                found = self._gaps.read(partition, begin, end)
                if found is None or found.offsets[0] >= end:
                    return True
            self._failure = StreamUnavailable(
                f"{self._address}, partition {partition}: the client went from offset {begin} to {end}"
            )
        except StreamError as error:
            self._failure = error
        return False

    def _hear(self, partition: int, messages: Iterable[Message]) -> None:
        for message in messages:
            error, position = message.error(), self._positions[partition]
            assert error is not None, "only messages with an error come here"
            if error.code() != KafkaError._PARTITION_EOF:
                self._failure = reading_error(error, self._address, partition, position)
                return
            end = message.offset()
            assert end is not None, "the end of a partition is an offset"
            if end != position and not self._is_empty(partition, position, end):
                return
            self._positions[partition] = end

    def _hear_group(self, messages: Iterable[Message]) -> None:
        """What concerns no partition: without permission nothing will ever come; the rest passes."""
        for message in messages:
            error = message.error()
            if error is not None and error.code() in NOT_ALLOWED:
                self._failure = reading_error(error, self._address, -1, 0)

    def _on_error(self, error: KafkaError) -> None:
        """What concerns the whole client; librdkafka keeps trying by itself."""
        if self._down is not None or error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._down = error.str()


def _kind(message: Message) -> tuple[int, int, bool]:
    """Partition, leader epoch, and whether it is an error: what one `Fetched` has in common."""
    partition, epoch = message.partition(), message.leader_epoch()
    return -1 if partition is None else partition, -1 if epoch is None else epoch, message.error() is not None


def _headers(message: Message) -> Headers:
    """Its headers; none when a name among them is no text."""
    try:
        given = _HEADERS_OF(message)
    except SystemError:
        return ()
    return tuple((name, value or b"") for name, value in given) if given else ()
