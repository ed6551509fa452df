"""Foreign input: schemas of a registry, and values written by them."""

from __future__ import annotations

import base64
import json
import struct
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from streams.feed.follow import protobuf_values
from streams.feed.follow.registry import (
    RegistrySettings,
    SchemaRegistry,
    UnknownSchemaError,
)
from streams.feed.follow.schemas import SchemaDecoder
from streams.feed.items import BadItemError
from streams.foreign_http import ForeignAnswer
from tests.fuzz.law import ForeignInput


class Refused(Exception):
    """A record that is dropped with its reason."""


class Answering:
    """A registry that has these schemas, and answers anything else as registries do."""

    def __init__(self, schemas: Mapping[int, bytes]) -> None:
        self.schemas = schemas

    def ask(self, method: str, path: str, body: bytes | None = None) -> ForeignAnswer:
        """Any question."""
        if path == "/schemas/types":
            return ForeignAnswer(200, {}, b'["AVRO", "PROTOBUF", "JSON"]')
        if path.startswith("/schemas/ids/"):
            return ForeignAnswer(200, {}, self.schemas[int(path.partition("?")[0].rpartition("/")[2])])
        return ForeignAnswer(200, {}, json.dumps({"schema": '"long"'}).encode())


FOLDER = Path(tempfile.gettempdir(), "no-folder-of-schemas", "x")
"""Where nothing can be kept, so that each answer is read anew."""


def decoder(schemas: Mapping[int, bytes]) -> SchemaDecoder:
    """What decodes by the answers of a registry."""
    registry = SchemaRegistry(RegistrySettings("http://registry:1"), FOLDER)
    registry._client = Answering(schemas)  # type: ignore[assignment]
    registry._keep = lambda key, found: None  # type: ignore[method-assign]
    return SchemaDecoder(registry)


def decoded(by: SchemaDecoder, number: int, data: bytes) -> Any:
    """A value, which JSON can hold. Raises Refused."""
    found = by.decoded(struct.pack(">bI", 0, number) + data, ())
    if isinstance(found, BadItemError):
        raise Refused
    return found if isinstance(found, bytes) else json.dumps(found)


def _uncompiled(texts: Any) -> Any:
    raise UnknownSchemaError("it is source")


def read_answer(value: bytes) -> Any:
    """An answer for a schema, up to a value that it would read. No source is compiled: that is a process."""
    compiled, protobuf_values._compiled = protobuf_values._compiled, _uncompiled
    try:
        return decoded(decoder({1: value}), 1, b"\x00\x02")
    finally:
        protobuf_values._compiled = compiled


