"""Values of the configuration (durations, sizes, lists, addresses), and the base class of every section.

Durations ("30s", "1h30m") and sizes ("64MiB") are read once, here: a configuration holds seconds and bytes,
and writes them as text again where it is shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    field_validator,
)

from streams.errors import AddressError
from streams.limits import MAX_VALUE_BYTES
from streams.source import parse_address

Number = TypeVar("Number", int, float)
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


def duration_text(seconds: float | None) -> str:
    """5400.0 -> "90m": in the largest unit that needs no fraction. None -> ""."""
    if seconds is None:
        return ""
    for unit in ("d", "h", "m", "s"):
        count = seconds / _SECONDS[unit]
        if (count >= 1 or unit == "s") and count == int(count):
            return f"{count:.0f}{unit}"
    return f"{seconds * 1000:.15g}ms"


def size_text(count: int | None) -> str:
    """1048576 -> "1MiB": the shortest number that needs no fraction. None -> ""."""
    if count is None:
        return ""
    exact = [(count // step, unit) for unit, step in _BYTES.items() if count % step == 0 and unit != "KB"]
    number, unit = min(exact)
    return f"{number}{unit}"


class Section(BaseModel):
    """A frozen table of the file; unknown keys and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _no_nul(cls, value: Any) -> Any:
        text = value.get_secret_value() if isinstance(value, SecretStr) else value
        if isinstance(text, str) and "\0" in text:  # no path, host or name can hold one
            raise ValueError("holds a NUL character; remove it")
        for one in value if isinstance(value, list) else (value,):
            if isinstance(one, str) and "://" in one and holds_password(one):
                raise ValueError("an address holds no password, secrets have keys of their own; %40 is an @")
        return value


def table(section: type[Section], description: str) -> Any:
    """The field of a table in a table, by default with the defaults of its keys."""
    return Field(default_factory=lambda: section.model_validate({}), description=description)


def _read_by(parse: Callable[[str], Number], expected: str, above_zero: str = "") -> Callable[[Any], Number]:
    """The validator of what is written as a text; above_zero: what it is called where it may not be 0."""

    def read(value: Any) -> Number:
        if not isinstance(value, str):
            raise ValueError(f"expected {expected}")
        number = parse(value)
        if above_zero and number <= 0:
            raise ValueError(f"expected {above_zero} above zero")
        return number

    return read


def _fits_the_wire(count: int) -> int:
    if count > MAX_VALUE_BYTES:
        raise ValueError("expected at most 1MiB: the format of events and impressions has no larger ones")
    return count


def _training_topic(text: str) -> str:
    broker = text.startswith("kafka://")
    if broker and "@" in text:
        raise ValueError("an address holds no user and password; give them in [stream.kafka]")
    topic = text[len("kafka://") :].partition("/")[2] if broker else text.partition("#")[2]
    ending = topic.rpartition(".")[2]
    if ending != topic and ending in ("dead", "holdout", "steps", "items"):
        raise ValueError(f"names a topic that goes with another one; leave out .{ending}")
    return text


def _http_url(url: str) -> str:
    if holds_password(url):
        raise ValueError("expected a URL without user and password; secrets have keys of their own")
    parts = urlsplit(url)
    if url and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ValueError('expected a URL such as "https://HOST:PORT"')
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("expected a URL without user, password, ? and #; secrets have keys of their own")
    return url.rstrip("/")


def _judgments(text: str) -> str:
    kind, _, path = text.partition(":")
    if text and (kind not in ("qrels", "labels") or not path):
        raise ValueError('expected "qrels:PATH" (TREC, 4 columns), "labels:PATH" (id TAB label) or ""')
    return text


def _split(value: Any) -> Any:
    """A list, also as it is written in the environment and on the command line: `stable,latest`."""
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


def _split_numbers(value: Any) -> Any:
    """Split a text of numbers: `1.2,1.4`."""
    if not isinstance(value, str):
        return value
    try:
        return [float(one) for one in _split(value)]
    except ValueError:
        raise ValueError("expected numbers such as 1.2,1.4") from None


AsDuration = PlainSerializer(duration_text, return_type=str, when_used="json")
AsSize = PlainSerializer(size_text, return_type=str, when_used="json")

