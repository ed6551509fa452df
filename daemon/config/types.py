"""Texts with a form of their own in the configuration: durations, sizes, judgments; and ports."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from daemon.config.units import parse_duration, parse_size


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


def _optional_size(text: str) -> str:
    return text if text == "" else _size(text)


def _judgments(text: str) -> str:
    kind, _, path = text.partition(":")
    if text and (kind not in ("qrels", "labels") or not path):
        raise ValueError('expected "qrels:PATH" (TREC, 4 columns), "labels:PATH" (id TAB label) or ""')
    return text


PositiveDuration = Annotated[str, AfterValidator(_positive_duration)]
OptionalDuration = Annotated[str, AfterValidator(_optional_duration)]
Size = Annotated[str, AfterValidator(_size)]
OptionalSize = Annotated[str, AfterValidator(_optional_size)]
Port = Annotated[int, Field(ge=0, le=65535)]
Judgments = Annotated[str, AfterValidator(_judgments)]
