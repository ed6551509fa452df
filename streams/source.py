"""Where a stream lives, and the ports: a source of records, a sink for records, and what passes through them.

`log:path#topic` is an embedded log, `memory:name#topic` a log in this process, and
`kafka://host:port,host:port/topic` a topic of a cluster.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeVar

from streams.errors import AddressError, LogMismatch, PartitionsAdded, StreamUnavailable

T = TypeVar("T")

Headers = tuple[tuple[str, bytes], ...]

UNKNOWN: Mapping[int, str] = {}
"""No record before any position is known."""


Client = Literal["kafka-python", "confluent"]
SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Everything about a cluster but its address.

    `timeout_s` bounds every call: a broker that has not answered by then is unavailable. Secrets are kept
    out of `repr`. Paths name PEM files.
    """

    client: Client = "kafka-python"
    security_protocol: SecurityProtocol = "PLAINTEXT"
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True
    timeout_s: float = 5.0
    client_id: str = "tripletd"


DEFAULT_TOPIC = "triplets"
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,200}")
_EXAMPLES = "use `log:clicks.log`, `log:dir/clicks.log#topic`, `memory:name` or `kafka://host:9092/topic`"
_KAFKA_PORT = 9092
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")
_BAD_TOPIC = "a topic is 1 to 200 letters, digits, dots, dashes or underscores"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a stream lives: scheme (`log`, `memory` or `kafka`), file path, name or brokers, and topic.

    The path of a Kafka address is `host:port[,host:port]`; `kafka` says how to reach it, None means as
    `KafkaSettings()` does.
    """

    scheme: str
    path: str
    topic: str = DEFAULT_TOPIC
    kafka: KafkaSettings | None = None

    def __str__(self) -> str:
        if self.scheme == "kafka":
            return f"kafka://{self.path}/{self.topic}"
        return f"{self.scheme}:{self.path}#{self.topic}"

    @property
    def settings(self) -> KafkaSettings:
        """How the cluster is reached."""
        return self.kafka or KafkaSettings()

    @property
    def holdout(self) -> Address:
        """The topic of whole impressions kept from training."""
        return replace(self, topic=self.topic + ".holdout")

    @property
    def dead(self) -> Address:
        """The topic of dead letters."""
        return replace(self, topic=self.topic + ".dead")

    @property
    def items(self) -> Address:
        """The topic of what is put into the serving catalog, or removed from it."""
        return replace(self, topic=self.topic + ".items")

    @property
    def raw(self) -> Address:
        """The topic of impressions and clicks as they came over HTTP, before `feed` joins them."""
        return replace(self, topic=self.topic + ".raw")

    @property
    def steps(self) -> Address:
        """The topic of applied steps. An embedded log keeps it in a file of its own next to the log, so that
        its writer never waits for a feed, and the file can be removed."""
        path = f"{self.path}.steps" if self.scheme == "log" else self.path
        return replace(self, path=path, topic=self.topic + ".steps")


def parse_address(text: str) -> Address:
    """Read an address; raises AddressError naming the text and what is wrong with it."""
    scheme, colon, rest = text.partition(":")
    if scheme == "kafka":
        return _parse_kafka(text, rest)
    if not colon or scheme not in ("log", "memory"):
        raise AddressError(f"{text!r} is not a stream address: {_EXAMPLES}")
    path, mark, topic = rest.partition("#")
    if not path or "\0" in path:
        raise AddressError(f"{text!r} names no {'file' if scheme == 'log' else 'log'}: {_EXAMPLES}")
    if mark and not _TOPIC.fullmatch(topic):
        raise AddressError(f"{text!r}: {_BAD_TOPIC}")
    return Address(scheme, path, topic if mark else DEFAULT_TOPIC)


def _parse_kafka(text: str, rest: str) -> Address:
    if not rest.startswith("//"):
        raise AddressError("a Kafka address begins with kafka://: use `kafka://host:9092/topic`")
    if "@" in rest:  # the text is not repeated: it may hold a password
        raise AddressError(
            "a Kafka address holds no user and no password: use `kafka://host:9092/topic` and give them "
            "in the table [stream.kafka] of the configuration"
        )
    brokers, _, topic = rest[2:].partition("/")
    path = ",".join(_broker(text, one) for one in brokers.split(","))
    topic = topic or DEFAULT_TOPIC
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise AddressError(f"{text!r}: {_BAD_TOPIC}, and not only one or two dots")
    return Address("kafka", path, topic)


def _broker(text: str, broker: str) -> str:
    host, port = broker, str(_KAFKA_PORT)
    if broker.count(":") == 1 or "]:" in broker:
        host, _, port = broker.rpartition(":")
    if not _HOST.fullmatch(host):
        raise AddressError(f"{text!r}: {broker!r} is no host: use `kafka://host:9092/topic`")
    if not (port.isascii() and port.isdecimal() and 1 <= int(port) <= 65535):
        raise AddressError(f"{text!r}: {port!r} is no port, which is 1 to 65535")
    return f"{host}:{int(port)}"


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Next records of one partition, as columns of equal length; offsets ascend, timestamps are in ms.

    `damaged` is None, but for a stretch of the log that stays unreadable however often it is fetched. It then
    names that stretch, and the batch has one entry: the stretch's last offset, with no value. `kept`: the
    value of a single record that can be read and that nobody is to touch; `damaged` then says why.
    """

    partition: int
    offsets: list[int]
    timestamps: list[int]
    values: list[bytes | None]
    keys: list[bytes | None]
    headers: list[Headers]
    damaged: str | None = None
    kept: bytes | None = None

    def __len__(self) -> int:
        return len(self.offsets)


