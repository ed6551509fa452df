"""Protobuf -> the values that JSON would have had, under the names of the schema's fields.

    numbers, strings, booleans, repeated, messages    as in JSON; whole numbers of 64 bits stay numbers
    enum                                              its name; a number that has none
    map                                               an object
    bytes                                             base64 text
    Timestamp                                         ISO 8601 text: it says its own unit
    Duration                                          seconds
    wrappers (StringValue, ...), Struct, Value        what they hold

What was not set is not there. A number, truth value or enum without presence cannot tell: it has its default.
"""

from __future__ import annotations

import base64
import binascii
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from streams.feed import items as reasons
from streams.feed.follow.registry import RegisteredSchema, UnknownSchemaError
from streams.feed.items import BadItemError

MOST_VALUES = 250_000
"""Of one record: two bytes can be a message of any number of fields without presence."""
MOST_MEMORY = 48_000_000
"""Bytes that the messages of one record may take, each as many as its type has fields, set or not."""
COMPILE_SECONDS = 10.0
"""Well below `stream.stuck_after`, after which a turn of the loop is taken for a bug."""
_MAIN = "main-schema.proto"
_OF_GOOGLE = re.compile(r"google/protobuf/[a-z_]+\.proto")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ProtobufDecoders:
    """Reads messages of a schema, which may hold several types.

    Raises ImportError where a library is missing, UnknownSchemaError for what is no schema.
    """

    def __init__(self, schema: RegisteredSchema) -> None:
        from google.protobuf.descriptor_pool import DescriptorPool
        from google.protobuf.message_factory import GetMessageClass

        self._class_of = GetMessageClass
        self._pool = DescriptorPool()
        self._readers: dict[tuple[int, ...], Callable[[bytes], Any]] = {}
        files = _descriptors(schema)
        self._main = files[-1]
        known = {one.name for one in files}
        try:
            for one in files:
                self._add(one, known)
        except TypeError as error:
            raise UnknownSchemaError(f"it is no whole Protobuf schema: {error}"[:300]) from error

    def decoder(self, indexes: Sequence[int]) -> Callable[[bytes], Any]:
        """Of the message type that these indexes lead to, each into the types of the one before. Raises
        BadItemError where there is none; the decoder raises it, or anything else, for bytes that are none."""
        found = self._readers.get(tuple(indexes))
        if found is None:
            found = self._readers[tuple(indexes)] = self._reader(indexes)
        return found

    def _reader(self, indexes: Sequence[int]) -> Callable[[bytes], Any]:
        types, names = self._main.message_type, [self._main.package] if self._main.package else []
        for index in indexes:
            if not 0 <= index < len(types):
                raise BadItemError(reasons.NOT_AS_SCHEMA, f"the schema has no message {list(indexes)[:10]}")
            names.append(types[index].name)
            types = types[index].nested_type
        descriptor = self._pool.FindMessageTypeByName(".".join(names))
        message_class = self._class_of(descriptor)
        most = 2 * MOST_MEMORY // (48 + 12 * max(_fields_of_repeated(descriptor), default=0))

        def decode(body: bytes) -> Any:
            if len(body) > most:
                raise BadItemError(reasons.TOO_LONG, f"by its schema a record has at most {most:,} bytes")
            message = message_class()
            message.ParseFromString(body)
            return MessageValues(MOST_VALUES).of(message)

        return decode

    def _add(self, file: Any, known: set[str]) -> None:
        """Put a file into the pool, after those of Protobuf itself that it imports. What nobody has is left
        out: mostly options, which no value depends on; where it has a type that is needed, TypeError."""
        public = {file.dependency[at] for at in file.public_dependency}
        for name in [*file.dependency]:
            inner = None if name in known else _of_google(name)
            if inner is not None:
                known.add(name)
                self._add(inner, known)
            elif name not in known:
                file.dependency.remove(name)
        file.ClearField("weak_dependency")
        file.ClearField("public_dependency")
        file.public_dependency.extend(at for at, name in enumerate(file.dependency) if name in public)
        self._pool.AddSerializedFile(file.SerializeToString())


def _fields_of_repeated(descriptor: Any) -> Iterator[int]:
    seen: set[tuple[str, bool]] = set()
    left = [(descriptor, False)]
    while left:
        one, many = left.pop()
        if (one.full_name, many) in seen:
            continue
        seen.add((one.full_name, many))
        if many:
            yield len(one.fields)
        inner = [field for field in one.fields if field.message_type is not None]
        left += [(field.message_type, many or field.is_repeated) for field in inner]


