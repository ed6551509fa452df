"""Clients of kafka-python: made with the settings of an address, given up in time, their errors in our
words.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, TypeVar

from kafka import errors

from streams.errors import RecordRefused, StreamError, StreamRefused, StreamUnavailable, TopicMissing
from streams.kafka.probe import answering
from streams.source import Address

T = TypeVar("T")


def attempt(work: Callable[[], T]) -> Future[T]:
    """`work()` in a thread of its own, which ends when `work` does; callers may wait in slices."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as problem:  # noqa: BLE001 (raised again in the thread that waits)
            future.set_exception(problem)

    threading.Thread(target=run, name="kafka-call", daemon=True).start()
    return future


def abandon(attempted: Future[T], discard: Callable[[T], object]) -> None:
    """Nobody waits any more: a result goes to `discard`, now or when it comes."""
    attempted.add_done_callback(lambda done: done.exception() or discard(done.result()))


def call_within(timeout_s: float, work: Callable[[], T], discard: Callable[[T], object] | None = None) -> T:
    """What `work()` returns or raises; TimeoutError after `timeout_s`, a later result goes to `discard`."""
    attempted = attempt(work)
    if not wait([attempted], timeout_s).done:
        if discard is not None:
            abandon(attempted, discard)
        raise TimeoutError(f"no answer within {timeout_s:.1f} s")
    return attempted.result()


Client = TypeVar("Client")

_METADATA_MS = 3000
"""How often leaders and brokers are asked for: a frozen one's successor is found this soon."""

_BACKOFF_MS = 500
"""Longest pause between two attempts to connect: a broker that comes back is found soon."""

# Errors are raised; what else the client says is not for users, and its debug lines hold passwords.
logging.getLogger("kafka").addHandler(logging.NullHandler())
logging.getLogger("kafka").setLevel(logging.INFO)


def client_options(address: Address) -> dict[str, Any]:
    """What every client of kafka-python is given: brokers, security, time limits."""
    settings = address.settings
    limit = milliseconds(settings.timeout_s)
    return {
        "bootstrap_servers": answering(address),
        "client_id": settings.client_id,
        "security_protocol": settings.security_protocol,
        "sasl_mechanism": settings.sasl_mechanism,
        "sasl_plain_username": settings.sasl_username,
        "sasl_plain_password": settings.sasl_password,
        "ssl_cafile": settings.ssl_cafile,
        "ssl_certfile": settings.ssl_certfile,
        "ssl_keyfile": settings.ssl_keyfile,
        "ssl_password": settings.ssl_key_password,
        "ssl_check_hostname": settings.ssl_check_hostname,
        "bootstrap_timeout_ms": limit,
        "request_timeout_ms": limit,
        "metadata_max_age_ms": _METADATA_MS,
        "reconnect_backoff_max_ms": _BACKOFF_MS,
    }


def milliseconds(seconds: float) -> int:
    """Seconds as whole milliseconds, at least one."""
    return max(1, round(seconds * 1000))


def open_client(kind: Callable[..., Client], options: dict[str, Any], timeout_s: float) -> tuple[Client, Any]:
    """`kind(**options)` and the network client it is made around, within `timeout_s`.

    Raises TimeoutError, or what the constructor raises.

    The constructors of kafka-python start a thread and open sockets before they bootstrap, and leave both
    behind when that fails; the network client is closed here.
    """
    networks: list[Any] = []
    make_network = kind.DEFAULT_CONFIG["kafka_client"]  # type: ignore[attr-defined]

    def keep(**configs: Any) -> Any:
        networks.append(network := make_network(**configs))
        return network

    def construct() -> Client:
        try:
            return kind(**options, kafka_client=keep)
        except BaseException:
            for network in networks:
                network.close()
            raise

    try:
        return call_within(timeout_s, construct, close_quietly), networks[-1]
    except TimeoutError:
        for network in networks:
            close_aside(network)
        raise


def close_aside(client: Any) -> None:
    """Close in a thread of its own: it may have to wait for a name server."""
    threading.Thread(target=close_quietly, args=(client,), name="kafka-close", daemon=True).start()


def close_quietly(client: Any, **options: Any) -> None:
    """Close a client that may be broken."""
    with suppress(Exception):  # it is thrown away; there is nothing to be done about it
        client.close(**options)


_LOGIN = (
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedSaslMechanismError,
    errors.IllegalSaslStateError,
    errors.SecurityDisabledError,
)
_RECORD = (
    errors.MessageSizeTooLargeError,
    errors.RecordListTooLargeError,
    errors.InvalidTimestampError,
    errors.InvalidRecordError,
)
_SETTING = (
    errors.PolicyViolationError,
    errors.InvalidReplicationFactorError,
    errors.InvalidConfigurationError,
    errors.InvalidPartitionsError,
    errors.InvalidTopicError,
    errors.TopicDeletionDisabledError,
)
_GRANT = "no permission for the "
_REFUSED: dict[Any, str] = {
    errors.TopicAuthorizationFailedError: _GRANT + "topic: grant READ to read it, WRITE to write to it",
    errors.GroupAuthorizationFailedError: _GRANT
    + "group named like client_id, for noted positions: grant READ",
    errors.ClusterAuthorizationFailedError: _GRANT
    + "cluster: grant IDEMPOTENT_WRITE, and CREATE for new topics",
    errors.AuthorizationError: "no permission: {}",
    _LOGIN: "the broker refuses the login: {}",
    _SETTING: "{}",
}
"""Why we are not let in, the first kind that fits; {}: the client's own words."""


def stream_error(error: BaseException, address: Address) -> StreamError:
    """The stream's error for one of the client's; anything unknown may pass by itself: StreamUnavailable."""
    if isinstance(error, StreamError):
        return error
    if isinstance(error, errors.UnknownTopicOrPartitionError):
        return missing(address)
    if isinstance(error, _RECORD):
        return RecordRefused(f"{address}: the broker takes no such record: {_words(error)}")
    for kinds, refused in _REFUSED.items():
        if isinstance(error, kinds):
            return StreamRefused(f"{address}: {refused.format(_words(error))}")
    return StreamUnavailable(
        f"{address}: {_words(error)}; see that the broker runs and can be reached from here"
    )


def missing(address: Address) -> TopicMissing:
    """There is no such topic."""
    return TopicMissing(
        f"{address}: there is no such topic; create it with `tripletd topics create`, or correct the address"
    )


def _words(error: BaseException) -> str:
    text = " ".join(str(error).split())
    name = type(error).__name__
    text = text if text.startswith(name) else f"{name}: {text}"
    return text.rstrip(": ")[:300]
