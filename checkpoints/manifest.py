"""What a version says about itself: written last, create-only; its presence is the commit."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from checkpoints.errors import Damaged, FutureFormat
from checkpoints.records import RecordFields, digest, fast_digest, file_name, numbers, seal, shape, unseal

FORMAT = 1

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
    `runtime` {packages, cpu_level}.
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


@dataclass(frozen=True, kw_only=True)
class Manifest(VersionMeta):
    """One numbered version (or a writer's claim of a number): `VersionMeta` plus how it is stored.

    `state_hash` is the sha256 of the state file, which is a canonical encoding of the state arrays.
    `writer` is the random token of the process that wrote it, `epoch` its fencing number.
    """

    kind: Literal["version", "claim"]
    number: int
    epoch: int
    writer: str
    created: str
    files: tuple[FileEntry, ...] = ()
    arrays: tuple[ArraySpec, ...] = ()
    state_hash: str = ""
    format: int = FORMAT

    def to_json(self) -> bytes:
        """Sealed JSON of this manifest. ValueError for values that JSON cannot carry."""
        return seal(
            {
                "format": self.format,
                "kind": self.kind,
                "number": self.number,
                "parent": self.parent,
                "epoch": self.epoch,
                "writer": self.writer,
                "created": self.created,
                "learner": self.learner,
                "space": self.space,
                "map": self.map,
                "catalog_digest": self.catalog_digest,
                "seed": self.seed,
                "positions": {
                    str(partition): {"next_offset": at.next_offset, "last_digest": at.last_digest}
                    for partition, at in sorted(self.positions.items())
                },
                "stream": self.stream,
                "schedule": [entry if isinstance(entry, dict) else list(entry) for entry in self.schedule],
                "counters": self.counters,
                "watermark": self.watermark,
                "files": [{"name": f.name, "size": f.size, "sha256": f.sha256} for f in self.files],
                "arrays": [
                    {"name": a.name, "dtype": a.dtype, "shape": list(a.shape), "digest": a.digest}
                    for a in self.arrays
                ],
                "state_hash": self.state_hash,
                "runtime": self.runtime,
            }
        )

    @staticmethod
    def from_json(data: bytes, place: str) -> Manifest:
        """Strict inverse of `to_json`. Raises FutureFormat, or Damaged naming place and field."""
        record = unseal(data, place)
        if record.get("format") != FORMAT or isinstance(record.get("format"), bool):
            raise FutureFormat(place, record.get("format"), f"manifest format {FORMAT}")
        return _parse(RecordFields(record, place))


def _parse(at: RecordFields) -> Manifest:
    """Manifest from checked fields; every field is required, none may be left over."""
    kind = at.text("kind")
    if kind not in ("version", "claim"):
        raise Damaged("malformed", at.place, f"field kind: {kind!r} is neither 'version' nor 'claim'")
    manifest = Manifest(
        format=at.integer("format"),
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
            ArraySpec(a.text("name"), a.text("dtype"), shape(a, "shape"), fast_digest(a, "digest"))
            for a in at.records("arrays", ("name", "dtype", "shape", "digest"))
        ),
        state_hash=at.text("state_hash"),
        runtime=at.mapping("runtime"),
    )
    at.nothing_left()
    return manifest


def _positions(at: RecordFields) -> dict[int, PartitionPosition]:
    """`positions` with partition numbers as integers again."""
    out = {}
    for name, record in at.mapping("positions").items():
        inside = at.inside(f"positions.{name}", record, ("next_offset", "last_digest"))
        if not name.isdecimal():
            raise Damaged("malformed", at.place, f"field positions: {name!r} is not a partition number")
        out[int(name)] = PartitionPosition(
            inside.integer("next_offset"), inside.optional("last_digest", partial(digest, inside))
        )
    return out


def _schedule_entry(at: RecordFields, index: int, entry: object) -> ScheduleEntry:
    """A run [partition, from, to] with from < to, or a control object."""
    if isinstance(entry, dict) and isinstance(entry.get("control"), str):
        return entry
    if (
        isinstance(entry, list)
        and len(entry) == 3
        and all(type(part) is int and part >= 0 for part in entry)
        and entry[1] < entry[2]
    ):
        return entry[0], entry[1], entry[2]
    raise Damaged(
        "malformed",
        at.place,
        f"field schedule[{index}]: neither [partition, from, to], from < to, nor a control entry",
    )
