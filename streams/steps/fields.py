"""Strict reading of a header's fields."""

from __future__ import annotations

from typing import Any

from streams.poison import NULL_VALUE as NO_VALUE
from streams.poison import TOO_LARGE as PAST_LIMIT
from streams.poison import Poison
from streams.steps.chain import CHAIN_BYTES
from streams.steps.errors import MALFORMED, NULL_VALUE, OUT_OF_RANGE, TOO_LARGE, BadSegment
from streams.wire import open_map, unpack

MAX_NUMBER = 2**53 - 1
DIGEST_CHARS = 32  # of xxh3_128 in hex


class Fields:
    """The entries of one msgpack map; each is taken once, and none may be left over."""

    def __init__(self, value: bytes | None, max_bytes: int, where: str) -> None:
        """Raises BadSegment when the bytes are not one map."""
        try:
            self._left = open_map(unpack(value, max_bytes, max_list=0), where)
        except Poison as error:
            reason = {NO_VALUE: NULL_VALUE, PAST_LIMIT: TOO_LARGE}.get(error.reason, MALFORMED)
            raise BadSegment(reason, f"{where}: {error.reason} {error.detail}".rstrip()) from None
        self._where = where

    def number(self, name: str, high: int = MAX_NUMBER) -> int:
        """A whole number within 0..high."""
        value = self._take(name, int)
        if not 0 <= value <= high:
            raise BadSegment(OUT_OF_RANGE, f"{self._where}.{name} is {value}, not within 0..{high}")
        return int(value)

    def optional_number(self, name: str) -> int | None:
        """A whole number, or nil."""
        return self.number(name) if self._left.get(name, 0) is not None else self._take(name, type(None))

    def flag(self, name: str) -> bool:
        """True or false."""
        return bool(self._take(name, bool))

    def one_of(self, name: str, known: tuple[str, ...]) -> str:
        """One of a few texts."""
        value = self._take(name, str)
        if value not in known:
            raise BadSegment(
                OUT_OF_RANGE, f"{self._where}.{name} is {value!r}, not one of {', '.join(known)}"
            )
        return str(value)

    def hex_digest(self, name: str) -> str:
        """32 lower-case hex digits."""
        value = self._take(name, str)
        if len(value) != DIGEST_CHARS or not set(value) <= set("0123456789abcdef"):
            raise BadSegment(OUT_OF_RANGE, f"{self._where}.{name} is not {DIGEST_CHARS} hex digits")
        return str(value)

    def hash(self, name: str) -> bytes:
        """A value of the chain."""
        value = self._take(name, bytes)
        if len(value) != CHAIN_BYTES:
            raise BadSegment(OUT_OF_RANGE, f"{self._where}.{name} is not {CHAIN_BYTES} bytes")
        return bytes(value)

    def data(self, name: str) -> bytes:
        """Bytes of any length."""
        return bytes(self._take(name, bytes))

    def nothing_left(self) -> None:
        """Raise BadSegment for a field that the format does not have."""
        if self._left:
            raise BadSegment(
                MALFORMED, f"{self._where} has unknown fields: {', '.join(map(repr, self._left))}"
            )

    def _take(self, name: str, kind: type) -> Any:
        if name not in self._left:
            raise BadSegment(MALFORMED, f"{self._where}.{name} is missing")
        value = self._left.pop(name)
        if type(value) is not kind:
            raise BadSegment(
                MALFORMED, f"{self._where}.{name} is a {type(value).__name__}, not {kind.__name__}"
            )
        return value
