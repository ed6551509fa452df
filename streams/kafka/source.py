"""Reading and writing a Kafka topic: our own positions, and a client thrown away whenever it fails."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import closing
from functools import partial

from streams.errors import PartitionMissing, RecordRefused
from streams.kafka.admin import Admin, TopicWatch
from streams.kafka.clients import protocol
from streams.kafka.connect import abandon, attempt
from streams.kafka.damage import (
    Damage,
    LastRead,
    Prober,
    check_last_record,
    find_damage,
    follows,
    last_of,
    look_back,
)
from streams.kafka.preflight import preflight
from streams.limits import MAX_POLL_BYTES, MAX_RECORD_BYTES
from streams.partitions import Bounds, assigned, check_positions, place_records, record_bytes
from streams.source import UNKNOWN, Address, HeldBack, OutRecord, RecordBatch, TopicIdentity, cut


class Connection:
    """At most one client at a time, and at most one attempt to make one."""

    def __init__(self, make: Callable[[], protocol.ConsumerClient]) -> None:
        self._make = make
        self._client: protocol.ConsumerClient | None = None
        self._attempt: Future[protocol.ConsumerClient] | None = None

    def client(self, positions: Mapping[int, int], timeout_s: float) -> protocol.ConsumerClient | None:
        """The client; a new one is assigned these positions. None when it is not there within `timeout_s`.

        The attempt then continues, and the next call waits for it. Raises what making one raises.
        """
        if self._client is None:
            attempted = self._attempt = self._attempt or attempt(self._make)
            if not wait([attempted], timeout_s).done:
                return None
            self._attempt = None
            self._client = attempted.result()
            self._client.assign(positions)
        return self._client

    def drop(self) -> None:
        """Throw the client away: after any failure it may hang, or have skipped something."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def close(self) -> None:
        """Discard the consumer and its state."""
        attempted, self._attempt = self._attempt, None
        if attempted is not None:
            abandon(attempted, lambda client: client.close())
        self.drop()


class FetchedQueue:
    """Pieces per partition, in order; the partition at the front of the queue is next."""

    def __init__(self) -> None:
        self._pieces: dict[int, deque[protocol.Fetched]] = {}
        self._starts: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def __contains__(self, partition: int) -> bool:
        return partition in self._pieces

    def add(self, piece: protocol.Fetched) -> None:
        """Put a piece behind what its partition has already."""
        self._pieces.setdefault(piece.partition, deque()).append(piece)

    def next(self) -> protocol.Fetched:
        """The piece that `take` takes from: its partition and epoch are those of the records to come."""
        return next(iter(self._pieces.values()))[0]

    def take(self, max_records: int, max_bytes: int) -> protocol.Fetched:
        """The next records; their partition then goes to the end of the queue.

        At least one, at most `max_records`, and no more once their values have `max_bytes`.
        """
        partition, pieces = next(iter(self._pieces.items()))
        del self._pieces[partition]
        piece, start = pieces[0], self._starts.pop(partition, 0)
        stop = _stop(piece.values, start, min(len(piece.offsets), start + max_records), max_bytes)
        if stop < len(piece.offsets):
            self._starts[partition] = stop
        else:
            pieces.popleft()
        if pieces:
            self._pieces[partition] = pieces
        return cut(piece, start, stop)

    def clear(self) -> None:
        """Forget everything."""
        self._pieces.clear()
        self._starts.clear()


def _stop(values: list[bytes | None], start: int, stop: int, max_bytes: int) -> int:
    if sum(map(len, filter(None, values[start:stop]))) < max_bytes:
        return stop
    held = 0
    for place in range(start, stop):
        held += len(values[place] or b"")
        if held >= max_bytes:
            return place + 1
    return stop


_FETCH_RECORDS = 500
"""The client is asked for at least so many, so that partitions take turns also when few are wanted."""