AnyBatch = TypeVar("AnyBatch", bound=RecordBatch)


def cut(batch: AnyBatch, start: int, stop: int) -> AnyBatch:
    """Entries start..stop-1 of a batch; the batch itself when that is all of it."""
    if start == 0 and stop == len(batch):
        return batch
    fields = ("offsets", "timestamps", "values", "keys", "headers")
    return replace(batch, **{name: getattr(batch, name)[start:stop] for name in fields})


@dataclass(frozen=True, slots=True)
class OutRecord:
    """A record to be written.

    Its partition is `partition`, else the stable hash of `key`, else 0. `timestamp` is in ms since
    the epoch; None means the time of writing. The log has the last word: an embedded one takes no time that
    is still to come, and a Kafka topic of `LogAppendTime` writes the broker's own.
    """

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Headers = ()


NO_TOPIC_IDS = ("", "None", "00000000-0000-0000-0000-000000000000")
"""What stands for the id of a topic on a broker that gives topics none."""


@dataclass(frozen=True)
class TopicIdentity:
    """Which log and which topic this really is: a re-created topic has another `topic_id`."""

    log_id: str
    topic: str
    topic_id: str
    partitions: int

    def grew_from(self, before: TopicIdentity) -> bool:
        """Whether this is the same topic as before with partitions added since. False where its id is not
        known: another topic of the same name would look the same.
        """
        same = (self.log_id, self.topic, self.topic_id) == (before.log_id, before.topic, before.topic_id)
        return same and self.topic_id not in NO_TOPIC_IDS and self.partitions > before.partitions


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Records of one partition that are written and cannot be read yet: a transaction is open.

    first: offset of the first record of the oldest open transaction; no reader is given any record from there
    on, not even of other writers. end: one past the newest record.
    """

    first: int
    end: int


class Source(Protocol):
    """Reads one topic. One thread at a time; may be used from another thread than its maker's.

    Calls that need the storage raise StreamUnavailable when it does not answer in time; calling again goes
    on exactly where it stood.
    """

    def identity(self) -> TopicIdentity:
        """Which log and topic this is."""

    def assign(self, positions: Mapping[int, int], known: Mapping[int, str] = UNKNOWN) -> None:
        """Read these partitions from these next offsets, replacing any earlier assignment.

        A position is the offset of the next record wanted: one past the last record applied. `known` has the
        sha256 (hex) of that last record's value, per partition where there is one: a log in which another
        record can take its place is then watched from the beginning, not only from the first poll on.
        Raises OffsetExpired, OffsetAhead, PartitionMissing or LogMismatch; the earlier assignment then stays.
        """

    def poll(self, max_records: int, timeout_s: float) -> RecordBatch | None:
        """Up to `max_records` next records of one partition, or None after `timeout_s` without any.

        Assigned partitions take turns, so that none starves. Raises OffsetExpired when retention
        overtook the position, LogMismatch when the topic was removed or re-created meanwhile.
        """

    def reached(self) -> dict[int, int]:
        """Per assigned partition: the offset below which everything there is was handed out.

        It passes offsets that hold no record (transaction markers, compaction), so it is what to compare
        with an end; one past the last record polled may never get there.
        """

    def bounds(self) -> dict[int, tuple[int, int]]:
        """Per partition: the earliest offset still there, and the end, one past the newest to be read."""

    def held_back(self) -> dict[int, HeldBack]:
        """What an open transaction holds back, of the partitions where one does; it lies past their ends."""

    def offsets_at(self, ts_ms: int) -> dict[int, int]:
        """Per partition: the first offset whose timestamp is >= `ts_ms`, else the end."""

    def commit(self, positions: Mapping[int, int], note: str = "") -> None:
        """Note positions for lag dashboards; nothing ever resumes from them. `note`: kept with them."""

    def committed(self) -> dict[int, int]:
        """The positions last noted by anybody, for lag dashboards."""

    def note(self) -> str:
        """The note last kept with the positions; "" for none."""

    def close(self) -> None:
        """Release everything; may be called twice."""


class Sink(Protocol):
    """Writes to one topic. One thread at a time."""

    @property
    def max_record_bytes(self) -> int:
        """The most bytes of one record: key, value and headers together."""

    def identity(self) -> TopicIdentity:
        """Which log and topic this is."""

    def send(self, records: Sequence[OutRecord]) -> list[tuple[int, int]]:
        """Write all records; when it returns they are durable.

        Comes back with (partition, offset) per record. Raises RecordRefused, PartitionMissing,
        LogMismatch or StreamUnavailable; nothing was written then. One exception: StreamUnavailable from a
        broker means in doubt. Some records may have been written, and sending all again may repeat them:
        learning drops a repeated event by its id, and a dead letter may be there twice.
        """

    def close(self) -> None:
        """Release everything; may be called twice."""


WHOLE_RECORDS = 2000
WHOLE_SECONDS, LOOK_SECONDS = 5.0, 0.2
"""How long a topic that is read to its end may be silent before that, and between two looks where a reader
is: offsets that hold no record are passed without a word."""


def next_before(
    source: Source, ends: Mapping[int, int], name: object, most: int = WHOLE_RECORDS
) -> RecordBatch | None:
    """The next batch of an assigned source, None once nothing is left below the ends.

    Offsets without a record (ends of transactions, what was aborted or compacted) count as read. Raises
    StreamUnavailable, naming the topic, where it falls silent before that.
    """
    silent_at = time.monotonic() + WHOLE_SECONDS
    while any(source.reached()[partition] < end for partition, end in ends.items()):
        if time.monotonic() > silent_at:
            raise StreamUnavailable(f"{name}: no answer for {WHOLE_SECONDS:g} s; ask again")
        if (batch := source.poll(most, LOOK_SECONDS)) is not None:
            return batch
    return None


def whole_topic(source: Source, bounds: Mapping[int, tuple[int, int]], name: object) -> Iterator[RecordBatch]:
    """Every batch of a topic within its bounds; the last ones may hold records that came since. Raises
    StreamUnavailable, naming the topic, where it falls silent."""
    source.assign({partition: start for partition, (start, _) in bounds.items()})
    ends = {partition: end for partition, (_, end) in bounds.items()}
    while (batch := next_before(source, ends, name)) is not None:
        yield batch


class GrowingSource:
    """A source that is opened again when partitions are added to its topic, and continues where it stood.

    `identity` then has the new number of partitions. They are read once they are assigned: the caller that
    assigned the others compares.
    """

    def __init__(self, opening: Callable[[], Source]) -> None:
        self._opening = opening
        self._source = opening()
        self._is_assigned = False

    def identity(self) -> TopicIdentity:
        """See `Source`."""
        return self._source.identity()

    def assign(self, positions: Mapping[int, int], known: Mapping[int, str] = UNKNOWN) -> None:
        """See `Source`."""
        self._ask(lambda source: source.assign(positions, known), reassign=False)
        self._is_assigned = True

    def poll(self, max_records: int, timeout_s: float) -> RecordBatch | None:
        """See `Source`."""
        return self._ask(lambda source: source.poll(max_records, timeout_s))

    def reached(self) -> dict[int, int]:
        """See `Source`."""
        return self._source.reached()

    def bounds(self) -> dict[int, tuple[int, int]]:
        """See `Source`."""
        return self._ask(lambda source: source.bounds())

    def held_back(self) -> dict[int, HeldBack]:
        """See `Source`."""
        return self._ask(lambda source: source.held_back())

    def offsets_at(self, ts_ms: int) -> dict[int, int]:
        """See `Source`."""
        return self._ask(lambda source: source.offsets_at(ts_ms))

    def commit(self, positions: Mapping[int, int], note: str = "") -> None:
        """See `Source`."""
        if any(partition >= self.identity().partitions for partition in positions):
            self._open_again()  # its callers have read them already
        self._ask(lambda source: source.commit(positions, note))

    def committed(self) -> dict[int, int]:
        """See `Source`."""
        return self._ask(lambda source: source.committed())

    def note(self) -> str:
        """See `Source`."""
        return self._ask(lambda source: source.note())

    def close(self) -> None:
        """See `Source`."""
        self._source.close()

    def _ask(self, question: Callable[[Source], T], reassign: bool = True) -> T:
        while True:
            try:
                return question(self._source)
            except PartitionsAdded:
                self._open_again(reassign)

    def _open_again(self, reassign: bool = True) -> None:
        """Raises LogMismatch unless it is the same topic with as many partitions or more."""
        before = self._source
        source = self._opening()
        try:
            check_grown(before.identity(), source.identity())
            if reassign and self._is_assigned:
                source.assign(before.reached())
        except BaseException:
            source.close()
            raise
        self._source = source
        before.close()


def check_grown(before: TopicIdentity, now: TopicIdentity) -> None:
    """Raise LogMismatch unless both are the same topic, with partitions added in between or not."""
    if now != before and not now.grew_from(before):
        raise LogMismatch(
            f"{now.topic}: the topic was re-created or changed since the start (it was {before}, now it is "
            f"{now}); start again"
        )


SHARE = 0.05
"""Of the time for which nothing came: what comes then is found later by no more than that."""


class Quiet:
    """Rests of a loop that looks for news: `least_s` each after some came, `most_s` after a long silence."""

    def __init__(self, least_s: float, most_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._least_s, self._most_s, self._clock = least_s, most_s, clock
        self._since = clock()

    def broken(self) -> None:
        """Start the silence again: something came."""
        self._since = self._clock()

    def rest_s(self) -> float:
        """Seconds to the next look."""
        return min(self._most_s, max(self._least_s, SHARE * (self._clock() - self._since)))
