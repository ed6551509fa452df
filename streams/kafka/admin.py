"""Questions to a Kafka cluster about one topic, each answered within a time limit, and a watch on its
identity.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from kafka import KafkaAdminClient, TopicPartition
from kafka import errors as kafka_errors
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.protocol.consumer import IsolationLevel, OffsetSpec
from kafka.structs import OffsetAndMetadata

from streams.errors import LogMismatch, PartitionsAdded, StreamError, StreamUnavailable, TopicMissing
from streams.kafka import connect
from streams.kafka.clients.protocol import recreated
from streams.partitions import Bounds
from streams.source import Address, HeldBack, TopicIdentity

T = TypeVar("T")

_RETRY_S = 0.05
_LEAVE_S = 2.0
DEFAULT_MESSAGE_BYTES = 1048588
"""A broker's default of `message.max.bytes`: assumed where it does not report its own."""


class Admin:
    """One topic of one cluster; may be used by several threads at once.

    Every method raises StreamUnavailable when there is no answer within the settings' `timeout_s`, and
    StreamRefused without permission. A client that failed is thrown away; the next call makes another.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._timeout_s = address.settings.timeout_s
        self._lock = threading.Lock()
        self._client: Any = None
        self._closed = threading.Event()

    def identity(self) -> TopicIdentity:
        """The topic as the cluster knows it now; raises TopicMissing."""
        return self.call(lambda client: _identity(client, self._address))

    def check(self, known: TopicIdentity) -> TopicIdentity:
        """The topic now; raises LogMismatch unless it is still the one that was opened."""
        try:
            now = self.identity()
        except TopicMissing as error:
            raise recreated(self._address, known.topic_id, None) from error
        if now.topic_id != known.topic_id:
            raise recreated(self._address, known.topic_id, now.topic_id)
        if now.log_id != known.log_id:
            raise LogMismatch(
                f"{self._address}: another cluster answers, {now.log_id} instead of {known.log_id}"
            )
        return now

    def check_whole(self, known: TopicIdentity) -> None:
        """Raises LogMismatch also when it has more partitions than were opened, which nobody would read:
        PartitionsAdded where the topic is surely the same.
        """
        now = self.check(known)
        if now.grew_from(known):
            raise PartitionsAdded(self._address, known.partitions, now.partitions)
        if now.partitions != known.partitions:
            raise LogMismatch(
                f"{self._address}: the topic has {now.partitions} partitions now, {known.partitions} when it "
                "was opened; what lies in the others would not be read: open it again"
            )

    def bounds(self, partitions: int) -> Bounds:
        """Per partition: the earliest offset still there, and the end of what is committed."""
        topic = self._address.topic

        def ask(client: Any) -> Bounds:
            places = [TopicPartition(topic, number) for number in range(partitions)]
            first, last = (
                client.list_partition_offsets(dict.fromkeys(places, spec), IsolationLevel.READ_COMMITTED)
                for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
            )
            # asked for one after the other: retention may have passed an end that was read before it
            return {
                place.partition: (first[place].offset, max(first[place].offset, last[place].offset))
                for place in places
            }

        return self.call(ask)

    def held_back(self, partitions: int) -> dict[int, HeldBack]:
        """What lies between the end of what is committed and the newest record, where that is anything."""
        places = [TopicPartition(self._address.topic, number) for number in range(partitions)]

        def ask(client: Any) -> dict[int, HeldBack]:
            # the newest first: an end of what is committed that is asked for later and lies before it is held
            newest, stable = (
                client.list_partition_offsets(dict.fromkeys(places, OffsetSpec.LATEST), level)
                for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)
            )
            return {
                place.partition: HeldBack(stable[place].offset, newest[place].offset)
                for place in places
                if stable[place].offset < newest[place].offset
            }

        return self.call(ask)

    def offsets_at(self, ts_ms: int, partitions: int) -> dict[int, int]:
        """The first offset whose timestamp is >= `ts_ms`, for each partition that has one."""

        def ask(client: Any) -> dict[int, int]:
            places = {TopicPartition(self._address.topic, number): ts_ms for number in range(partitions)}
            found = client.list_partition_offsets(places, IsolationLevel.READ_COMMITTED)
            return {place.partition: at.offset for place, at in found.items() if at.offset >= 0}

        return self.call(ask)

    def commit(self, group: str, positions: Mapping[int, int], note: str = "") -> None:
        """Note positions under a group, for lag dashboards; `note`: their metadata."""
        noted = {
            TopicPartition(self._address.topic, number): OffsetAndMetadata(position, note, None)
            for number, position in positions.items()
        }

        def ask(client: Any) -> None:
            for failure in client.alter_group_offsets(group, noted).values():
                if failure is not kafka_errors.NoError:
                    raise failure

        self.call(ask)

    def committed(self, group: str) -> dict[int, int]:
        """The positions noted under a group."""

        def ask(client: Any) -> dict[int, int]:
            found = client.list_group_offsets([group])[group]
            return {
                place.partition: at.offset
                for place, at in found.items()
                if place.topic == self._address.topic and at.offset >= 0
            }

        return self.call(ask)

    def note(self, group: str) -> str:
        """The metadata of the positions noted under a group: that of the partition with the most records."""

        def ask(client: Any) -> str:
            found = client.list_group_offsets([group])[group]
            noted = [at for place, at in found.items() if place.topic == self._address.topic and at.metadata]
            return str(max(noted, key=lambda at: at.offset).metadata) if noted else ""

        return self.call(ask)

    def max_message_bytes(self) -> int:
        """The most bytes of one batch of records that the topic takes."""
        resource = ConfigResource(ConfigResourceType.TOPIC, self._address.topic)

        def ask(client: Any) -> int:
            found = client.describe_configs([resource], config_filter="all")["topic"][self._address.topic]
            setting = found.get("max.message.bytes")
            return DEFAULT_MESSAGE_BYTES if setting is None else int(setting["value"])

        return self.call(ask)

    def close(self) -> None:
        """Release threads and sockets; a call that still waits fails."""
        with self._lock:
            self._closed.set()
            client, self._client = self._client, None
        if client is not None:
            with suppress(TimeoutError):  # a thread that waits for a name server is left behind
                connect.call_within(_LEAVE_S, lambda: connect.close_quietly(client))

    def call(self, work: Callable[[Any], T]) -> T:
        """`work(client)` with a client of kafka-python, under the same rules."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return self._call_once(work, deadline)
            except Exception as error:
                # a node that this client does not know yet is known to the next one
                passes = isinstance(error, kafka_errors.UnknownBrokerIdError) or (
                    isinstance(error, kafka_errors.KafkaError) and error.retriable
                )
                if not passes or time.monotonic() + _RETRY_S >= deadline:
                    raise connect.stream_error(error, self._address) from error
            time.sleep(_RETRY_S)

    def _call_once(self, work: Callable[[Any], T], deadline: float) -> T:
        client = self._connected(deadline)
        try:
            return connect.call_within(_left(deadline), lambda: work(client))
        except StreamError:
            raise
        except BaseException:
            self._throw_away(client)
            raise

    def _connected(self, deadline: float) -> Any:
        with self._lock:
            if self._closed.is_set():
                raise StreamError(f"{self._address} is closed")
            if self._client is not None:
                return self._client
        client, _ = connect.open_client(
            KafkaAdminClient, connect.client_options(self._address), _left(deadline)
        )
        with self._lock:
            closed, others = self._closed.is_set(), self._client
            self._client = None if closed else client
        spare = client if closed else others
        if spare is not None:  # another thread was faster, or the end came in between
            connect.close_aside(spare)
        if closed:
            raise StreamError(f"{self._address} is closed")
        return client

    def _throw_away(self, client: Any) -> None:
        with self._lock:
            if self._client is client:
                self._client = None
        connect.close_aside(client)