class KafkaSource:
    """Reads one topic of a Kafka cluster (see `streams.source.Source`)."""

    def __init__(self, address: Address) -> None:
        preflight(address, "read")
        self._address, self._settings = address, address.settings
        self._admin = Admin(address)
        try:
            self._identity = self._admin.identity()
        except BaseException:
            self._admin.close()
            raise
        self._watch = TopicWatch(self._admin, self._identity)
        self._make_client = partial(protocol.make_consumer, address, self._identity)
        self._connection = Connection(self._make_client)
        self._waiting = FetchedQueue()
        self._positions: dict[int, int] | None = None  # below these, everything was handed out
        self._fetched: dict[int, int] = {}  # below these, everything was handed out or waits
        self._last: dict[int, LastRead] = {}

    def identity(self) -> TopicIdentity:
        """Which log and topic this is."""
        return self._identity

    def assign(self, positions: Mapping[int, int], known: Mapping[int, str] = UNKNOWN) -> None:
        """Read these partitions from these next offsets, replacing any earlier assignment."""
        check_positions(self._identity.topic, positions, self.bounds())
        with closing(self._prober()) as prober:
            last = look_back(prober, self._address, positions, known)
        self._connection.drop()
        self._waiting.clear()
        self._last = last
        self._positions = dict(positions)
        self._watch.start()

    def poll(self, max_records: int, timeout_s: float) -> RecordBatch | None:
        """Up to `max_records` next records of one partition, or None after `timeout_s` without any."""
        positions = assigned(self._positions, max_records)
        deadline = time.monotonic() + timeout_s
        while True:
            self._watch.raise_lasting()
            left = max(0.0, deadline - time.monotonic())
            if not positions:
                time.sleep(left)
            elif not self._waiting:
                damage = self._fetch(max(max_records, _FETCH_RECORDS), left)
                if damage is not None:
                    return self._pass_over(damage)
            if self._waiting:
                return self._hand_out(max_records)
            if time.monotonic() >= deadline:
                self._watch.raise_any()
                return None

    def reached(self) -> dict[int, int]:
        """Per assigned partition: the offset below which everything was handed out."""
        return dict(self._positions or {})

    def bounds(self) -> Bounds:
        """Per partition: the earliest offset still there, and the end (one past the newest)."""
        self._admin.check_whole(self._identity)
        return self._admin.bounds(self._identity.partitions)

    def held_back(self) -> dict[int, HeldBack]:
        """What an open transaction holds back, of the partitions where one does; it lies past their ends."""
        return self._admin.held_back(self._identity.partitions)

    def offsets_at(self, ts_ms: int) -> dict[int, int]:
        """Per partition: the first offset whose timestamp is >= `ts_ms`, else the end."""
        ends = {number: end for number, (_, end) in self.bounds().items()}
        return ends | self._admin.offsets_at(ts_ms, self._identity.partitions)

    def commit(self, positions: Mapping[int, int], note: str = "") -> None:
        """Note positions for lag dashboards; nothing ever resumes from them."""
        partitions = self._identity.partitions
        for partition in positions:
            if not 0 <= partition < partitions:
                raise PartitionMissing(self._identity.topic, partition, partitions)
        self._admin.commit(self._settings.client_id, positions, note)

    def committed(self) -> dict[int, int]:
        """The positions last noted by anybody, for lag dashboards."""
        return self._admin.committed(self._settings.client_id)

    def note(self) -> str:
        """The note last kept with the positions, as their metadata; "" for none."""
        return self._admin.note(self._settings.client_id)

    def close(self) -> None:
        """Release threads and sockets."""
        self._admin.close()
        self._watch.stop()
        self._connection.close()
        self._waiting.clear()
        self._positions = None

    def _fetch(self, max_records: int, timeout_s: float) -> Damage | None:
        """Ask the client for more; comes back with the damage when that is what is at a position.

        After any error of the client a new one continues at our own positions: after an error kafka-python
        may never come back from its next poll, or may have skipped something.
        """
        assert self._positions is not None
        deadline = time.monotonic() + timeout_s
        try:
            client = self._connection.client(self._positions, timeout_s)
            if client is None:
                return None
            pieces = client.poll(max_records, max(0.0, deadline - time.monotonic()))
            self._fetched = client.positions()
        except protocol.Overfull:
            self._connection.drop()
            return None
        except protocol.CorruptBatch:
            self._connection.drop()
            return find_damage(self._prober(), self._positions, self.bounds(), self._second_prober())
        except protocol.OutOfRange:
            self._connection.drop()
            check_positions(self._identity.topic, self._positions, self.bounds())
            return None
        except BaseException:
            self._connection.drop()
            raise
        for piece in pieces:
            self._waiting.add(piece)
        for partition, reached in self._fetched.items():
            if partition not in self._waiting:
                self._positions[partition] = reached
        return None

    def _hand_out(self, max_records: int) -> RecordBatch:
        assert self._positions is not None
        piece = self._waiting.next()
        partition = piece.partition
        last = self._last.get(partition)
        if last is not None and not follows(last, piece):
            with closing(self._prober()) as prober:
                check_last_record(prober, self._address, partition, last)
        piece = self._waiting.take(max_records, MAX_POLL_BYTES)
        self._last[partition] = last_of(piece)
        waits = partition in self._waiting
        self._positions[partition] = piece.offsets[-1] + 1 if waits else self._fetched[partition]
        return piece

    def _pass_over(self, damage: Damage) -> RecordBatch:
        """One entry for a stretch that cannot be read; reading continues behind it."""
        assert self._positions is not None
        self._positions[damage.partition] = damage.last + 1
        self._last.pop(damage.partition, None)
        return RecordBatch(damage.partition, [damage.last], [0], [None], [None], [()], str(damage))

    def _prober(self) -> Prober:
        return Prober(self._make_client, self._settings.timeout_s, self._address)

    def _second_prober(self) -> Prober | None:
        """With the other client, which tells where a batch ends; None where it is in use already."""
        if self._settings.client == "kafka-python":
            return None
        from streams.kafka.clients.python import PythonConsumer

        make = partial(PythonConsumer, self._address, self._identity.topic_id)
        return Prober(make, self._settings.timeout_s, self._address)


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
        self._client: protocol.ProducerClient | None = None

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
            self._client = protocol.make_producer(self._address, self._max_message_bytes)
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
