"""confluent-kafka (librdkafka): configuration, errors, a close that ends, and writing through it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streams.errors import RecordRefused, StreamError, StreamRefused, StreamUnavailable
from streams.kafka.clients.protocol import CorruptBatch, OutOfRange
from streams.kafka.connect import milliseconds, missing
from streams.source import Address, OutRecord

Client = TypeVar("Client")
Plain = str | int | float | bool
CLOSE_SECONDS = 2.0
_SILENT = 0  # syslog's "emergency": nothing goes to stderr, errors come to us as values

_DAMAGED = (
    KafkaError._BAD_MSG,
    KafkaError._BAD_COMPRESSION,
    KafkaError._UNDERFLOW,
    KafkaError._NOT_IMPLEMENTED,
    KafkaError.INVALID_MSG,
)
_NO_SUCH_OFFSET = KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION
_NO_SUCH_TOPIC = KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC
NOT_ALLOWED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
)
_NOT_TAKEN = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.INVALID_MSG,
)


def configuration(address: Address) -> dict[str, Plain]:
    """Settings in librdkafka's names; what is not set stays librdkafka's default."""
    settings = address.settings
    limit = max(1000, milliseconds(settings.timeout_s))
    given: dict[str, Plain | None] = {
        "bootstrap.servers": address.path,
        "client.id": settings.client_id,
        "log_level": _SILENT,
        "security.protocol": settings.security_protocol,
        "sasl.mechanism": settings.sasl_mechanism,
        "sasl.username": settings.sasl_username,
        "sasl.password": settings.sasl_password,
        "ssl.ca.location": settings.ssl_cafile,
        "ssl.certificate.location": settings.ssl_certfile,
        "ssl.key.location": settings.ssl_keyfile,
        "ssl.key.password": settings.ssl_key_password,
        "ssl.endpoint.identification.algorithm": "https" if settings.ssl_check_hostname else "none",
        # a broker that is there but frozen counts as gone after this long, not after a minute
        "socket.timeout.ms": limit,
        "socket.connection.setup.timeout.ms": limit,
        "api.version.request.timeout.ms": limit,
        "reconnect.backoff.max.ms": 1000,
        "topic.metadata.refresh.interval.ms": 30_000,
    }
    return {name: value for name, value in given.items() if value is not None}


def make(kind: Callable[[dict[str, Any]], Client], address: Address, own: dict[str, Any]) -> Client:
    """A client with the settings of the address and its own; StreamRefused for settings it cannot use."""
    try:
        return kind(configuration(address) | own)
    except KafkaException as problem:
        raise StreamRefused(f"{address}: {problem.args[0].str()}; correct [stream.kafka]") from problem


def reading_error(error: KafkaError, address: Address, partition: int, position: int) -> StreamError:
    """Ours for an error that came instead of the record at `position`."""
    code = error.code()
    if code in _DAMAGED:
        return CorruptBatch(f"{address}, partition {partition}, offset {position}: {error.str()}")
    if code in _NO_SUCH_OFFSET:
        return OutOfRange(f"{address}, partition {partition}: no offset {position} ({error.str()})")
    if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
        group = address.settings.client_id
        return StreamRefused(
            f"{address}: no permission for the group {group!r}, without which confluent reads nothing: "
            "grant READ on it"
        )
    if code in NOT_ALLOWED:
        return StreamRefused(f"{address}: no permission to read: grant READ on the topic")
    if code in _NO_SUCH_TOPIC:
        return missing(address)
    return StreamUnavailable(f"{address}, partition {partition}: {error.str()}")


def writing_error(error: KafkaError, address: Address) -> StreamError:
    """Ours for an error that came instead of an acknowledgement."""
    code = error.code()
    if code in _NOT_TAKEN:
        return RecordRefused(f"{address}: the broker takes no such record: {error.str()}")
    if code in NOT_ALLOWED:
        return StreamRefused(
            f"{address}: no permission to write: grant WRITE on the topic, "
            "and IDEMPOTENT_WRITE on the cluster"
        )
    if code in _NO_SUCH_TOPIC:
        return missing(address)
    return StreamUnavailable(f"{address}: {error.str()}; perhaps some records were written")


def ends_in_time(call: Callable[[], object]) -> bool:
    """Run `call` in a thread that may be left behind; True when it ended in time."""
    thread = threading.Thread(target=call, name="tripletd-kafka-close", daemon=True)
    thread.start()
    thread.join(CLOSE_SECONDS)
    return not thread.is_alive()


BATCH_BYTES = 256 << 10
OnDelivery = Callable[[KafkaError | None, Message], None]
_SLICE_SECONDS = 0.1  # between two of them Python hears signals


class ConfluentProducer:
    """`ProducerClient` by librdkafka: idempotent, acknowledged by every in-sync replica, in order."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._timeout_s = address.settings.timeout_s
        self._closed = False
        own: dict[str, object] = {
            "enable.idempotence": True,
            "batch.size": BATCH_BYTES,
            "message.max.bytes": 1_000_000_000,  # the broker's limit is the topic's own
            "message.timeout.ms": max(1000, milliseconds(self._timeout_s)),
            "allow.auto.create.topics": False,
        }
        self._producer = make(Producer, address, own)

    def send(self, placed: Sequence[tuple[int, OutRecord]]) -> list[int]:
        """Write records, each with its partition; comes back with their offsets once they are durable."""
        deadline = time.monotonic() + self._timeout_s
        offsets: list[int] = [-1] * len(placed)
        errors: list[KafkaError] = []

        def delivered(index: int, error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is None and offset is not None:
                offsets[index] = offset
            elif error is not None:
                errors.append(error)

        for index, (number, record) in enumerate(placed):
            self._queue(number, record, partial(delivered, index), deadline)
        while self._producer.flush(_SLICE_SECONDS) and not errors:
            self._in_time(deadline)
        if errors:
            raise writing_error(errors[0], self._address)
        return offsets

    def close(self) -> None:
        """Drop what is still queued, so that it is not written after the caller has written it again."""
        if not self._closed:
            self._closed = True
            self._producer.purge(blocking=False)
            ends_in_time(self._producer.close)

    def _queue(self, number: int, record: OutRecord, on_delivery: OnDelivery, deadline: float) -> None:
        while True:
            try:
                self._producer.produce(
                    self._address.topic,
                    record.value,
                    record.key,
                    number,
                    on_delivery=on_delivery,
                    timestamp=0 if record.timestamp is None else max(1, record.timestamp),  # 0 means now
                    headers=list(record.headers) or None,
                )
            except BufferError:
                self._producer.poll(_SLICE_SECONDS)
                self._in_time(deadline)
            except KafkaException as problem:
                raise writing_error(problem.args[0], self._address) from None
            else:
                return

    def _in_time(self, deadline: float) -> None:
        if time.monotonic() >= deadline:
            raise StreamUnavailable(
                f"{self._address}: not acknowledged within {self._timeout_s:g} s; "
                f"perhaps some records were written"
            )
