"""Avro -> the values that JSON would have had. The schema of the writer decides; fields are taken by name.

long, int, double, string, boolean, null, enum, array, map, record    as in JSON
union                                                                 the value alone
timestamp-*, local-timestamp-*, date, time-*                          ISO 8601 text: it says its own unit
decimal                                                               a number, whole where it is
uuid                                                                  text
bytes, fixed                                                          base64 text
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import date, datetime, time
from io import BytesIO
from typing import Any, NamedTuple
from uuid import UUID

from pydantic_core import from_json

from streams.feed import items as reasons
from streams.feed.follow.registry import RegisteredSchema, UnknownSchemaError
from streams.feed.items import BadItemError

DEEPEST = 100
"""Levels of a schema that the compiled reader is trusted with."""
MOST_FREE = 16
"""Values of one record that take no bytes, nested ones included."""
MOST_DECIMAL_BYTES, MOST_DIGITS = 17, 40
"""Of a decimal, which are as many: its schema would allow any number, and reading takes their square."""
MOST_MEMORY = 24_000_000
"""Bytes that the values of one record may take. A record may be as long as this holds the densest of its
entries; _PLAIN of them per byte are what texts and numbers take."""
MOST_DEEP_BYTES = 32 << 10
"""Of a record whose schema holds itself: the reader in Python takes the square of a number's bytes."""
_PLAIN = 24.0


def avro_decoder(schema: RegisteredSchema) -> Callable[[bytes], Any]:
    """Reads values of a schema; what it gives raises BadItemError or anything else for bytes that are none.

    Raises ImportError without fastavro, UnknownSchemaError for what is no schema, or none that is safe.
    """
    import fastavro
    from fastavro._read_py import schemaless_reader as bounded_reader  # fastavro has no public name for it

    fastavro.read.LOGICAL_READERS.update({"bytes-decimal": _decimal, "fixed-decimal": _decimal})
    named: dict[str, Any] = {}
    try:
        for _, text in schema.references:
            fastavro.parse_schema(from_json(text), named)
        parsed = fastavro.parse_schema(from_json(schema.text), named)
        survey = _Survey(named)
        depth = survey.shape(parsed).depth
    except Exception as error:
        raise UnknownSchemaError(f"it is no Avro schema: {type(error).__name__}: {error}"[:300]) from error
    # The compiled reader recurses without a bound: some thousand bytes of a schema that holds itself would
    # end the process. The one in Python raises RecursionError.
    deep = survey.recursive or depth > DEEPEST
    read = bounded_reader if deep else fastavro.schemaless_reader
    most = min(MOST_DEEP_BYTES if deep else MOST_MEMORY, int(MOST_MEMORY / survey.densest))

    def decode(body: bytes) -> Any:
        if len(body) > most:
            raise BadItemError(reasons.TOO_LONG, f"by its schema a record has at most {most:,} bytes")
        stream = BytesIO(body)
        value = read(stream, parsed, None)
        if stream.tell() != len(body):
            raise ValueError(f"{len(body) - stream.tell()} bytes are left over")
        return _plain(value) if survey.special else value

    return decode


def _decimal(data: bytes, schema: Any, _: Any = None) -> Any:
    """A decimal: whole where it is, else the nearest float64. Raises ValueError beyond its bounds."""
    scale = schema.get("scale", 0)
    if len(data) > MOST_DECIMAL_BYTES or type(scale) is not int or not 0 <= scale <= MOST_DIGITS:
        raise ValueError(f"a decimal of more than {MOST_DIGITS} digits")
    whole, rest = divmod(int.from_bytes(data, "big", signed=True), 10**scale)
    return whole if not rest else (whole * 10**scale + rest) / 10**scale


class _Shape(NamedTuple):
    """What a type is like: its levels, how many of its values take no bytes, the fewest bytes that it takes,
    and the most memory of so few."""

    depth: int = 1
    free: int = 0
    least: int = 1
    memory: float = _PLAIN


class _Survey:
    """What a schema could do to who reads by it. `recursive`: a type holds itself; `special`: it has values
    that JSON has not; `densest`: bytes of memory for a byte of what may come any number of times."""

    def __init__(self, named: dict[str, Any]) -> None:
        self.recursive = self.special = False
        self.densest = _PLAIN
        self._named = named
        self._open: set[str] = set()
        self._shapes: dict[str, _Shape] = {}

    def shape(self, schema: Any) -> _Shape:
        """The shape of a type. Raises ValueError where few bytes could become any number of values."""
        if isinstance(schema, str):
            return self._of_name(schema) if schema in self._named else self._of_primitive(schema)
        if isinstance(schema, list):
            inner = [self.shape(one) for one in schema]
            least = 1 + min((one.least for one in inner), default=0)
            densest = max((one.memory / (1 + one.least) for one in inner), default=0.0)
            return _Shape(1 + max((one.depth for one in inner), default=0), 0, least, least * densest)
        kind = schema["type"]
        self.special |= "logicalType" in schema
        if kind == "array":
            entries = self.shape(schema["items"])
            if not entries.least:
                raise ValueError("it has a list whose entries take no bytes")
            return self._of_many(entries)
        if kind == "map":
            values = self.shape(schema["values"])
            return self._of_many(values._replace(least=values.least + 2, memory=values.memory + 100))
        if "name" in schema:
            return self._of_name(schema["name"])
        return self._of_primitive(kind) if isinstance(kind, str) else self.shape(kind)

    def _of_many(self, entry: _Shape) -> _Shape:
        self.densest = max(self.densest, entry.memory / entry.least)
        return _Shape(1 + entry.depth, memory=72)

    def _of_primitive(self, kind: str) -> _Shape:
        self.special |= kind == "bytes"
        return _Shape(1, 1, 0, 0) if kind == "null" else _Shape()

    def _of_name(self, name: str) -> _Shape:
        if name in self._open:
            self.recursive = True
            return _Shape()
        if name not in self._shapes:
            self._open.add(name)
            self._shapes[name] = self._of_named(self._named[name])
            self._open.discard(name)
        return self._shapes[name]

    def _of_named(self, schema: Any) -> _Shape:
        if schema["type"] == "fixed":
            self.special = True
            return _Shape(1, int(not schema["size"]), schema["size"])
        if schema["type"] == "enum":
            return _Shape()
        fields = [self.shape(one["type"]) for one in schema["fields"]]
        free = sum(one.free for one in fields)
        if free > MOST_FREE:
            raise ValueError(f"it has a record of more than {MOST_FREE} values that take no bytes")
        depth = 1 + max((one.depth for one in fields), default=0)
        memory = 64 + sum(48 + one.memory for one in fields)
        return _Shape(depth, free or (0 if fields else 1), sum(one.least for one in fields), memory)


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {name: _plain(one) for name, one in value.items()}
    if kind is list:
        return [_plain(one) for one in value]
    if kind is bytes:
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return str(value) if kind is UUID else value
