"""Records that name a schema of a registry, in Confluent's framings -> the values that JSON would have had.

    value:  0, id (4 bytes)  [message indexes]  data
    value:  1, GUID (16 bytes)  [message indexes]  data
    header __value_schema_id:  one of both  [message indexes];  value:  data

Message indexes are those of Protobuf: their number and each of them as zigzag varints, a single 0 for the
first message. Anything else is JSON, and passes as it is.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from streams.errors import StreamUnavailable
from streams.feed import items as reasons
from streams.feed.follow.avro_values import avro_decoder
from streams.feed.follow.protobuf_values import ProtobufDecoders
from streams.feed.follow.registry import (
    AVRO,
    JSON,
    PROTOBUF,
    RegisteredSchema,
    SchemaKey,
    SchemaRegistry,
    UnknownSchemaError,
)
from streams.feed.items import BadItemError
from streams.source import Headers

HEADER = "__value_schema_id"
MOST_BYTES = 2 << 20
"""Of one record: half of what JSON may have, which needs more bytes to say as much."""
DEEPEST_MESSAGE = 100
"""Message indexes of one record: how deep types may be nested."""

_OURS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN)
"""What ails this machine and no schema."""
BATCH_SECONDS = 5.0
MOST_TOLD = 100
"""Schemas that are told of as unknown; made-up ids would fill the log."""

Decode = Callable[[bytes, bytes], Any]
"""Message indexes and data (for Avro and JSON the former is empty) -> a value."""


class SchemaDecoder:
    """Values by the schemas that they name; `notes` are lines worth telling: a schema is unknown. batch_s:
    after so long the records that are decoded go on, and the rest waits: each of them may ask the registry.
    """

    def __init__(self, registry: SchemaRegistry, batch_s: float = BATCH_SECONDS) -> None:
        self.notes: list[str] = []
        self.batch_s = batch_s
        self._registry = registry
        self._decoders: dict[SchemaKey, Decode] = {}
        self._told: set[SchemaKey] = set()

    def decoded(self, value: bytes, headers: Headers) -> Any:
        """What a record says: bytes of JSON, a value, or a BadItemError for what is wrong with it.

        Raises StreamUnavailable while its schema cannot be had.
        """
        try:
            named = _named(value, headers)
            if named is None:
                return value
            if len(value) > MOST_BYTES:
                raise BadItemError(reasons.TOO_LONG, f"the record is longer than {MOST_BYTES} bytes")
            key, indexes, data = named
            decode = self._decoders.get(key) or self._known(key)
            if isinstance(decode, BadItemError):
                return decode
            return decode(indexes, data)
        except BadItemError as bad:
            return bad
        except StreamUnavailable:
            raise
        except Exception as error:  # noqa: BLE001  # whatever bytes of a stranger do to a decoder
            detail = f"the bytes are not what the schema says: {type(error).__name__}: {error}"
            return BadItemError(reasons.NOT_AS_SCHEMA, detail[:200])

    def _known(self, key: SchemaKey) -> Decode | BadItemError:
        try:
            schema = self._registry.schema(key)
        except UnknownSchemaError as error:
            return self._unusable(key, error)  # the registry may have it later
        try:
            found = _decoder(schema)
        except ImportError as error:
            raise StreamUnavailable(
                f"schema {key} is {schema.kind}, whose library is not installed ({error}):"
                f" pip install 'tripletd[{schema.kind.lower()}]'"
            ) from error
        except Exception as error:  # whatever a schema does to its parser
            if isinstance(error, OSError) and error.errno in _OURS:
                raise StreamUnavailable(f"schema {key} cannot be compiled: {error.strerror}") from error
            told = str(error) if isinstance(error, UnknownSchemaError) else f"{type(error).__name__}: {error}"
            self._registry.reject(key, told[:300])
            return self._unusable(key, UnknownSchemaError(told[:300]))
        self._decoders[key] = found
        return found

    def _unusable(self, key: SchemaKey, error: UnknownSchemaError) -> BadItemError:
        detail = f"schema {key}: {error}"
        if key not in self._told and len(self._told) < MOST_TOLD:
            self._told.add(key)
            self.notes.append(f"records that name it are dropped: {detail}")
        return BadItemError(reasons.UNKNOWN_SCHEMA, detail)


def _decoder(schema: RegisteredSchema) -> Decode:
    """How values of a schema are read. Raises ImportError, UnknownSchemaError."""
    if schema.kind == AVRO:
        read = avro_decoder(schema)
        return lambda indexes, data: read(data)
    if schema.kind == PROTOBUF:
        types = ProtobufDecoders(schema)

        def decode(indexes: bytes, data: bytes) -> Any:
            path, rest = _message_indexes(indexes or data)
            return types.decoder(path)(data if indexes else rest)

        return decode
    if schema.kind == JSON:
        return lambda indexes, data: data
    raise UnknownSchemaError(f"it is of the kind {schema.kind[:40]!r}")


def _named(value: bytes, headers: Headers) -> tuple[SchemaKey, bytes, bytes] | None:
    """The schema that a record names, message indexes of a header, and data; None for JSON."""
    for name, said in headers:
        if name == HEADER:
            framed = _framed(said)
            if framed is None:
                raise BadItemError(reasons.NOT_AS_SCHEMA, f"its header {HEADER} names no schema")
            return framed[0], framed[1], value
    if value[:1] not in (b"\x00", b"\x01"):
        return None
    framed = _framed(value)
    if framed is None:
        raise BadItemError(reasons.NOT_AS_SCHEMA, "it ends before it named its schema")
    return framed[0], b"", framed[1]


def _framed(data: bytes) -> tuple[SchemaKey, bytes] | None:
    """The id or GUID that some bytes begin with, and the rest; None where they begin otherwise."""
    if data[:1] == b"\x00" and len(data) >= 5:
        return int.from_bytes(data[1:5], "big"), data[5:]
    if data[:1] == b"\x01" and len(data) >= 17:
        return str(UUID(bytes=data[1:17])), data[17:]
    return None


def _message_indexes(data: bytes) -> tuple[Sequence[int], bytes]:
    count, at = _varint(data, 0)
    if not 0 <= count <= DEEPEST_MESSAGE:
        raise BadItemError(reasons.NOT_AS_SCHEMA, f"it names a message by {count} indexes")
    found = []
    for _ in range(count):
        index, at = _varint(data, at)
        found.append(index)
    return found or [0], data[at:]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint, and where the next one begins."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise BadItemError(reasons.NOT_AS_SCHEMA, "it ends before it named its message")
