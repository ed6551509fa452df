"""Values of the configuration: durations ("30s", "1h30m"), sizes ("64MiB"), lists, ports, addresses and
judgments; and the base class of every section.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Protocol

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, field_validator

from streams.limits import MAX_VALUE_BYTES

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_BYTES = {
    "B": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")

LONGEST_SECONDS = 100_000 * 86400.0
MOST_BYTES = 1_000_000 << 40
"""Both bounds keep every use (timers, 64-bit file offsets) from overflowing."""

DURATION_HELP = 'a duration such as "250ms", "30s", "5m", "1h30m", "7d"'
SIZE_HELP = 'a size such as "512KiB", "64MiB", "2GiB"'


def parse_duration(text: str) -> float:
    """Seconds of a duration such as "30s" or "1h30m". Raises ValueError when it is not one."""
    parts = list(_DURATION_PART.finditer(text))
    if not parts or "".join(part.group(0) for part in parts) != text:
        raise ValueError(f"expected {DURATION_HELP}")
    seconds = sum(float(part.group(1)) * _SECONDS[part.group(2)] for part in parts)
    if seconds > LONGEST_SECONDS:
        raise ValueError("expected a duration of at most 100,000 days")
    return seconds


def parse_size(text: str) -> int:
    """Bytes of a size such as "64MiB". Raises ValueError when it is not one."""
    match = _SIZE.fullmatch(text)
    if match is None or match.group(2) not in _BYTES:
        raise ValueError(f"expected {SIZE_HELP}")
    size = float(match.group(1)) * _BYTES[match.group(2)]
    if size > MOST_BYTES:
        raise ValueError("expected a size of at most 1,000,000 TiB")
    return int(size)


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


def _positive_duration(text: str) -> str:
    if parse_duration(text) <= 0:
        raise ValueError("expected a duration above zero")
    return text


def _optional_duration(text: str) -> str:
    return text if text == "" else _positive_duration(text)


def _size(text: str) -> str:
    if parse_size(text) <= 0:
        raise ValueError("expected a size above zero")
    return text


def _record_size(text: str) -> str:
    if parse_size(_size(text)) > MAX_VALUE_BYTES:
        raise ValueError("expected at most 1MiB: the format of events and impressions has no larger ones")
    return text


def _optional_size(text: str) -> str:
    return text if text == "" else _size(text)


def _training_topic(text: str) -> str:
    broker = text.startswith("kafka://")
    if broker and "@" in text:
        raise ValueError("an address holds no user and password; give them in [stream.kafka]")
    topic = text[len("kafka://") :].partition("/")[2] if broker else text.partition("#")[2]
    ending = topic.rpartition(".")[2]
    if ending != topic and ending in ("dead", "holdout", "steps", "items"):
        raise ValueError(f"names a topic that goes with another one; leave out .{ending}")
    return text


def _judgments(text: str) -> str:
    kind, _, path = text.partition(":")
    if text and (kind not in ("qrels", "labels") or not path):
        raise ValueError('expected "qrels:PATH" (TREC, 4 columns), "labels:PATH" (id TAB label) or ""')
    return text


def _split(value: Any) -> Any:
    """A list, also as it is written in the environment and on the command line: `stable,latest`."""
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


def _split_numbers(value: Any) -> Any:
    """The same of numbers: `1.2,1.4`."""
    if not isinstance(value, str):
        return value
    try:
        return [float(one) for one in _split(value)]
    except ValueError:
        raise ValueError("expected numbers such as 1.2,1.4") from None


PositiveDuration = Annotated[str, AfterValidator(_positive_duration)]
OptionalDuration = Annotated[str, AfterValidator(_optional_duration)]
RecordSize = Annotated[str, AfterValidator(_record_size)]
PositiveSize = Annotated[str, AfterValidator(_size)]
OptionalSize = Annotated[str, AfterValidator(_optional_size)]
Names = Annotated[list[str], BeforeValidator(_split)]
Numbers = Annotated[list[float], BeforeValidator(_split_numbers)]
Port = Annotated[int, Field(ge=0, le=65535)]
StreamAddress = Annotated[str, Field(min_length=1), AfterValidator(_training_topic)]
Judgments = Annotated[str, AfterValidator(_judgments)]


class _Keys(Protocol):
    retention: str
    retention_bytes: str


class Retained:
    """The numbers of `retention` and `retention_bytes`, for a section that has both keys."""

    @property
    def retention_s(self: _Keys) -> float | None:
        """`retention` in seconds; None keeps records for ever."""
        return parse_duration(self.retention) if self.retention else None

    @property
    def retention_size(self: _Keys) -> int | None:
        """`retention_bytes` in bytes; None is no limit."""
        return parse_size(self.retention_bytes) if self.retention_bytes else None
