"""[embeddings]: the program that makes vectors of texts, for /v1/embeddings and /v1/rerank."""

from __future__ import annotations

import os
import re

from pydantic import Field, field_validator

from daemon.config.values import Bytes, HttpUrl, PositiveSeconds, Section
from daemon.exits import EX_CONFIG, UserError

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[^@\s]{1,200}")


class EmbeddingsConfig(Section):
    """[embeddings]: texts to vectors by a program of yours, with queries folded."""

    upstream: HttpUrl = Field(
        "",
        description="base URL of OpenAI's shape, such as https://api.openai.com/v1: /v1/embeddings and"
        " /v1/rerank send texts there; empty: both are off",
    )
    key_env: str = Field(
        "", description="name of the environment variable that holds the key of the upstream; empty: no key"
    )
    models: dict[str, str] = Field(
        default_factory=dict,
        description="name -> the upstream's model, so that NAME-query and NAME-doc can be asked for; empty:"
        " the upstream's own names",
    )
    timeout: PositiveSeconds = Field(30.0, description="longest time for an answer of the upstream")
    connections: int = Field(16, ge=1, le=1000, description="most requests to the upstream at once")
    answer: Bytes = Field(32 << 20, description="largest answer of the upstream")

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
