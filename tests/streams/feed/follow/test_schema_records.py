"""Records in Confluent's framings: the values that Avro and Protobuf become, and what is wrong with one."""

from __future__ import annotations

import base64
import errno
import io
import json
import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import DESCRIPTOR as TIMESTAMP
from google.protobuf.wrappers_pb2 import DESCRIPTOR as WRAPPERS

from streams.errors import StreamUnavailable
from streams.feed import items as reasons
from streams.feed.follow import protobuf_values
from streams.feed.follow.protobuf_values import MessageValues
from streams.feed.follow.registry import UNKNOWN_FOR_S, RegistrySettings, SchemaRegistry
from streams.feed.follow.schemas import HEADER, MOST_BYTES, SchemaDecoder
from streams.feed.items import BadItemError
from tests.harness.schema_registry import RegistryServer

CLICK = json.dumps(
    {
        "type": "record",
        "name": "Click",
        "namespace": "shop",
        "fields": [
            {"name": "event", "type": {"type": "enum", "name": "Kind", "symbols": ["impression", "click"]}},
            {"name": "impression", "type": "string"},
            {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "object", "type": "string"},
        ],
    }
)
SAID = {"event": "click", "impression": "i", "ts": "2023-11-14T22:13:20.001000+00:00", "object": "p1"}
PROTO = """syntax = "proto3";
package shop;
message Other { string nothing = 1; }
message Event { message Click { string event = 1; string impression = 2; int64 ts = 3; string object = 4; } }
"""
# Made by the serializers of confluent-kafka 2.16.1, with ids in the value and with GUIDs in a header.
AVRO_BY_ID = bytes.fromhex("000000000102026982a0abfef962047031")
AVRO_GUID, AVRO_HEAD = (
    "4cab8af3-f60f-4200-8ad5-590eb8bc1aef",
    b"\x01L\xab\x8a\xf3\xf6\x0fB\x00\x8a\xd5Y\x0e\xb8\xbc\x1a\xef",
)
PROTO_BY_ID = bytes.fromhex("00000000020402000a05636c69636b1201691881d095ffbc3122027031")
PROTO_GUID = "f40d8699-a2e3-467e-acf6-4efe2cd05ab3"
PROTO_HEAD = b"\x01\xf4\r\x86\x99\xa2\xe3F~\xac\xf6N\xfe,\xd0Z\xb3\x04\x02\x00"
SERIALIZED = (
    "CgpzaG9wLnByb3RvEgRzaG9wIhgKBU90aGVyEg8KB25vdGhpbmcYASABKAkiTwoFRXZlbnQaRgoFQ2xpY2sSDQoFZXZlbnQYASABKAkS"
    "EgoKaW1wcmVzc2lvbhgCIAEoCRIKCgJ0cxgDIAEoAxIOCgZvYmplY3QYBCABKAliBnByb3RvMw=="
)


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    server = RegistryServer()
    server.add(1, "AVRO", CLICK)
    server.name(AVRO_GUID, 1)
    server.add(2, "PROTOBUF", PROTO, serialized=SERIALIZED)
    server.name(PROTO_GUID, 2)
    yield server
    server.stop()


@pytest.fixture
def decoder(registry: RegistryServer, tmp_path: Path) -> SchemaDecoder:
    return SchemaDecoder(SchemaRegistry(RegistrySettings(registry.url), tmp_path))


def framed(number: int, data: bytes, indexes: bytes = b"") -> bytes:
    return struct.pack(">bI", 0, number) + indexes + data


@contextmanager
def refused(said: Any, reason: str, text: str = "") -> Iterator[None]:
    assert isinstance(said, BadItemError), said
    assert said.reason == reason, said.detail
    assert text in said.detail
    yield


