"""How to reach a Kafka cluster: client, security, time limit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

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
