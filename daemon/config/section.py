"""What every section of the configuration has in common."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, SecretStr, field_validator


class Section(BaseModel):
    """A frozen table of the file; unknown keys and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @field_validator("*")
    @classmethod
    def _no_nul(cls, value: Any) -> Any:
        text = value.get_secret_value() if isinstance(value, SecretStr) else value
        if isinstance(text, str) and "\0" in text:  # no path, host or name can hold one
            raise ValueError("holds a NUL character; remove it")
        return value