def test_bytes_of_public_serializers_by_id_and_by_header(decoder: SchemaDecoder) -> None:
    assert decoder.decoded(AVRO_BY_ID, ()) == SAID
    assert decoder.decoded(AVRO_BY_ID[5:], ((HEADER, AVRO_HEAD),)) == SAID
    said = {**SAID, "ts": 1_700_000_000_001}
    assert decoder.decoded(PROTO_BY_ID, ()) == said
    assert decoder.decoded(PROTO_BY_ID[8:], (("other", b"x"), (HEADER, PROTO_HEAD))) == said
    assert decoder.decoded(b"\x01" + UUID(AVRO_GUID).bytes + AVRO_BY_ID[5:], ()) == SAID


def test_json_passes_and_json_with_a_schema_loses_its_frame(
    registry: RegistryServer, decoder: SchemaDecoder
) -> None:
    registry.add(3, "JSON", "{}")
    assert decoder.decoded(b'{"a": 1}', (("ce_type", b"x"),)) == b'{"a": 1}'
    assert decoder.decoded(framed(3, b'{"a": 1}'), ()) == b'{"a": 1}'
    assert [path for path in registry.asked if "/3" in path] == ["/schemas/ids/3"]


INNER = {"type": "record", "name": "In", "fields": [{"name": "id", "type": "long"}]}
EMPTY = '{"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}]}'


def test_every_kind_of_avro_value(registry: RegistryServer, decoder: SchemaDecoder) -> None:
    def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
        return {"type": kind, "logicalType": name, **more}

    of_type: dict[str, tuple[Any, Any, Any]] = {
        "millis": (logical("long", "timestamp-millis"), datetime(2024, 1, 2, 3, 4, 5, 6000, UTC), None),
        "micros": (logical("long", "timestamp-micros"), datetime(2024, 1, 2, 3, 4, 5, 6, UTC), None),
        "local": (logical("long", "local-timestamp-millis"), datetime(2024, 1, 2, 3, 4, 5), None),
        "day": (logical("int", "date"), date(2024, 1, 2), "2024-01-02"),
        "clock": (logical("int", "time-millis"), time(1, 2, 3), "01:02:03"),
        "price": (logical("bytes", "decimal", precision=9, scale=2), Decimal("12.50"), 12.5),
        "whole": (logical("bytes", "decimal", precision=9, scale=2), Decimal("12.00"), 12),
        "uuid": (logical("string", "uuid"), UUID(AVRO_GUID), AVRO_GUID),
        "bytes": ("bytes", b"\xff\x00", "/wA="),
        "fixed": ({"type": "fixed", "name": "Two", "size": 2}, b"ab", "YWI="),
        "none": (["null", "string"], None, None),
        "some": (["null", "string"], "x", "x"),
        "map": ({"type": "map", "values": "double"}, {"a": 0.5}, {"a": 0.5}),
        "list": ({"type": "array", "items": INNER}, [{"id": 1 << 53}], [{"id": 1 << 53}]),
        "nested": ("In", {"id": 7}, {"id": 7}),
        "flag": ("boolean", True, True),
    }  # fmt: skip
    fields = [{"name": name, "type": kind} for name, (kind, *_) in of_type.items()]
    schema = {"type": "record", "name": "All", "fields": fields}
    registry.add(4, "AVRO", json.dumps(schema))
    out = io.BytesIO()
    fastavro.schemaless_writer(
        out, fastavro.parse_schema(schema), {name: one[1] for name, one in of_type.items()}
    )
    said = decoder.decoded(framed(4, out.getvalue()), ())
    times = {"millis": "2024-01-02T03:04:05.006000+00:00", "micros": "2024-01-02T03:04:05.000006+00:00"}
    expected = {name: one[2] for name, one in of_type.items()}
    assert said == expected | times | {"local": "2024-01-02T03:04:05"}


