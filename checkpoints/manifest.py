"""What a version says about itself, and the sealed JSON that all small records of a store are written in.

A sealed record is UTF-8 JSON, one object, whose last member is `"sha256"`. The file ends with the exact
79 bytes `"sha256": "<64 hex digits>"\n}\n` and the digest is that of every byte before them. Its fields are
read strictly: each by name and type, and none may be left over. A manifest is written last, create-only; its
presence is the commit.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal, NoReturn, TypeVar

from checkpoints.store import BadKey, Damaged, FutureFormat, check_name

T = TypeVar("T")


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

    def text(self, name: str, form: str = "", what: str = "") -> str:
        """A string, all of it of the regular expression `form` where that is given: `what`, for messages."""
        value = self._take(name)
        if not isinstance(value, str):
            self.refuse(name, f"{value!r} is not a string")
        if form and not re.fullmatch(form, value):
            self.refuse(name, f"{value!r} is not {what}")
        return value

    def mapping(self, name: str) -> dict[str, Any]:
        """Read a JSON object."""
        value = self._take(name)
        if not isinstance(value, dict):
            self.refuse(name, "is not an object")
        return value

    def sequence(self, name: str) -> list[Any]:
        """Read a JSON array."""
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
    return at.text(name, "[0-9a-f]{64}", "a sha256")


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


def open_sealed(data: bytes, place: str, known: tuple[int, ...], what: str) -> tuple[int, RecordFields]:
    """The format of a sealed record, one of those `known`, and its other fields.

    what: of what formats, for messages. Raises Damaged, or FutureFormat.
    """
    record = unseal(data, place)
    version = record.pop("format", None)
    if type(version) is not int or version not in known:
        formats = f"{what} {known[0]}" if len(known) == 1 else f"{what}s {known[0]} to {known[-1]}"
        raise FutureFormat(place, version, formats)
    return version, RecordFields(record, place)


FORMAT = 2
WITHOUT_LINE = 1
"""The format before versions had a line."""
OF_A_SHARD = 3
"""The format of versions that learn a part of the partitions, from a merged version on; others stay at
FORMAT."""

_FAST_DIGEST = "[0-9a-f]{32}", "an xxh3_128"

ScheduleEntry = tuple[int, int, int] | dict[str, Any]


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a version: name inside its folder, size in bytes, sha256 in hex."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """One array of the state: name, safetensors dtype (`F32`, `I64` ...), shape.

    `digest`: xxh3_128 (hex) of its bytes, which a manifest always has; specs are equal without it.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    digest: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class PartitionPosition:
    """Next offset to read in one partition, and the sha256 of the last record applied before it."""

    next_offset: int
    last_digest: str | None = None


@dataclass(frozen=True, kw_only=True)
class VersionMeta:
    """What the learner's side knows about the state it hands over.

    `learner` {name, config, config_digest}; `map` {id, spec}; `stream` {log_id, topic, topic_id,
    partitions}; `schedule` [partition, from_offset, to_offset) runs and control entries {"control": ...}
    applied since `parent`; `counters` numbers by name; `watermark` newest event time applied, ms;
    `runtime` {packages, cpu_level}. `shard`: of a version that one of several learners wrote, which one it is
    and the merged version that it began from or took over last; empty for all others.
    """

    learner: dict[str, Any] = field(default_factory=dict)
    space: str = ""
    map: dict[str, Any] = field(default_factory=dict)
    catalog_digest: str | None = None
    seed: int = 0
    parent: int | None = None
    positions: dict[int, PartitionPosition] = field(default_factory=dict)
    stream: dict[str, Any] = field(default_factory=dict)
    schedule: tuple[ScheduleEntry, ...] = ()
    counters: dict[str, int | float] = field(default_factory=dict)
    watermark: int | None = None
    runtime: dict[str, Any] = field(default_factory=dict)
    shard: dict[str, Any] = field(default_factory=dict)


_IN_ORDER = (
    *("format", "kind", "number", "parent", "epoch", "writer", "line", "created", "learner", "space", "map"),
    *("catalog_digest", "seed", "positions", "stream", "schedule", "counters", "watermark", "files"),
    *("arrays", "state_hash", "runtime", "shard"),
)
"""The fields of a manifest as they stand in its file."""