_seconds = _read_by(parse_duration, DURATION_HELP, "a duration")
_bytes = _read_by(parse_size, SIZE_HELP, "a size")
Seconds = Annotated[float, BeforeValidator(_read_by(parse_duration, DURATION_HELP)), AsDuration]
PositiveSeconds = Annotated[float, BeforeValidator(_seconds), AsDuration]
OptionalSeconds = Annotated[
    float | None, BeforeValidator(lambda value: None if value == "" else _seconds(value)), AsDuration
]
Bytes = Annotated[int, BeforeValidator(_bytes), AsSize]
RecordBytes = Annotated[Bytes, AfterValidator(_fits_the_wire)]
OptionalBytes = Annotated[
    int | None, BeforeValidator(lambda value: None if value == "" else _bytes(value)), AsSize
]
Names = Annotated[list[str], BeforeValidator(_split)]
Numbers = Annotated[list[float], BeforeValidator(_split_numbers)]
Port = Annotated[int, Field(ge=0, le=65535)]


def holds_password(address: str) -> bool:
    """Whether an address holds a password, also one that was not escaped: what comes before the last @ is
    looked through, as far as it may be a user's. Behind a # stands a topic or SQL, with @ of its own."""
    place = address.partition("#")[0]
    if "password=" in place.lower():
        return True
    rest = address.partition("://")[2]
    host = re.split(r"[/?#]", rest, maxsplit=1)[0]
    user, at, _ = host.rpartition("@")
    if at:
        return bool(user.partition(":")[2])
    _, colon, port = host.rpartition(":")
    later = rest[len(host) :]
    if not colon or "@" not in later or port.endswith("]"):
        return False
    return not port.isdigit() or "@" in later.partition("#")[0]  # what looks like a port may be its beginning


def refuse_password(address: str, key: str) -> str:
    """The address; ValueError naming the key that takes its password, where it holds one."""
    if holds_password(address):
        raise ValueError(f"an address holds no password; give it in {key}")
    return address


def masked(text: str) -> str:
    """A text as it may be shown: without what an address in it says of user and password."""
    text = re.sub(r"(?i)password=[^&#\s]*", "password=***", text)
    end = text.rfind("@")
    begin = text.find("//", 0, end) + 2 if "//" in text[:end] else 0
    return text if end < 0 or not (begin or ":" in text[:end]) else f"{text[:begin]}***{text[end:]}"


SCHEMES = ("s3", "gs", "az")
"""Of addresses in object stores: Amazon S3 and all that speaks its protocol, Google Cloud Storage, Azure."""
POSTGRES = ("postgresql://", "postgres://")
TOPICS = ("kafka:", "log:", "memory:")
LIVE = (*POSTGRES, *TOPICS)
"""How addresses of objects begin that are in no file."""


def _objects(place: str) -> str:
    if place.startswith(POSTGRES) and not refuse_password(place, "catalog.secret").partition("#")[2].strip():
        raise ValueError("expected postgresql://USER@HOST/DATABASE#TABLE, or a query behind the #")
    if place.startswith(TOPICS):
        try:
            topic = parse_address(place).topic
        except AddressError as error:
            raise ValueError(str(error)) from None
        if not place.endswith(topic):  # it is the one of events then, which nobody means
            raise ValueError("expected kafka://HOST:PORT/TOPIC or log:PATH#TOPIC: name the topic of objects")
    return place


@dataclass(frozen=True, slots=True)
class PathIn:
    """Marks a key whose text holds a path: a group of `pattern`, and none where that does not match."""

    pattern: str = "(.+)"

    def of(self, text: str, base: Path) -> str:
        """The text with its path absolute; `base`: what a relative one is relative to."""
        match = re.match(self.pattern, text, re.DOTALL)
        if match is None or match.lastindex is None:
            return text
        begin, end = match.span(match.lastindex)
        return f"{text[:begin]}{os.path.normpath(base / text[begin:end])}{text[end:]}"


_LOG = r"log:([^#]+)"
_SOURCE = rf"{_LOG}|(?!{'|'.join(TOPICS)})(.+)"
_ELSEWHERE = "|".join((*POSTGRES, *(f"{scheme}://" for scheme in SCHEMES)))
PathSetting = Annotated[str, PathIn()]
FolderSetting = Annotated[str, PathIn("(?!.*://)(.+)")]
"""A folder, or the address of another store."""
MappingSetting = Annotated[str, PathIn(r"(.+\.toml)\Z")]
"""A file, or the name of a mapping that comes along."""
SourcesSetting = Annotated[Names, PathIn(_SOURCE)]
IdsSetting = Annotated[str, PathIn(f"(?!{_ELSEWHERE})(?:{_SOURCE})")]
ObjectsSetting = Annotated[IdsSetting, AfterValidator(_objects)]
StreamAddress = Annotated[str, Field(min_length=1), AfterValidator(_training_topic), PathIn(_LOG)]
HttpUrl = Annotated[str, AfterValidator(_http_url)]
JudgmentsSetting = Annotated[str, AfterValidator(_judgments), PathIn("[^:]*:(.+)")]
