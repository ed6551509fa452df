"""[steps], [serve] and [http]: what serve follows and answers with, and where every role listens."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from daemon.config.values import (
    Bytes,
    Names,
    OptionalBytes,
    OptionalSeconds,
    Port,
    PositiveSeconds,
    Section,
)

ROLE_PORTS = ("learn_port", "validate_port", "serve_port")
"""The key of each role's port, in the order in which the roles are told of."""
_HOST_NAME = re.compile(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*")
LEAST_TOKEN = 16
"""Characters of the shortest token that is taken: a shorter one can be guessed."""


class HttpConfig(Section):
    """[http]: metrics and health of every role, and the answers of serve; one port per process."""

    host: str = Field("127.0.0.1", min_length=1, description="address to bind")
    learn_port: Port = Field(9101, description="port of learn; 0 any free port, printed")
    validate_port: Port = Field(9102, description="port of validate; 0 any free port, printed")
    serve_port: Port = Field(9103, description="port of serve; 0 any free port, printed")
    hosts: Names = Field(
        [], description="names under which serve may be asked, beside addresses and localhost"
    )
    token: SecretStr = Field(SecretStr(""), description="bearer token of what changes the served version")

    @model_validator(mode="after")
    def _a_port_each(self) -> HttpConfig:
        for one, other in combinations(ROLE_PORTS, 2):
            port: int = getattr(self, one)
            if port == getattr(self, other) != 0:
                raise ValueError(f"{one} and {other} are both {port}; give each its own, or 0 for a free one")
        return self

    @field_validator("hosts")
    @classmethod
    def _plain_names(cls, names: list[str]) -> list[str]:
        plain = [name.lower().removesuffix(".") for name in names]
        if not all(name == "*" or _HOST_NAME.fullmatch(name) for name in plain):
            raise ValueError(
                'expected names such as "shop.example.org" or "*.example.org", or "*", without a port'
            )
        return plain

    @field_validator("token")
    @classmethod
    def _a_token_worth_it(cls, secret: SecretStr) -> SecretStr:
        token = secret.get_secret_value()
        plain = token.isascii() and token.isprintable() and " " not in token
        if token and (len(token) < LEAST_TOKEN or not plain):
            raise ValueError(f"expected at least {LEAST_TOKEN} printable ASCII characters without a space")
        return secret


SHORTEST_CADENCE_S, LONGEST_CADENCE_S = 0.01, 10.0
_ALIAS = re.compile(r"[a-z][a-z0-9_-]{0,63}")


class StepsConfig(Section):
    """[steps]: the applied steps that the learner publishes, from which a replica follows it."""

    enabled: bool = Field(True, description="publish applied steps; false: replicas see whole versions alone")
    every: PositiveSeconds = Field(0.1, description="time between two segments, 10ms to 10s")
    max_rate: Bytes = Field(32 << 20, description="most bytes per second; more is left out, as a break")
    retention: OptionalSeconds = Field(3600.0, description="drop segments older than this; empty keeps all")
    retention_bytes: OptionalBytes = Field(
        1 << 30, description="drop the oldest segments above this size; most bytes between two versions"
    )

    @field_validator("every")
    @classmethod
    def _a_cadence(cls, seconds: float) -> float:
        if not SHORTEST_CADENCE_S <= seconds <= LONGEST_CADENCE_S:
            raise ValueError("expected a duration from 10ms to 10s")
        return seconds


class ServeConfig(Section):
    """[serve]: which versions are served, of which objects, and within which limits."""

    aliases: Names = Field(
        ["stable", "latest"], description="names of versions to follow; the first answers where none is named"
    )
    look_every: PositiveSeconds = Field(0.25, description="how often versions and verdicts are looked at")
    refine_every: PositiveSeconds = Field(
        1.0, description="how often the form of a followed version is computed anew"
    )
    refine_share: float = Field(
        0.25, gt=0, le=1, allow_inf_nan=False, description="most of one core that computing it may take"
    )
    catalog: str = Field("", description="objects at the start (.safetensors or .jsonl); empty: catalog.path")
    display: str = Field(
        "", description="what people see of an object (.jsonl: id, text, image); empty: none"
    )
    ann: Literal["off", "on"] = Field("off", description='approximate search; needs "tripletd[ann]"')
    ann_recall: float = Field(
        0.95, gt=0, le=1, allow_inf_nan=False, description="of the exact top 10, least; else exact"
    )
    shortlist: int = Field(
        1000, ge=1, le=1_000_000, description="oks, omks: objects scored per query, the nearest by cosine"
    )
    key_models: int = Field(
        64,
        ge=1,
        le=100_000,
        description="[keys]: most models ready to answer; others are made when asked",
    )
    k_max: int = Field(1000, ge=1, le=100_000, description="most results per query")
    batch_max: int = Field(256, ge=1, le=10_000, description="most queries per request")
    queue: int = Field(512, ge=1, le=100_000, description="most queries waiting; more are told to come again")
    connections: int = Field(512, ge=1, le=100_000, description="most open connections")
    body: Bytes = Field(4 << 20, description="largest body of a request")
    request_timeout: PositiveSeconds = Field(10.0, description="longest time for a request's header and body")

    @field_validator("aliases")
    @classmethod
    def _names(cls, names: list[str]) -> list[str]:
        if not names or len(set(names)) != len(names) or not all(_ALIAS.fullmatch(name) for name in names):
            raise ValueError('expected different names such as ["stable", "latest"]')
        if len(names) > 4:
            raise ValueError("expected at most 4 names: each takes two buffers of the size of W")
        return names
