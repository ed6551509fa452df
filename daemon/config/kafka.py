"""[stream.kafka] of the configuration: how to reach a Kafka cluster and who we are there."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

from pydantic import Field, SecretStr

from daemon.config.section import Section
from streams.address import KafkaSettings


class KafkaConfig(Section):
    """[stream.kafka]: client, encryption, authentication. Passwords are never shown."""

    client: Literal["kafka-python", "confluent"] = Field(
        "kafka-python", description="library that reads and writes"
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="encryption (SSL) and authentication (SASL) of the listener"
    )
    sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "", description="how the user is authenticated"
    )
    sasl_username: str = Field("", description="user of the sasl_mechanism")
    sasl_password: SecretStr = Field(SecretStr(""), description="the user's password")
    ssl_cafile: str = Field("", description="PEM file of the authorities to trust; empty: the system's")
    ssl_certfile: str = Field("", description="PEM file of our own certificate")
    ssl_keyfile: str = Field("", description="PEM file of our certificate's key")
    ssl_key_password: SecretStr = Field(SecretStr(""), description="password of ssl_keyfile")
    ssl_check_hostname: bool = Field(True, description="the broker's certificate must name its host")
    timeout_s: float = Field(
        5.0, ge=0.5, le=300, allow_inf_nan=False, description="longest wait for a broker's answer, seconds"
    )
    client_id: str = Field("tripletd", min_length=1, max_length=200, description="our name in broker logs")

    def problems(self) -> list[str]:
        """What does not fit together, a sentence each; for an address that these keys are used with."""
        problems = [*self._sasl_problems(), *self._ssl_problems()]
        if self.client == "confluent" and find_spec("confluent_kafka") is None:
            problems.append('client "confluent" is not installed; pip install "tripletd[confluent]"')
        return problems

    def _sasl_problems(self) -> list[str]:
        sasl = self.security_protocol.startswith("SASL_")
        if not sasl:
            given = ("sasl_mechanism", "sasl_username", "sasl_password")
            idle = [name for name in given if _is_set(getattr(self, name))]
            needed = "SASL_SSL" if self.security_protocol == "SSL" else "SASL_SSL or SASL_PLAINTEXT"
            return [f"{_listed(idle)} without SASL; set security_protocol to {needed}"] if idle else []
        if not self.sasl_mechanism:
            return [f"{self.security_protocol} needs sasl_mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"]
        missing = [name for name in ("sasl_username", "sasl_password") if not _is_set(getattr(self, name))]
        if not missing:
            return []
        return [
            f"{self.sasl_mechanism} needs {_listed(missing)}; give the password in "
            "TRIPLETD_STREAM__KAFKA__SASL_PASSWORD, or the path of its file in the same name with _FILE"
        ]

    def _ssl_problems(self) -> list[str]:
        problems = []
        given = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_key_password")
        idle = [name for name in given if _is_set(getattr(self, name))]
        if idle and not self.security_protocol.endswith("SSL"):
            needed = "SASL_SSL" if self.security_protocol == "SASL_PLAINTEXT" else "SSL or SASL_SSL"
            return [
                f"{_listed(idle)} with {self.security_protocol}, which encrypts nothing; "
                f"set security_protocol to {needed}"
            ]
        if self.ssl_keyfile and not self.ssl_certfile:
            problems.append("ssl_keyfile without ssl_certfile, the certificate it belongs to")
        if _is_set(self.ssl_key_password) and not (self.ssl_keyfile or self.ssl_certfile):
            problems.append("ssl_key_password without ssl_keyfile, the file it opens")
        return problems

    def to_settings(self) -> KafkaSettings:
        """The same for `streams`; an empty text is None there."""
        return KafkaSettings(
            client=self.client,
            security_protocol=self.security_protocol,
            sasl_mechanism=self.sasl_mechanism or None,
            sasl_username=self.sasl_username or None,
            sasl_password=self.sasl_password.get_secret_value() or None,
            ssl_cafile=self.ssl_cafile or None,
            ssl_certfile=self.ssl_certfile or None,
            ssl_keyfile=self.ssl_keyfile or None,
            ssl_key_password=self.ssl_key_password.get_secret_value() or None,
            ssl_check_hostname=self.ssl_check_hostname,
            timeout_s=self.timeout_s,
            client_id=self.client_id,
        )


def _is_set(value: str | SecretStr) -> bool:
    return bool(value.get_secret_value() if isinstance(value, SecretStr) else value)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
