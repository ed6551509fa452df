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
import json
import struct
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from io import BytesIO
from typing import Any, NamedTuple
from uuid import UUID

from streams.feed import items as reasons
from streams.feed.follow.registry import RegisteredSchema, UnknownSchemaError
from streams.feed.items import BadItemError

DEEPEST = 100
"""Levels of a schema that the compiled reader is trusted with."""
MOST_FREE = 16
"""Values of one record that take no bytes, nested ones included."""
MOST_DIGITS = 40
"""Of a decimal; its precision would allow any number."""

_BROKEN = (ArithmeticError, EOFError, LookupError, TypeError, ValueError, RecursionError, struct.error)


def avro_decoder(schema: RegisteredSchema) -> Callable[[bytes], Any]:
    """Reads values of a schema; what it gives raises BadItemError for bytes that are none.

    Raises ImportError without fastavro, UnknownSchemaError for what is no schema, or none that is safe.
    """
    import fastavro
    from fastavro._read_py import schemaless_reader as bounded_reader  # fastavro has no public name for it

    named: dict[str, Any] = {}
    try:
        for _, text in schema.references:
            fastavro.parse_schema(json.loads(text), named)
        parsed = fastavro.parse_schema(json.loads(schema.text), named)
        survey = _Survey(named)
        depth = survey.shape(parsed).depth
    except (*_BROKEN, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise UnknownSchemaError(f"it is no Avro schema: {type(error).__name__}: {error}"[:300]) from error
    # The compiled reader recurses without a bound: some thousand bytes of a schema that holds itself would
    # end the process. The one in Python raises RecursionError.
    read = bounded_reader if survey.recursive or depth > DEEPEST else fastavro.schemaless_reader

    def decode(body: bytes) -> Any:
        stream = BytesIO(body)
        try:
            value = read(stream, parsed, None)
            if stream.tell() != len(body):
                raise ValueError(f"{len(body) - stream.tell()} bytes are left over")
            return _plain(value) if survey.special else value
        except _BROKEN as error:
            detail = f"the bytes are not what the schema says: {type(error).__name__}: {error}"
            raise BadItemError(reasons.NOT_AS_SCHEMA, detail[:200]) from None

    return decode


class _Shape(NamedTuple):
    """What a type is like: its levels, how many of its values take no bytes, and whether it takes any."""

    depth: int = 1
    free: int = 0
    takes: bool = True


class _Survey:
    """What a schema could do to who reads by it. `recursive`: a type holds itself; `special`: it has values
    that JSON has not."""

    def __init__(self, named: dict[str, Any]) -> None:
        self.recursive = self.special = False
        self._named = named
        self._open: set[str] = set()
        self._shapes: dict[str, _Shape] = {}

    def shape(self, schema: Any) -> _Shape:
        """The shape of a type. Raises ValueError where few bytes could become any number of values."""
        if isinstance(schema, str):
            return self._of_name(schema) if schema in self._named else self._of_primitive(schema)
        if isinstance(schema, list):
            inner = [self.shape(one) for one in schema]
            return _Shape(1 + max((one.depth for one in inner), default=0))
        kind = schema["type"]
        self.special |= "logicalType" in schema
        if kind == "array":
            entries = self.shape(schema["items"])
            if not entries.takes:
                raise ValueError("it has a list whose entries take no bytes")
            return _Shape(1 + entries.depth)
        if kind == "map":
            return _Shape(1 + self.shape(schema["values"]).depth)
        if "name" in schema:
            return self._of_name(schema["name"])
        return self._of_primitive(kind) if isinstance(kind, str) else self.shape(kind)

    def _of_primitive(self, kind: str) -> _Shape:
        self.special |= kind == "bytes"
        return _Shape(1, 1, False) if kind == "null" else _Shape()

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
            return _Shape() if schema["size"] else _Shape(1, 1, False)
        if schema["type"] == "enum":
            return _Shape()
        fields = [self.shape(one["type"]) for one in schema["fields"]]
        free = sum(one.free for one in fields)
        if free > MOST_FREE:
            raise ValueError(f"it has a record of more than {MOST_FREE} values that take no bytes")
        depth = 1 + max((one.depth for one in fields), default=0)
        return _Shape(depth, free or (0 if fields else 1), any(one.takes for one in fields))


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
    if kind is UUID:
        return str(value)
    return _number(value) if kind is Decimal else value


def _number(value: Decimal) -> int | float:
    if not value.is_finite() or abs(value.adjusted()) > MOST_DIGITS:
        raise ValueError(f"a decimal of more than {MOST_DIGITS} digits")
    return int(value) if value == value.to_integral_value() else float(value)
