"""Settings as the text of a TOML file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any


def toml_table(name: str, keys: Mapping[str, Any], note: str = "") -> list[str]:
    """The lines of a table: its header, which a comment may follow, and its keys."""
    lines = (f"{toml_key(key)} = {toml_value(value)}" for key, value in keys.items())
    return [f"[{name}]{note and f'  # {note}'}", *lines]


def toml_value(value: Any) -> str:
    """A value; JSON has the same texts, numbers and booleans."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{toml_key(key)} = {toml_value(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False, default=str)


def toml_key(name: str) -> str:
    """A key, in quotes where it needs them."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_value(name)