@dataclass(frozen=True, kw_only=True)
class Manifest(VersionMeta):
    """One numbered version (or a writer's claim of a number): `VersionMeta` plus how it is stored.

    `state_hash` is the sha256 of the state file, which is a canonical encoding of the state arrays.
    `writer` is the random token of the process that wrote it, `epoch` its fencing number. `line` is the id of
    its line of history, within which a number names one state; "" in manifests of format 1.
    """

    kind: Literal["version", "claim"]
    number: int
    epoch: int
    writer: str
    created: str
    files: tuple[FileEntry, ...] = ()
    arrays: tuple[ArraySpec, ...] = ()
    state_hash: str = ""
    line: str = ""
    format: int = FORMAT

    @property
    def name(self) -> str:
        """What names this state and no other: `<line>@<number>`, the number alone where no line is known."""
        return f"{self.line}@{self.number}" if self.line else str(self.number)

    def to_json(self) -> bytes:
        """Sealed JSON of this manifest. ValueError for values that JSON cannot carry."""
        left_out = {"line": self.format == WITHOUT_LINE, "shard": not self.shard}
        record = {name: getattr(self, name) for name in _IN_ORDER if not left_out.get(name)}
        record["format"] = OF_A_SHARD if self.shard else self.format
        record["positions"] = {str(p): asdict(at) for p, at in sorted(self.positions.items())}
        record |= {name: [asdict(one) for one in record[name]] for name in ("files", "arrays")}
        return seal(record)

    @staticmethod
    def from_json(data: bytes, place: str) -> Manifest:
        """Strict inverse of `to_json`. Raises FutureFormat, or Damaged naming place and field."""
        return _parse(*open_sealed(data, place, (WITHOUT_LINE, FORMAT, OF_A_SHARD), "manifest format"))


def _parse(version: int, at: RecordFields) -> Manifest:
    """Manifest from checked fields; every field is required, none may be left over."""
    kind = at.text("kind")
    if kind not in ("version", "claim"):
        at.refuse("kind", f"{kind!r} is neither 'version' nor 'claim'")
    manifest = Manifest(
        format=version,
        line="" if version == WITHOUT_LINE else at.text("line", "[0-9a-f]{16}|", "the id of a line"),
        kind="version" if kind == "version" else "claim",
        number=at.integer("number"),
        parent=at.optional("parent", at.integer),
        epoch=at.integer("epoch"),
        writer=at.text("writer"),
        created=at.text("created"),
        learner=at.mapping("learner"),
        space=at.text("space"),
        map=at.mapping("map"),
        catalog_digest=at.optional("catalog_digest", at.text),
        seed=at.integer("seed", low=None),
        positions=_positions(at),
        stream=at.mapping("stream"),
        schedule=tuple(_schedule_entry(at, i, e) for i, e in enumerate(at.sequence("schedule"))),
        counters=numbers(at, "counters"),
        watermark=at.optional("watermark", lambda name: at.integer(name, low=None)),
        files=tuple(
            FileEntry(file_name(f, "name"), f.integer("size"), digest(f, "sha256"))
            for f in at.records("files", ("name", "size", "sha256"))
        ),
        arrays=tuple(
            ArraySpec(a.text("name"), a.text("dtype"), shape(a, "shape"), a.text("digest", *_FAST_DIGEST))
            for a in at.records("arrays", ("name", "dtype", "shape", "digest"))
        ),
        state_hash=at.text("state_hash"),
        runtime=at.mapping("runtime"),
        shard=at.mapping("shard") if version == OF_A_SHARD else {},
    )
    at.nothing_left()
    return manifest


def _positions(at: RecordFields) -> dict[int, PartitionPosition]:
    out = {}
    for name, record in at.mapping("positions").items():
        inside = at.inside(f"positions.{name}", record, ("next_offset", "last_digest"))
        if not name.isdecimal():
            at.refuse("positions", f"{name!r} is not a partition number")
        out[int(name)] = PartitionPosition(
            inside.integer("next_offset"), inside.optional("last_digest", partial(digest, inside))
        )
    return out


def _schedule_entry(at: RecordFields, index: int, entry: object) -> ScheduleEntry:
    """A run [partition, from, to] with from < to, or a control object."""
    if isinstance(entry, dict) and isinstance(entry.get("control"), str):
        return entry
    whole = isinstance(entry, list) and all(type(part) is int and part >= 0 for part in entry)
    if not (isinstance(entry, list) and whole and len(entry) == 3 and entry[1] < entry[2]):
        at.refuse(f"schedule[{index}]", "neither [partition, from, to], from < to, nor a control entry")
    return entry[0], entry[1], entry[2]
