"""Texts with a form of their own in the configuration: durations, sizes, judgments; ports, lists of names."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from daemon.config.units import parse_duration, parse_size

MAX_RECORD_BYTES = 1 << 20
"""Largest event and impression that the wire format has, bytes."""


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
    if parse_size(_size(text)) > MAX_RECORD_BYTES:
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
