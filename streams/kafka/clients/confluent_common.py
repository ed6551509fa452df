"""What the consumer and the producer of confluent-kafka share: configuration, errors, a close that ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from streams.address import Address
from streams.errors import RecordRefused, StreamError, StreamRefused, StreamUnavailable
from streams.kafka.clients.protocol import CorruptBatch, OutOfRange
from streams.kafka.connect import milliseconds, settings_of
from streams.kafka.faults import missing

Client = TypeVar("Client")
Plain = str | int | float | bool
CLOSE_SECONDS = 2.0
_SILENT = 0  # syslog's "emergency": nothing goes to stderr, errors come to us as values

_DAMAGED = frozenset(
    (
        KafkaError._BAD_MSG,
        KafkaError._BAD_COMPRESSION,
        KafkaError._UNDERFLOW,
        KafkaError._NOT_IMPLEMENTED,
        KafkaError.INVALID_MSG,
    )
)
_NO_SUCH_OFFSET = frozenset(
    (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION)
)
_NO_SUCH_TOPIC = frozenset((KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC))
NOT_ALLOWED = frozenset(
    (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    )
)
_NOT_TAKEN = frozenset(
    (
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_MSG,
    )
)


def configuration(address: Address) -> dict[str, Plain]:
    """Settings in librdkafka's names; what is not set stays librdkafka's default."""
    settings = settings_of(address)
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
        group = settings_of(address).client_id
        return StreamRefused(
            f"{address}: no permission for the group {group!r}, without which confluent reads nothing: "
            "grant READ on it"
        )
    if code in NOT_ALLOWED:
        return StreamRefused(f"{address}: no permission to read: grant DESCRIBE and READ on the topic")
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
            f"{address}: no permission to write: grant DESCRIBE and WRITE on the topic, "
            "and IDEMPOTENT_WRITE on the cluster"
        )
    if code in _NO_SUCH_TOPIC:
        return missing(address)
    return StreamUnavailable(f"{address}: {error.str()}; perhaps some records were written")


def ends_within(call: Callable[[], object], seconds: float = CLOSE_SECONDS) -> bool:
    """Run `call` in a thread that may be left behind; True when it ended in time."""
    thread = threading.Thread(target=call, name="tripletd-kafka-close", daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()
