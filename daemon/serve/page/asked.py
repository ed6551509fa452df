"""What a request of the page asks for: query parameters, checked."""

from __future__ import annotations

import math

from starlette.datastructures import QueryParams


class BadField(Exception):
    """A parameter that cannot be used: `field` names it, the message says why."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def whole(params: QueryParams, name: str, default: int, high: int) -> int:
    """A whole number from 1 to `high`."""
    text = params.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) <= 9 and 1 <= int(text) <= high):
        raise BadField(name, f"expected a whole number from 1 to {high}")
    return int(text)


def number_or_none(params: QueryParams, name: str) -> int | None:
    """A version number, or None where the parameter is left out."""
    text = params.get(name)
    if text is not None and not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise BadField(name, "expected a version number")
    return None if text is None else int(text)


def moment(params: QueryParams, name: str) -> float:
    """Unix seconds; before everything where the parameter is left out."""
    text = params.get(name)
    try:
        found = -math.inf if text is None else float(text)
    except ValueError:
        found = math.nan
    if math.isnan(found):
        raise BadField(name, "expected Unix seconds")
    return found


def text(params: QueryParams, name: str, most: int) -> str:
    """A text of at most `most` characters, "" where the parameter is left out."""
    found = params.get(name, "")
    if len(found) > most:
        raise BadField(name, f"expected at most {most} characters")
    return found