def test_avro_types_of_other_subjects(registry: RegistryServer, decoder: SchemaDecoder) -> None:
    inner = {"type": "record", "name": "shop.Inner", "fields": [{"name": "n", "type": "shop.Leaf"}]}
    leaf = {"type": "enum", "name": "shop.Leaf", "symbols": ["A", "B"]}
    outer = {"type": "record", "name": "shop.Outer", "fields": [{"name": "inner", "type": "shop.Inner"}]}
    registry.add(10, "AVRO", json.dumps(leaf), subject="leaf/one")
    registry.add(11, "AVRO", json.dumps(inner), subject="inner", references=[("shop.Leaf", "leaf/one", 1)])
    registry.add(12, "AVRO", json.dumps(outer), references=[("shop.Inner", "inner", 1)])
    assert decoder.decoded(framed(12, b"\x02"), ()) == {"inner": {"n": "B"}}


WIDE = """syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/duration.proto";
import "shop/kinds.proto";
message Wide {
  google.protobuf.Timestamp at = 1;
  google.protobuf.StringValue session = 2;
  google.protobuf.Int64Value left_out = 3;
  shop.Kind kind = 4;
  repeated string shown = 5;
  repeated shop.Kind kinds = 6;
  map<string, double> scores = 7;
  map<bool, shop.Item> items = 8;
  repeated shop.Item parts = 9;
  bytes raw = 10;
  uint64 big = 11;
  string empty = 12;
  int32 zero = 13;
  optional int32 asked = 14;
  google.protobuf.Struct any = 15;
  oneof which { string left = 16; string right = 17; }
  google.protobuf.Duration took = 18;
}
"""
KINDS = """syntax = "proto3";
package shop;
enum Kind { NOTHING = 0; CLICK = 1; }
message Item { string id = 1; }
"""


def wide(registry: RegistryServer, folder: Path, *, serialized: bool) -> Any:
    """Registers WIDE as 20; its class, made by the public compiler and library."""
    (folder / "shop").mkdir()
    (folder / "shop" / "kinds.proto").write_text(KINDS)
    (folder / "wide.proto").write_text(WIDE)
    from grpc_tools import protoc

    builtin = Path(protoc.__file__).parent / "_proto"
    words = ["", f"-I{folder}", f"-I{builtin}", "--include_imports", f"--descriptor_set_out={folder}/out"]
    assert protoc.main([*words, "wide.proto"]) == 0
    files = FileDescriptorSet.FromString((folder / "out").read_bytes()).file
    pool = DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    texts = {file.name: base64.b64encode(file.SerializeToString()).decode() for file in files}
    of = texts.__getitem__ if serialized else lambda name: ""
    registry.add(21, "PROTOBUF", KINDS, subject="kinds", serialized=of("shop/kinds.proto"))
    reference = [("shop/kinds.proto", "kinds", 1)]
    registry.add(20, "PROTOBUF", WIDE, references=reference, serialized=of("wide.proto"))
    return GetMessageClass(pool.FindMessageTypeByName("Wide"))


@pytest.mark.parametrize("serialized", [True, False], ids=["as a descriptor", "as source"])
def test_every_kind_of_protobuf_value(
    registry: RegistryServer, decoder: SchemaDecoder, tmp_path: Path, serialized: bool
) -> None:
    message = wide(registry, tmp_path, serialized=serialized)()
    message.at.FromDatetime(datetime(2024, 1, 2, 3, 4, 5, 6000))
    message.session.value = "s"
    message.kind, message.big, message.raw = 1, 1 << 63, b"\xff"
    message.shown.extend(["a", "b"])
    message.kinds.extend([1, 0, 7])
    message.scores["x"] = 0.5
    message.items[True].id = "t"
    message.parts.add().id = "p"
    message.any["a"] = [1, {"b": None}]
    message.right, message.took.seconds, message.took.nanos = "", 1, 500_000_000
    said = decoder.decoded(framed(20, message.SerializeToString(), b"\x00"), ())
    assert said == {
        "at": "2024-01-02T03:04:05.006000+00:00",
        "session": "s",
        "kind": "CLICK",
        "shown": ["a", "b"],
        "kinds": ["CLICK", "NOTHING", 7],
        "scores": {"x": 0.5},
        "items": {"true": {"id": "t"}},
        "parts": [{"id": "p"}],
        "raw": "/w==",
        "big": 1 << 63,
        "zero": 0,
        "any": {"a": [1.0, {"b": None}]},
        "right": "",
        "took": 1.5,
    }
    assert decoder.decoded(framed(20, b"", b"\x00"), ()) == {"kind": "NOTHING", "big": 0, "zero": 0}


