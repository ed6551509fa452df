"""Clients of kafka-python: made with the settings of an address, given up in time, their errors in our
words.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from kafka import errors

from streams.errors import RecordRefused, StreamError, StreamRefused, StreamUnavailable, TopicMissing
from streams.kafka.probe import answering
from streams.source import Address, KafkaSettings

T = TypeVar("T")


class Attempt(Generic[T]):
    """`work()` in a thread of its own, which ends when `work` does; callers may wait in slices."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._discard: Callable[[T], object] | None = None
        self._value: T
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(work,), name="kafka-call", daemon=True)
        self._thread.start()

    def result(self, timeout_s: float) -> T:
        """What `work` returned or raised; TimeoutError when it is not done by then."""
        if not self._done.wait(timeout_s):
            raise TimeoutError(f"no answer within {timeout_s:.1f} s")
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._value

    def abandon(self, discard: Callable[[T], object]) -> None:
        """Nobody waits any more: a result goes to `discard`, now or when it comes."""
        with self._lock:
            self._discard = discard
            late = self._done.is_set()
        if late and self._error is None:
            discard(self._value)

    def _run(self, work: Callable[[], T]) -> None:
        try:
            self._value = work()
        except BaseException as problem:  # noqa: BLE001 (raised again in the thread that waits)
            self._error = problem
        with self._lock:
            self._done.set()
            discard = self._discard
        if discard is not None and self._error is None:
            discard(self._value)


def call_within(timeout_s: float, work: Callable[[], T], discard: Callable[[T], object]) -> T:
    """What `work()` returns or raises; TimeoutError after `timeout_s`, a later result goes to `discard`."""
    attempt = Attempt(work)
    try:
        return attempt.result(timeout_s)
    except TimeoutError:
        attempt.abandon(discard)
        raise


def ignore(_: Any) -> None:
    """For results that nobody has to clean up."""


Client = TypeVar("Client")

_METADATA_MS = 3000
"""How often leaders and brokers are asked for: a frozen one's successor is found this soon."""

_BACKOFF_MS = 500
"""Longest pause between two attempts to connect: a broker that comes back is found soon."""

# Errors are raised; what else the client says is not for users, and its debug lines hold passwords.
logging.getLogger("kafka").addHandler(logging.NullHandler())
logging.getLogger("kafka").setLevel(logging.INFO)


def settings_of(address: Address) -> KafkaSettings:
    """The settings of an address."""
    return address.kafka or KafkaSettings()


def client_options(address: Address) -> dict[str, Any]:
    """What every client of kafka-python is given: brokers, security, time limits."""
    settings = settings_of(address)
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


_PERMISSION = {
    errors.TopicAuthorizationFailedError: "the topic: grant READ to read it, WRITE to write to it",
    errors.GroupAuthorizationFailedError: "the group named like client_id, for noted positions: grant READ",
    errors.ClusterAuthorizationFailedError: "the cluster: grant IDEMPOTENT_WRITE, and CREATE for new topics",
}
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


def stream_error(error: BaseException, address: Address) -> StreamError:
    """The stream's error for one of the client's; anything unknown may pass by itself: StreamUnavailable."""
    if isinstance(error, StreamError):
        return error
    if isinstance(error, errors.UnknownTopicOrPartitionError):
        return missing(address)
    if isinstance(error, _RECORD):
        return RecordRefused(f"{address}: the broker takes no such record: {_words(error)}")
    refused = _refusal(error)
    if refused is not None:
        return StreamRefused(f"{address}: {refused}")
    return StreamUnavailable(
        f"{address}: {_words(error)}; see that the broker runs and can be reached from here"
    )


def _refusal(error: BaseException) -> str | None:
    """Why we are not let in, where that is what happened."""
    for kind, what in _PERMISSION.items():
        if isinstance(error, kind):
            return f"no permission for {what}"
    if isinstance(error, errors.AuthorizationError):
        return f"no permission: {_words(error)}"
    if isinstance(error, _LOGIN):
        return f"the broker refuses the login: {_words(error)}"
    return _words(error) if isinstance(error, _SETTING) else None


def missing(address: Address) -> TopicMissing:
    """There is no such topic."""
    return TopicMissing(
        f"{address}: there is no such topic; create it with `tripletd topics create`, or correct the address"
    )


def _words(error: BaseException) -> str:
    """Class and text of an error, on one line of bounded length."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    text = text if text.startswith(name) else f"{name}: {text}"
    return text.rstrip(": ")[:300]
