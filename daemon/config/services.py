"""[stream], [stream.kafka], [feed.follow.registry], [index] and [embeddings]: the services that are asked, a
log of events, a schema registry, a vector store and what makes vectors of texts."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from daemon.config import values
from daemon.exits import EX_CONFIG, UserError
from streams.source import Address, KafkaSettings, parse_address

if TYPE_CHECKING:
    from streams.feed.follow.registry import RegistrySettings


class KafkaConfig(values.Section):
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
    ssl_cafile: values.PathSetting = Field(
        "", description="PEM file of the authorities to trust; empty: the system's"
    )
    ssl_certfile: values.PathSetting = Field("", description="PEM file of our own certificate")
    ssl_keyfile: values.PathSetting = Field("", description="PEM file of our certificate's key")
    ssl_key_password: SecretStr = Field(SecretStr(""), description="password of ssl_keyfile")
    ssl_check_hostname: bool = Field(True, description="the broker's certificate must name its host")
    timeout_s: float = Field(5.0, ge=0.5, le=300, description="longest wait for a broker's answer, seconds")
    client_id: str = Field("tripletd", min_length=1, max_length=200, description="our name in broker logs")

    def problems(self) -> list[str]:
        """What does not fit together, a sentence each; for an address that these keys are used with."""
        problems = [*self._sasl_problems(), *self._ssl_problems()]
        if self.client == "confluent" and find_spec("confluent_kafka") is None:
            problems.append('client "confluent" is not installed; pip install "tripletd[confluent]"')
        return problems

    def _given(self, *names: str) -> list[str]:
        return [name for name in names if _plain(getattr(self, name))]

    def _sasl_problems(self) -> list[str]:
        sasl = self.security_protocol.startswith("SASL_")
        if not sasl:
            idle = self._given("sasl_mechanism", "sasl_username", "sasl_password")
            needed = "SASL_SSL" if self.security_protocol == "SSL" else "SASL_SSL or SASL_PLAINTEXT"
            return [f"{_listed(idle)} without SASL; set security_protocol to {needed}"] if idle else []
        if not self.sasl_mechanism:
            return [f"{self.security_protocol} needs sasl_mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"]
        missing = [name for name in ("sasl_username", "sasl_password") if not self._given(name)]
        if not missing:
            return []
        return [
            f"{self.sasl_mechanism} needs {_listed(missing)}; give the password in "
            "TRIPLETD_STREAM__KAFKA__SASL_PASSWORD, or the path of its file in the same name with _FILE"
        ]

    def _ssl_problems(self) -> list[str]:
        problems = []
        idle = self._given("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_key_password")
        if idle and not self.security_protocol.endswith("SSL"):
            needed = "SASL_SSL" if self.security_protocol == "SASL_PLAINTEXT" else "SSL or SASL_SSL"
            return [
                f"{_listed(idle)} with {self.security_protocol}, which encrypts nothing; "
                f"set security_protocol to {needed}"
            ]
        if self.ssl_keyfile and not self.ssl_certfile:
            problems.append("ssl_keyfile without ssl_certfile, the certificate it belongs to")
        if self._given("ssl_key_password") and not (self.ssl_keyfile or self.ssl_certfile):
            problems.append("ssl_key_password without ssl_keyfile, the file it opens")
        return problems

    def to_settings(self) -> KafkaSettings:
        """The same for `streams`; an empty text is left out."""
        given: dict[str, Any] = {name: _plain(value) for name, value in self if _plain(value) != ""}
        return KafkaSettings(**given)


def _plain(value: Any) -> Any:
    return value.get_secret_value() if isinstance(value, SecretStr) else value


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


CALLS_WITHIN_A_CALL = 6
"""How many answers of a broker one call to the stream may wait for, twice over."""


class StreamConfig(values.Section):
    """[stream]: where events come from."""

    address: values.StreamAddress = Field(
        "log:clicks.log", description="log:PATH, log:PATH#TOPIC or kafka://HOST:PORT/TOPIC"
    )
    partitions: int = Field(1, ge=1, le=4096, description="partitions of a topic that is created")
    poll_records: int = Field(4096, ge=1, le=1_000_000, description="most records per poll and kernel call")
    max_record_bytes: values.RecordBytes = Field(
        1 << 20, description="a larger training record is a dead letter; at most 1MiB"
    )
    max_future: values.PositiveSeconds = Field(
        86400.0, description="an event stamped further past its arrival in the log is a dead letter"
    )
    retention: values.OptionalSeconds = Field(
        None, description="drop learned records that arrived longer ago; empty keeps all"
    )
    retention_bytes: values.OptionalBytes = Field(
        None, description="drop the oldest learned records above this size per topic; empty keeps all"
    )
    pause_poison_share: float = Field(
        0.5, gt=0, le=1, description="pause above this share of dead letters; 1 never"
    )
    pause_poison_window: int = Field(
        10_000, ge=1, description="newest records whose share of dead letters counts"
    )
    stuck_after: values.PositiveSeconds = Field(
        60.0, description="a stream call or loop turn this long is a bug: stacks to stderr, exit 70"
    )
    kafka: KafkaConfig = values.table(KafkaConfig, "how a kafka:// address is reached")

    def problems(self) -> list[str]:
        """What does not fit together where a broker is reached; empty when all does."""
        problems = self.kafka.problems()
        needed = CALLS_WITHIN_A_CALL * self.kafka.timeout_s
        if self.stuck_after < needed:
            problems.append(
                f"timeout_s = {self.kafka.timeout_s:g} needs stream.stuck_after of at least {needed:g}s: "
                "else a slow broker is taken for a bug"
            )
        return problems

    def to_address(self) -> Address:
        """The stream to open, with how to reach it; raises AddressError where it cannot be read."""
        return self.reached(self.address)

    def reached(self, text: str) -> Address:
        """Any address, with how to reach it, as `to_address`."""
        address = parse_address(text)
        return replace(address, kafka=self.kafka.to_settings()) if address.scheme == "kafka" else address


class RegistryConfig(values.Section):
    """[feed.follow.registry]: the schema registry in which records name their schemas."""

    url: values.HttpUrl = Field(
        "",
        description="schema registry of Confluent's interface; empty: topics hold JSON. Avro needs"
        ' "tripletd[avro]", Protobuf "tripletd[protobuf]"',
    )
    user: str = Field("", description="of basic authentication; empty: the secret is a bearer token")
    secret: SecretStr = Field(SecretStr(""), description="password or token of the registry")
    cafile: values.PathSetting = Field(
        "", description="PEM file of the authorities to trust; empty: the system's"
    )
    timeout: values.PositiveSeconds = Field(5.0, description="longest wait for an answer of the registry")

    @model_validator(mode="after")
    def _goes_together(self) -> RegistryConfig:
        if (self.user or self.secret.get_secret_value() or self.cafile) and not self.url:
            raise ValueError("user, secret and cafile are of a registry, which url names")
        if self.cafile and not self.url.startswith("https://"):
            raise ValueError("cafile is of a registry over https://")
        return self

    def to_settings(self) -> RegistrySettings:
        """The same for `streams`."""
        from streams.feed.follow.registry import RegistrySettings

        secret = self.secret.get_secret_value()
        return RegistrySettings(self.url, self.user, secret, self.cafile, self.timeout)


class IndexConfig(values.Section):
    """[index]: the vector store that is already there, asked with what was learned."""

    store: Literal["", "pgvector", "qdrant", "elasticsearch", "opensearch"] = Field(
        "", description="where your vectors are; empty: /v1/similar searches the catalog itself"
    )
    address: str = Field(
        "", description="postgresql://USER@HOST/DATABASE, or http(s)://HOST:PORT; without a password"
    )
    user: str = Field("", description="elasticsearch, opensearch: of basic authentication; empty: an API key")
    secret: SecretStr = Field(SecretStr(""), description="password or API key of the store")
    collection: str = Field("", description="table, collection or index that holds the vectors")
    id: str = Field(
        "", description="column or field of objects' ids; empty: id of pgvector, else the store's own"
    )
    vector: str = Field(
        "", description="column, field or named vector; empty: embedding, of qdrant the unnamed one"
    )
    tags: str = Field(
        "", description="column (text[]), key or field that filter.tags is looked up in; empty: none"
    )
    mode: Literal["auto", "own", "folded", "rescored", "embedded"] = Field(
        "auto",
        description="what the store is asked: own, your ranking; folded, the learned one up to each object's"
        " norm; rescored, the learned one of the candidates; embedded, where it holds exported vectors; auto:"
        " rescored or folded where `tripletd index judge` holds it up, else own; with `version`, embedded"
        " where that is held up, else the catalog is searched",
    )
    version: int = Field(
        -1, ge=-1, description="embedded, auto: the version whose exported vectors it holds; -1: your own"
    )
    candidates: int = Field(
        200, ge=1, le=10_000, description="objects fetched per question, of which the best are answered"
    )
    width: int = Field(
        400,
        ge=0,
        le=10_000,
        description="how far an approximate search looks at least: hnsw.ef_search, hnsw_ef, num_candidates",
    )
    timeout: values.PositiveSeconds = Field(1.0, description="longest wait for the store")
    connections: int = Field(8, ge=1, le=256, description="most questions to the store at once")
    fallback: Literal["none", "catalog"] = Field(
        "none", description="while the store is away: none, answer 503; catalog, search the catalog itself"
    )
    recall: float = Field(
        0.95,
        gt=0,
        le=1,
        description="least share of the exact first 10 that the store should find; below it, a warning",
    )
    recall_every: values.OptionalSeconds = Field(600.0, description="how often that is measured; empty never")

    @property
    def holds_exported(self) -> bool:
        """Whether the store holds vectors that a version exported."""
        return self.version >= 0 and self.mode in ("auto", "embedded")

    @model_validator(mode="after")
    def _goes_together(self) -> IndexConfig:
        if not self.store:
            return self
        for name in ("address", "collection"):
            if not getattr(self, name):
                raise ValueError(f"store = {self.store!r} needs index.{name}")
        over_http = self.address.startswith(("http://", "https://"))
        if (self.store == "pgvector") == over_http:
            wanted = "postgresql://..." if self.store == "pgvector" else "http://... or https://..."
            raise ValueError(f"address: expected {wanted} for store = {self.store!r}")
        if self.mode == "embedded" and self.version < 0:
            raise ValueError("mode = 'embedded' needs index.version, whose vectors the store holds")
        return self


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[^@\s]{1,200}")


class EmbeddingsConfig(values.Section):
    """[embeddings]: texts to vectors by a program of yours or a model in a folder, with queries folded."""

    upstream: values.HttpUrl = Field(
        "",
        description="base URL of OpenAI's shape, such as https://api.openai.com/v1: /v1/embeddings and"
        " /v1/rerank send texts there; without it and `folder` both are off",
    )
    folder: values.PathSetting = Field(
        "",
        description="instead of an upstream, folder of a model of sentence-transformers in ONNX, which runs"
        ' in serve itself (pip install "tripletd[local]")',
    )
    threads: int = Field(2, ge=1, le=256, description="threads that the model of `folder` computes with")
    key_env: str = Field(
        "", description="name of the environment variable that holds the key of the upstream; empty: no key"
    )
    models: dict[str, str] = Field(
        default_factory=dict,
        description="name -> the model that embeds, so that NAME-query and NAME-doc can be asked for; empty:"
        " the upstream's own names, or that of `folder`",
    )
    timeout: values.PositiveSeconds = Field(
        30.0,
        description="longest time for an answer of the upstream, or for the texts of a request by `folder`",
    )
    connections: int = Field(16, ge=1, le=1000, description="most requests to the upstream at once")
    answer: values.Bytes = Field(32 << 20, description="largest answer of the upstream")

    @field_validator("key_env")
    @classmethod
    def _a_variable(cls, name: str) -> str:
        if name and not _VARIABLE.fullmatch(name):
            raise ValueError("expected the name of an environment variable, not the key itself")
        return name

    @field_validator("models")
    @classmethod
    def _plain_names(cls, models: dict[str, str]) -> dict[str, str]:
        for name, upstream in models.items():
            if not _NAME.fullmatch(name) or not upstream:
                raise ValueError(f"{name[:40]!r}: expected a name without @ and spaces, and a model's name")
        return models

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if not self.folder:
            return self
        if self.upstream:
            raise ValueError("upstream and folder are both set: texts go to one of them")
        for name, model in self.models.items():
            if model != Path(self.folder).name:
                raise ValueError(f"models: {name} names {model}, and the folder {Path(self.folder).name}")
        return self

    @property
    def names(self) -> dict[str, str]:
        """NAME -> the model that embeds; the folder's where nothing else is said."""
        return self.models or ({Path(self.folder).name: Path(self.folder).name} if self.folder else {})

    def key(self) -> str:
        """The key of the upstream, "" for none. Raises UserError where its variable is not set."""
        if not self.upstream or not self.key_env:
            return ""
        found = os.environ.get(self.key_env, "").strip()
        if not found or not found.isascii() or not found.isprintable():
            raise UserError(
                f"embeddings.key_env names {self.key_env}, which "
                + ("holds what no key does" if found else "is not set"),
                f"set {self.key_env} where serve is started, or leave key_env empty where no key is needed",
                EX_CONFIG,
            )
        return found
