"""Addresses of streams, and how to reach a Kafka cluster.

`log:path#topic` is an embedded log, `memory:name#topic` a log in this process, and
`kafka://host:port,host:port/topic` a topic of a cluster.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Literal

from streams.errors import AddressError

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
        """The topic of applied steps. An embedded log keeps it in a file of its own beside the log, so that
        who writes it never waits for who feeds, and the file can be removed."""
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
