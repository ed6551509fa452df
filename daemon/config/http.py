"""[http] of the configuration: where metrics, health and answers are served."""

from __future__ import annotations

from itertools import combinations

from pydantic import Field, SecretStr, field_validator, model_validator

from daemon.config.section import Section
from daemon.config.types import Port

ROLE_PORTS = ("learn_port", "validate_port", "serve_port")
"""The key of each role's port, in the order in which the roles are told of."""
LEAST_TOKEN = 16
"""Characters of the shortest token that is taken: a shorter one can be guessed."""


class HttpConfig(Section):
    """[http]: metrics and health of every role, and the answers of serve; one port per process."""

    host: str = Field("127.0.0.1", min_length=1, description="address to bind")
    learn_port: Port = Field(9101, description="port of learn; 0 any free port, printed")
    validate_port: Port = Field(9102, description="port of validate; 0 any free port, printed")
    serve_port: Port = Field(9103, description="port of serve; 0 any free port, printed")
    token: SecretStr = Field(SecretStr(""), description="bearer token of what changes the served version")

    @model_validator(mode="after")
    def _a_port_each(self) -> HttpConfig:
        for one, other in combinations(ROLE_PORTS, 2):
            port: int = getattr(self, one)
            if port == getattr(self, other) != 0:
                raise ValueError(f"{one} and {other} are both {port}; give each its own, or 0 for a free one")
        return self

    @field_validator("token")
    @classmethod
    def _a_token_worth_it(cls, secret: SecretStr) -> SecretStr:
        token = secret.get_secret_value()
        plain = token.isascii() and token.isprintable() and " " not in token
        if token and (len(token) < LEAST_TOKEN or not plain):
            raise ValueError(f"expected at least {LEAST_TOKEN} printable ASCII characters without a space")
        return secret