def _identity(client: Any, address: Address) -> TopicIdentity:
    cluster = client.describe_cluster()
    (topic,) = client.describe_topics([address.topic])
    failure = kafka_errors.for_code(topic["error_code"])
    if failure is kafka_errors.UnknownTopicOrPartitionError:
        raise connect.missing(address)
    if failure is not kafka_errors.NoError:
        raise failure
    return TopicIdentity(
        cluster["cluster_id"], address.topic, str(topic["topic_id"]), len(topic["partitions"])
    )


def _left(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())


PERIOD_S = 2.0
_WATCH_LEAVE_S = 1.0


class TopicWatch:
    """A thread that asks the cluster for the topic's identity; what it finds is raised by the reader."""

    def __init__(self, admin: Admin, identity: TopicIdentity) -> None:
        self._admin, self._identity = admin, identity
        self._stop = threading.Event()
        self._fault: StreamError | None = None
        self._thread = threading.Thread(target=self._run, name="kafka-watch", daemon=True)

    def start(self) -> None:
        """Begin to look, unless that has begun."""
        if self._thread.ident is None:
            self._thread.start()

    def raise_lasting(self) -> None:
        """Raise what will not pass by itself: another topic, another cluster, no permission."""
        if self._fault is not None and not self._fault.retriable:
            raise self._fault

    def raise_any(self) -> None:
        """Raise also that the cluster does not answer."""
        if self._fault is not None:
            raise self._fault

    def stop(self) -> None:
        """End the thread; close the admin first, so that it waits for nothing."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(_WATCH_LEAVE_S)

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_S):
            try:
                self._admin.check_whole(self._identity)
                self._fault = None
            except StreamUnavailable as error:
                self._fault = error
            except StreamError as error:
                self._fault = error
                return