class MessageValues:
    """Messages as plain values, at most `most` of them."""

    def __init__(self, most: int) -> None:
        self._left = most

    def of(self, message: Any) -> Any:
        """One message. Raises ValueError for too many values."""
        descriptor = message.DESCRIPTOR
        known = _WELL_KNOWN.get(descriptor.full_name)
        fields = descriptor.fields
        self._left -= 2 * message.ByteSize() if known is _json_value else len(fields)
        if self._left < 0:
            raise ValueError(f"it holds more than {MOST_VALUES:,} values")
        if known is not None:
            return known(message)
        return dict(self._set_fields(message, fields))

    def _set_fields(self, message: Any, fields: Any) -> Iterator[tuple[str, Any]]:
        for field in fields:
            name = field.name
            if field.has_presence:
                if message.HasField(name):
                    yield name, self._one(field, getattr(message, name))
            elif field.is_repeated:
                values = getattr(message, name)
                if values:
                    yield name, self._many(field, values)
            else:
                value = getattr(message, name)
                if value not in ("", b""):
                    yield name, self._one(field, value)

    def _many(self, field: Any, values: Any) -> Any:
        self._left -= len(values)
        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            of = inner.fields_by_name["value"]
            keys = {name: str(name).lower() if type(name) is bool else str(name) for name in values}
            return {key: self._one(of, values[name]) for name, key in keys.items()}
        if field.cpp_type == field.CPPTYPE_STRING and field.type != field.TYPE_BYTES:
            return list(values)
        return [self._one(field, one) for one in values]

    def _one(self, field: Any, value: Any) -> Any:
        if field.message_type is not None:
            return self.of(value)
        if field.enum_type is not None:
            named = field.enum_type.values_by_number.get(value)
            return value if named is None else named.name
        return _as_json(value)


def _as_json(value: Any) -> Any:
    return base64.b64encode(value).decode() if type(value) is bytes else value


def _json_value(message: Any) -> Any:
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(message)


_WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_WELL_KNOWN: dict[str, Callable[[Any], Any]] = {
    "google.protobuf.Timestamp": lambda message: (
        _EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    ).isoformat(),
    "google.protobuf.Duration": lambda message: message.seconds + message.nanos / 1e9,
    **{f"google.protobuf.{name}Value": lambda message: _as_json(message.value) for name in _WRAPPED},
    **{f"google.protobuf.{name}": _json_value for name in ("Struct", "Value", "ListValue")},
}


def _of_google(name: str) -> Any:
    """A file that comes with Protobuf, None for another."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if not _OF_GOOGLE.fullmatch(name):
        return None
    try:
        module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ImportError:
        return None
    return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


def _descriptors(schema: RegisteredSchema) -> list[Any]:
    """Files of a schema, each after what it imports; the schema itself comes last."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    texts = [*schema.references, (_MAIN, schema.text)]
    try:
        packed = [(name, base64.b64decode(text, validate=True)) for name, text in texts]
    except (binascii.Error, ValueError):
        return _compiled(texts)
    found = []
    for name, data in packed:
        try:
            file = FileDescriptorProto.FromString(data)
        except DecodeError as error:
            raise UnknownSchemaError(f"{name} is no Protobuf descriptor: {error}"[:300]) from error
        file.name = name
        found.append(file)
    return found


def _compiled(texts: Sequence[tuple[str, str]]) -> list[Any]:
    """Files of .proto source, by protoc in a process of its own: whatever source does to it ends it alone."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    if find_spec("grpc_tools") is None:
        raise ImportError("the registry gives Protobuf as source, which grpcio-tools compiles")
    with tempfile.TemporaryDirectory(prefix="tripletd-") as folder:
        for name, text in texts:
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\0" in name:
                raise UnknownSchemaError(f"it imports {name[:80]!r}")
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        out = Path(folder, "descriptors.out")
        words = ["-m", "grpc_tools.protoc", f"-I{folder}", "--include_imports", f"--descriptor_set_out={out}"]
        try:
            done = subprocess.run(  # noqa: PLW1510
                [sys.executable, "-P", *words, _MAIN], capture_output=True, timeout=COMPILE_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise UnknownSchemaError("protoc took too long") from None
        if done.returncode:
            told = done.stderr.decode(errors="replace").strip().replace("\n", "; ")
            raise UnknownSchemaError(f"it cannot be compiled: {told or done.returncode}"[:300])
        return list(FileDescriptorSet.FromString(out.read_bytes()).file)
