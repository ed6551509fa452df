"""Clients of kafka-python, made with the settings of an address and given up in time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from streams.address import Address
from streams.kafka import message_classes as _message_classes  # noqa: F401  before any thread asks
from streams.kafka.answering import answering
from streams.kafka.bounded import call_within
from streams.kafka.settings import KafkaSettings

Client = TypeVar("Client")

_METADATA_MS = 3000
"""How often leaders and brokers are asked for: a frozen one's successor is found this soon."""

_BACKOFF_MS = 500
"""Longest pause between two attempts to connect: a broker that comes back is found soon."""

# Errors are raised; what the client says beside them is not for users, and its debug lines hold passwords.
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
