"""Small JSON records that notice any altered byte, and strict reading of their fields.

A sealed record is UTF-8 JSON, one object, whose last member is `"sha256"`. The file ends with the exact
79 bytes `"sha256": "<64 hex digits>"\n}\n` and the digest is that of every byte before them.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from checkpoints.errors import BadKey, Damaged
from checkpoints.store import check_name

T = TypeVar("T")
_HEX = re.compile(r"[0-9a-f]{64}")
_FAST_HEX = re.compile(r"[0-9a-f]{32}")


class RecordFields:
    """One JSON object being read. `place` says which file, `path` where in it."""

    def __init__(self, record: dict[str, Any], place: str, path: str = "") -> None:
        self.place = place
        self._record = record
        self._path = path
        self._read: set[str] = set()

    def refuse(self, name: str, problem: str) -> NoReturn:
        """Raises Damaged for the field `name`."""
        raise Damaged("malformed", self.place, f"field {self._path}{name}: {problem}")

    def _take(self, name: str) -> Any:
        self._read.add(name)
        if name not in self._record:
            self.refuse(name, "is missing")
        return self._record[name]

    def integer(self, name: str, low: int | None = 0) -> int:
        """A whole number, at least `low`."""
        value = self._take(name)
        if type(value) is not int:
            self.refuse(name, f"{value!r} is not a whole number")
        if low is not None and value < low:
            self.refuse(name, f"{value} is below {low}")
        return value

    def text(self, name: str) -> str:
        """A string."""
        value = self._take(name)
        if not isinstance(value, str):
            self.refuse(name, f"{value!r} is not a string")
        return value

    def mapping(self, name: str) -> dict[str, Any]:
        """A JSON object."""
        value = self._take(name)
        if not isinstance(value, dict):
            self.refuse(name, "is not an object")
        return value

    def sequence(self, name: str) -> list[Any]:
        """A JSON array."""
        value = self._take(name)
        if not isinstance(value, list):
            self.refuse(name, "is not a list")
        return value

    def optional(self, name: str, read: Callable[[str], T]) -> T | None:
        """null, or what `read` accepts."""
        return None if self._take(name) is None else read(name)

    def inside(self, path: str, record: object, names: tuple[str, ...]) -> RecordFields:
        """Fields of a nested object that must have exactly `names`."""
        if not isinstance(record, dict) or set(record) != set(names):
            self.refuse(path, f"is not an object of {', '.join(names)}")
        return RecordFields(record, self.place, f"{self._path}{path}.")

    def records(self, name: str, names: tuple[str, ...]) -> list[RecordFields]:
        """A list of objects that each have exactly `names`."""
        return [self.inside(f"{name}[{i}]", record, names) for i, record in enumerate(self.sequence(name))]

    def nothing_left(self) -> None:
        """Refuse fields that nobody asked for."""
        for name in self._record:
            if name not in self._read:
                self.refuse(name, "is not known in this format")


def digest(at: RecordFields, name: str) -> str:
    """64 lower-case hex digits."""
    value = at.text(name)
    if not _HEX.fullmatch(value):
        at.refuse(name, f"{value!r} is not a sha256")
    return value


def fast_digest(at: RecordFields, name: str) -> str:
    """32 lower-case hex digits."""
    value = at.text(name)
    if not _FAST_HEX.fullmatch(value):
        at.refuse(name, f"{value!r} is not an xxh3_128")
    return value


def file_name(at: RecordFields, name: str) -> str:
    """A plain file name: no folder, no `..`, no absolute path."""
    value = at.text(name)
    try:
        check_name(value)
    except BadKey as error:
        at.refuse(name, error.problem)
    return value


def shape(at: RecordFields, name: str) -> tuple[int, ...]:
    """A list of whole numbers >= 0."""
    value = at.sequence(name)
    if not all(type(part) is int and part >= 0 for part in value):
        at.refuse(name, f"{value!r} is not a shape")
    return tuple(value)


def numbers(at: RecordFields, name: str) -> dict[str, int | float]:
    """An object whose values are finite numbers."""
    value = at.mapping(name)
    for key, number in value.items():
        if type(number) not in (int, float) or not math.isfinite(number):
            at.refuse(f"{name}.{key}", f"{number!r} is not a finite number")
    return value


TRAILER_BYTES = 79
_TRAILER = re.compile(rb'"sha256": "([0-9a-f]{64})"\n\}\n')


def seal(record: dict[str, Any]) -> bytes:
    """JSON bytes of `record` with its digest as last member. ValueError for NaN, Infinity or no member."""
    if not record or "sha256" in record:
        raise ValueError("a sealed record has at least one member and none called sha256")
    lines = [f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in record.items()]
    body = ("{\n" + "".join(line + ",\n" for line in lines)).encode()
    return body + f'"sha256": "{hashlib.sha256(body).hexdigest()}"\n}}\n'.encode()


def unseal(data: bytes, place: str) -> dict[str, Any]:
    """The record inside `data`, its digest checked and removed. Raises Damaged naming `place`."""
    trailer = _TRAILER.fullmatch(data[-TRAILER_BYTES:])
    if trailer is None:
        raise Damaged("truncated", place, "does not end in its sha256 line")
    if hashlib.sha256(data[:-TRAILER_BYTES]).hexdigest().encode() != trailer.group(1):
        raise Damaged("altered", place, "its bytes do not match its sha256")
    try:
        record = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Damaged("malformed", place, f"is not JSON: {error}") from error
    if not isinstance(record, dict):
        raise Damaged("malformed", place, "is not a JSON object")
    del record["sha256"]
    return record