def _record(*fields: tuple[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": one, "type": kind} for one, kind in fields]}


NULLS = _record(*((f"n{place}", "null") for place in range(16)), ("flag", "boolean"), name="Nulls")


def _logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


ITEM = _record(("id", "string"), ("at", "int"), name="Item")
LISTS = {"type": "array", "items": {"type": "array", "items": "bytes"}}
GUID = b"f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
AVRO: tuple[tuple[Any, bytes], ...] = (
    (_record(("ts", _logical("long", "timestamp-millis")), ("id", "string")), b"\x02\x04ab"),
    (_record(("price", _logical("bytes", "decimal", precision=10, scale=2))), b"\x04\x04\xe2"),
    (_record(("shown", {"type": "array", "items": ITEM})), b"\x02\x02a\x04\x00"),
    (
        _record(("next", ["null", "R"]), ("map", {"type": "map", "values": ["null", "double"]})),
        b"\x02\x00\x00\x00",
    ),
    (_record(("many", {"type": "array", "items": NULLS})), b"\x04\x00\x01\x00"),
    (_record(("lists", LISTS)), b"\x02\x02\x02a\x00\x00"),
    (
        _record(("uuid", _logical("string", "uuid")), ("day", _logical("int", "date"))),
        b"\x48" + GUID + b"\x02",
    ),
)


def read_schema(value: bytes) -> Any:
    """The text of an Avro schema, and values by it."""
    answer = json.dumps({"schema": value.decode("latin-1")}).encode()
    by = decoder({1: answer})
    try:
        return decoded(by, 1, b"\x02\x04ab")
    except Refused:
        return decoded(by, 1, b"\x00" * 4)


def _avro_values() -> ForeignInput:
    by = decoder(
        {n: json.dumps({"schema": json.dumps(schema)}).encode() for n, (schema, _) in enumerate(AVRO)}
    )

    def read(value: bytes) -> Any:
        return decoded(by, value[0] % len(AVRO) if value else 0, value[1:])

    def block(number: int, entry: bytes, size: int) -> bytes:
        """A list of as many entries as fit."""
        count, head = size // len(entry), b""
        left = 2 * count
        while left > 127:
            head, left = head + bytes([left & 127 | 128]), left >> 7
        return bytes([number]) + head + bytes([left]) + entry * count + b"\x00"

    worst = (
        b"\x01\x80\xe8\xf3\x01" + b"\x7f" * 2_000_000,
        b"\x01\x24" + b"\x7f" * 18,
        b"\x03\x02" + b"\x02" * 30_000,
        b"\x03" + b"\xff" * 32_000 + b"\x01",
        b"\x00" + b"\xff" * 2_000_000,
        *(block(number, entry, size) for size in (60_000, 600_000, 2_000_000)
          for number, entry in ((2, b"\x02a\x04"), (4, b"\x01"), (5, b"\x00"))),
    )  # fmt: skip
    seeds = tuple(bytes([n]) + value for n, (_, value) in enumerate(AVRO))
    return ForeignInput("registry.avro.value", read, seeds, (Refused,), worst)


def _file(message: Callable[[Any], None]) -> FileDescriptorProto:
    file = FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    message(file)
    return file


def _fields(message: Any, *fields: tuple[str, int, str, bool]) -> None:
    for number, (name, kind, of, many) in enumerate(fields, 1):
        message.field.add(name=name, number=number, type=kind, type_name=of or None, label=3 if many else 1)


def _shop(file: Any) -> None:
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/struct.proto"])
    wide, none = file.message_type.add(name="Wide"), file.message_type.add(name="None")
    _fields(wide, *((f"f{place}", 3, "", False) for place in range(200)))
    assert none.name
    top = file.message_type.add(name="Event")
    _fields(
        top,
        ("id", 9, "", False),
        ("at", 11, ".google.protobuf.Timestamp", False),
        ("any", 11, ".google.protobuf.Struct", False),
        ("wide", 11, ".shop.Wide", True),
        ("none", 11, ".shop.None", True),
        ("self", 11, ".shop.Event", True),
        ("shown", 9, "", True),
        ("price", 1, "", False),
        ("values", 11, ".google.protobuf.Value", True),
    )


SHOP = _file(_shop).SerializeToString()
FLAT = _file(lambda file: _fields(file.message_type.add(name="F"), ("id", 9, "", False))).SerializeToString()
EVENT = b"\x02\x04"
"""Message indexes: the third message."""


def _protobuf(descriptor: bytes) -> bytes:
    return json.dumps({"schemaType": "PROTOBUF", "schema": base64.b64encode(descriptor).decode()}).encode()


def read_descriptor(value: bytes) -> Any:
    """A descriptor, and values by it."""
    return decoded(decoder({1: _protobuf(value)}), 1, b"\x00\x0a\x01a")


def _protobuf_values(kind: str) -> ForeignInput:
    by = decoder({1: _protobuf(SHOP), 2: _protobuf(FLAT)})
    number, indexes = (1, EVENT) if kind == "event" else (2, b"\x00")

    def read(value: bytes) -> Any:
        return decoded(by, number, indexes + value)

    seeds = (
        b"\x0a\x01a\x12\x02\x08\x01\x3a\x01b\x32\x03\x0a\x01c\x41" + struct.pack("<d", 1.5),
        b"\x1a\x07\x0a\x05\x0a\x01a\x12\x00",
        b"\x0a\x01a",
    )
    sizes = (60_000, 500_000, 2_000_000)
    entries = (b"\x22\x00", b"\x2a\x00", b"\x32\x00", b"\x3a\x00", b"\x4a\x00", b"\x4a\x02\x32\x00")
    worst = (*(entry * (size // len(entry)) for size in sizes for entry in entries), b"\x33" * 200_000)
    return ForeignInput(
        f"registry.protobuf.{kind}", read, seeds, (Refused,), worst if kind == "event" else ()
    )


def _doubled(levels: int) -> bytes:
    schema: Any = _record(name="R0")
    for level in range(1, levels):
        schema = _record(("a", schema), ("b", f"R{level - 1}"), name=f"R{level}")
    return json.dumps(schema).encode()


AVRO_TEXTS = tuple(json.dumps(schema).encode() for schema, _ in AVRO)
INPUTS: tuple[ForeignInput, ...] = (
    ForeignInput(
        "registry.answer",
        read_answer,
        (
            json.dumps({"schema": '{"type": "array", "items": "long"}'}).encode(),
            json.dumps(
                {
                    "schema": json.dumps(AVRO[0][0]),
                    "references": [{"name": "N", "subject": "s", "version": 1}],
                }
            ).encode(),
            _protobuf(FLAT),
            b'{"schemaType": "JSON", "schema": "{}"}',
        ),
        (Refused,),
        (
            b"[1]",
            b'{"schema": "\\ud800"}',
            b'{"schema": "x", "references": 7}',
            b'{"schema": "x", "references": [7]}',
            b'"' + b"x" * 5_000_000,
            b'{"schemaType": "PROTOBUF", "references": [{"name": "", "subject": "", "version": 1}]}',
        ),
    ),
    ForeignInput(
        "registry.avro.schema",
        read_schema,
        (b'"string"', *AVRO_TEXTS),
        (Refused,),
        (
            b'{"type": "array", "items": ' * 300 + b'"long"' + b"}" * 300,
            b'{"type": "array", "items": ' * 30_000,
            _doubled(40),
            json.dumps(_record(*((f"f{place}", ["null", "string"]) for place in range(15_000)))).encode(),
            json.dumps(
                [{"type": "fixed", "name": f"F{place}", "size": 10**9} for place in range(3_000)]
            ).encode(),
            b'{"type": "bytes", "logicalType": "decimal", "precision": 1000000000, "scale": 999999999}',
            b'{"type": "enum", "name": "E", "symbols": ['
            + b",".join(b'"s%d"' % n for n in range(50_000))
            + b"]}",
        ),
    ),
    _avro_values(),
    ForeignInput(
        "registry.protobuf.descriptor",
        read_descriptor,
        (FLAT, SHOP),
        (Refused,),
        (b"\x22" * 1_000, FLAT * 20_000, SHOP + FLAT),
    ),
    _protobuf_values("event"),
    _protobuf_values("flat"),
)