def test_a_file_of_options_that_nobody_has_is_not_needed(
    registry: RegistryServer, decoder: SchemaDecoder
) -> None:
    file = FileDescriptorProto.FromString(base64.b64decode(SERIALIZED))
    file.dependency.extend(["confluent/meta.proto", TIMESTAMP.name, "google/type/date.proto", WRAPPERS.name])
    file.public_dependency.append(3)
    file.message_type[0].field.add(
        name="w", number=9, type=11, type_name=".google.protobuf.BoolValue", label=1
    )
    registry.add(5, "PROTOBUF", "", serialized=base64.b64encode(file.SerializeToString()).decode())
    assert decoder.decoded(framed(5, b"\x4a\x02\x08\x01", b"\x00"), ()) == {"w": True}
    file.message_type[0].field.add(name="d", number=10, type=11, type_name=".google.type.Date", label=1)
    registry.add(6, "PROTOBUF", "", serialized=base64.b64encode(file.SerializeToString()).decode())
    with refused(decoder.decoded(framed(6, b"", b"\x00"), ()), reasons.UNKNOWN_SCHEMA, "no whole Protobuf"):
        pass


NODE = '{"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}'


def test_a_schema_that_holds_itself_ends_no_process(registry: RegistryServer, decoder: SchemaDecoder) -> None:
    registry.add(7, "AVRO", NODE)
    assert decoder.decoded(framed(7, b"\x02\x02\x00"), ()) == {"next": {"next": {"next": None}}}
    with refused(decoder.decoded(framed(7, b"\x02" * 30_000), ()), reasons.NOT_AS_SCHEMA, "Recursion"):
        pass
    with refused(decoder.decoded(framed(7, b"\x02" * 1_000_000), ()), reasons.TOO_LONG, "32,768 bytes"):
        pass


def test_a_schema_of_many_levels_ends_no_process(registry: RegistryServer, decoder: SchemaDecoder) -> None:
    for number, levels in ((30, 300), (31, 3_000)):
        schema = '{"type": "array", "items": ' * levels + '"long"' + "}" * levels
        registry.add(number, "AVRO", schema)
        assert isinstance(decoder.decoded(framed(number, b"\x02" * 5_000), ()), BadItemError)


def _doubled(levels: int) -> str:
    """A record that takes no bytes and is 2**levels of them."""
    schema: Any = {"type": "record", "name": "R0", "fields": []}
    for level in range(1, levels):
        below = f"R{level - 1}"
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": below}]
        schema = {"type": "record", "name": f"R{level}", "fields": fields}
    return json.dumps(schema)


@pytest.mark.parametrize(
    "schema",
    [
        '{"type": "array", "items": "null"}',
        f'{{"type": "array", "items": {EMPTY}}}',
        '{"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}',
        _doubled(40),
    ],
)
def test_a_schema_in_which_few_bytes_are_many_values_is_refused(
    registry: RegistryServer, decoder: SchemaDecoder, schema: str
) -> None:
    registry.add(8, "AVRO", schema)
    count = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00"
    with refused(decoder.decoded(framed(8, count), ()), reasons.UNKNOWN_SCHEMA, "no bytes"):
        pass


