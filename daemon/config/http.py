"""[http] of the configuration: where metrics, health and answers are served."""

from __future__ import annotations

import re
from itertools import combinations

from pydantic import Field, SecretStr, field_validator, model_validator

from daemon.config.section import Section
from daemon.config.types import Names, Port

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