def test_a_message_of_more_values_than_are_taken_is_refused(
    registry: RegistryServer,
    decoder: SchemaDecoder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    message = wide(registry, tmp_path, serialized=True)()
    for _ in range(30):
        message.parts.add()
    body = framed(20, message.SerializeToString(), b"\x00")
    assert MessageValues(18 + 30 + 30).of(message)["parts"] == [{}] * 30
    monkeypatch.setattr(protobuf_values, "MOST_VALUES", 18 + 30 + 29)
    with refused(decoder.decoded(body, ()), reasons.NOT_AS_SCHEMA, "more than 77 values"):
        pass


@pytest.mark.parametrize(
    ("value", "reason", "text"),
    [
        (b"\x00\x00", reasons.NOT_AS_SCHEMA, "named its schema"),
        (b"\x01" * 16, reasons.NOT_AS_SCHEMA, "named its schema"),
        (AVRO_BY_ID[:-1], reasons.NOT_AS_SCHEMA, "what the schema says"),
        (AVRO_BY_ID + b"x", reasons.NOT_AS_SCHEMA, "1 bytes are left over"),
        (framed(1, b"\x08" + AVRO_BY_ID[6:]), reasons.NOT_AS_SCHEMA, "what the schema says"),
        (framed(2, b"\xff", b"\x00"), reasons.NOT_AS_SCHEMA, "what the schema says"),
        (framed(2, b"", b""), reasons.NOT_AS_SCHEMA, "named its message"),
        (framed(2, b"", b"\x02\x08"), reasons.NOT_AS_SCHEMA, "has no message [4]"),
        (framed(2, b"", b"\x02\x01"), reasons.NOT_AS_SCHEMA, "has no message [-1]"),
        (framed(2, b"", b"\x01"), reasons.NOT_AS_SCHEMA, "by -1 indexes"),
        (framed(2, b"", b"\xff" * 20), reasons.NOT_AS_SCHEMA, "named its message"),
        (framed(99, b""), reasons.UNKNOWN_SCHEMA, "schema 99: Schema 99 not found"),
        pytest.param(framed(1, bytes(MOST_BYTES)), reasons.TOO_LONG, "longer", id="too long"),
    ],
)
def test_a_broken_record_says_what_is_wrong(
    decoder: SchemaDecoder, value: bytes, reason: str, text: str
) -> None:
    with refused(decoder.decoded(value, ()), reason, text):
        assert decoder.decoded(AVRO_BY_ID, ()) == SAID


def test_a_header_that_names_no_schema(decoder: SchemaDecoder) -> None:
    with refused(decoder.decoded(b"{}", ((HEADER, b"\x01x"),)), reasons.NOT_AS_SCHEMA, HEADER):
        pass


def test_noise_is_refused_and_nothing_else_happens(decoder: SchemaDecoder) -> None:
    draw = random.Random(1)
    for _ in range(2_000):
        noise = draw.randbytes(draw.randrange(40))
        for number in (1, 2):
            said = decoder.decoded(framed(number, noise, b"\x04\x02\x00" if number == 2 else b""), ())
            assert isinstance(said, dict | BadItemError)


def test_schemas_that_cannot_be_used_are_told_once_and_compiled_once(
    registry: RegistryServer, decoder: SchemaDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.add(40, "AVRO", "{")
    registry.add(41, "THRIFT", "{")
    registry.add(42, "PROTOBUF", "message {")
    registry.add(43, "PROTOBUF", 'syntax = "proto3";', references=[("../../up.proto", "up", 1)])
    registry.add(44, "PROTOBUF", PROTO, subject="up")
    for number, text in ((40, "no Avro"), (41, "THRIFT"), (42, "cannot be compiled"), (43, "imports")):
        for _ in range(3):
            with refused(decoder.decoded(framed(number, b"", b"\x00"), ()), reasons.UNKNOWN_SCHEMA, text):
                monkeypatch.setattr(protobuf_values, "_compiled", lambda texts: pytest.fail("again"))
        monkeypatch.undo()
    assert len(decoder.notes) == 4


def test_a_decimal_is_read_where_it_is_short_and_never_where_it_is_long(
    registry: RegistryServer, decoder: SchemaDecoder
) -> None:
    def framed_decimal(number: int, size: int) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(
            out, fastavro.parse_schema("bytes"), number.to_bytes(size, "big", signed=True)
        )
        return framed(50, out.getvalue())

    registry.add(50, "AVRO", '{"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 2}')
    assert decoder.decoded(framed_decimal(-1250, 2), ()) == -12.5
    assert decoder.decoded(framed_decimal(-1200, 17), ()) == -12
    assert decoder.decoded(framed_decimal(10**40 + 1, 17), ()) == float(Decimal(10**40 + 1) / 100)
    for size in (18, 900_000):
        with refused(
            decoder.decoded(framed_decimal(1, size), ()), reasons.NOT_AS_SCHEMA, "more than 40 digits"
        ):
            pass
    for scale in (-1, 41, 999_999_999):
        schema = {"type": "bytes", "logicalType": "decimal", "precision": 10**9, "scale": scale}
        registry.add(60 + abs(scale), "AVRO", json.dumps(schema))
        assert isinstance(decoder.decoded(framed(60 + abs(scale), b"\x02\x01"), ()), BadItemError)


@pytest.mark.parametrize("name", ["", pytest.param("a" * 400, id="long"), "a/b", "\0", "../x"])
def test_names_of_source_that_no_file_can_have_are_of_their_schema_alone(
    registry: RegistryServer, decoder: SchemaDecoder, name: str
) -> None:
    registry.add(70, "PROTOBUF", 'syntax = "proto3";', subject="a")
    registry.add(70, "PROTOBUF", 'syntax = "proto3";', subject="b")
    source = 'syntax = "proto3"; message M { string a = 1; }'
    registry.add(71, "PROTOBUF", source, references=[("a", "a", 1), (name, "b", 1)])
    with refused(decoder.decoded(framed(71, b"", b"\x00"), ()), reasons.UNKNOWN_SCHEMA):
        assert decoder.decoded(AVRO_BY_ID, ()) == SAID


def test_the_compiler_imports_nothing_of_the_working_directory(
    registry: RegistryServer, decoder: SchemaDecoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "grpc_tools").mkdir()
    (tmp_path / "grpc_tools" / "__init__.py").write_text("raise SystemExit('imported from here')")
    monkeypatch.chdir(tmp_path)
    registry.add(72, "PROTOBUF", 'syntax = "proto3"; message M { string a = 1; }')
    assert decoder.decoded(framed(72, b"\x0a\x01x", b"\x00"), ()) == {"a": "x"}


def test_a_schema_that_is_mended_is_read_a_minute_later(registry: RegistryServer, tmp_path: Path) -> None:
    now = 0.0
    by = SchemaDecoder(SchemaRegistry(RegistrySettings(registry.url), tmp_path, clock=lambda: now))
    registry.add(73, "AVRO", "{")
    for _ in range(2):
        with refused(by.decoded(framed(73, b"\x02"), ()), reasons.UNKNOWN_SCHEMA, "no Avro"):
            assert not (tmp_path / "73.json").exists()
    registry.add(73, "AVRO", '"long"')
    now = UNKNOWN_FOR_S
    assert by.decoded(framed(73, b"\x02"), ()) == 1


def test_a_machine_without_room_is_waited_for(
    decoder: SchemaDecoder, registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*words: Any, **more: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    registry.add(74, "PROTOBUF", 'syntax = "proto3"; message M { string a = 1; }')
    monkeypatch.setattr(protobuf_values.tempfile, "TemporaryDirectory", full)
    with pytest.raises(StreamUnavailable, match="No space left"):
        decoder.decoded(framed(74, b"", b"\x00"), ())
    monkeypatch.undo()
    assert decoder.decoded(framed(74, b"", b"\x00"), ()) == {}


POOL = "google.protobuf.descriptor_pool"


@pytest.mark.parametrize(
    ("module", "value", "extra"), [("fastavro", AVRO_BY_ID, "avro"), (POOL, PROTO_BY_ID, "protobuf")]
)
def test_without_the_library_records_wait(
    decoder: SchemaDecoder, monkeypatch: pytest.MonkeyPatch, module: str, value: bytes, extra: str
) -> None:
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(StreamUnavailable, match=rf"pip install 'tripletd\[{extra}\]'"):
        decoder.decoded(value, ())
    monkeypatch.undo()
    assert isinstance(decoder.decoded(value, ()), dict)
