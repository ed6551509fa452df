"""What versions record of shards: several learners over one topic, each with a line of versions of its own,
and a merged line that is theirs together. Pure.

A version of a shard says in `Manifest.shard` which merged version it goes on from, and how much of its own
work that one holds already. A merged version says in its schedule, in one entry `merge`, which version of
each shard it holds:

    merged       0 ----------- 1 ----------- 2          each the parent of the next
                  \\         /   \\         /
    shard 0        0 - 1 - 2 - 3 - 4 - 5 - 6            takes over 1 after its version 3, say

Version 2 of shard 0 is in merged version 1; shard 0 takes that over as soon as it sees it, and keeps on top
what it has learned meanwhile, which the next merged version will hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from checkpoints.manifest import Manifest
from daemon.exits import EX_DATAERR, UserError
from daemon.versions.contents import RECORDS, counted, written_ms
from streams.shards import Shard

FOLDER = "shards"
"""Where the lines of shards are, in the folder of the merged one."""
MERGE = "merge"
"""The control entry of a merged version: which version of each shard it holds."""
ADOPT = "adopt"
"""The control entry of a shard that begins with a merged version, or takes it over."""


def address_of(root: str, shard: Shard) -> str:
    """Where the versions of a shard are, from the address of the merged ones."""
    return f"{root.rstrip('/')}/{FOLDER}/{shard.name}"


@contextmanager
def _readable(what: str) -> Iterator[None]:
    """Raises UserError where a record is not as it is written."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        problem = f"{what} that cannot be read: {error!r}"
        raise UserError(problem, "use the release that wrote it", EX_DATAERR) from error


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """What a shard's version says of where it stands.

    shard: which one. base, name: number and name of the merged version that it began with or took over last.
    counted: the version of the shard's own line that the merged one holds; the first one of that line where
    it holds none. since: the counters of that version, from which on events count for the next merge.
    """

    shard: Shard
    base: int
    name: str
    counted: int
    since: Mapping[str, int | float]

    @classmethod
    def of(cls, manifest: Manifest) -> ShardRecord | None:
        """That of a version; None where no shard wrote it. Raises UserError for what is no such record."""
        return cls.read(manifest.shard, f"version {manifest.number}") if manifest.shard else None

    @classmethod
    def read(cls, record: Mapping[str, Any], whose: str) -> ShardRecord:
        """Inverse of `json`. Raises UserError."""
        with _readable(f"{whose} has a record of its shard"):
            shard = Shard(int(record["number"]), int(record["of"]))
            base, counted = int(record["base"]), int(record["counted"])
            return cls(shard, base, str(record["name"]), counted, dict(record["since"]))

    def json(self) -> dict[str, Any]:
        """As manifests and control entries have it."""
        own = {"base": self.base, "name": self.name, "counted": self.counted, "since": dict(self.since)}
        return {"number": self.shard.number, "of": self.shard.of, **own}


@dataclass(frozen=True, slots=True)
class MergedPart:
    """What a merged version holds of one shard: its version, with the line and the writer of it.

    counters: the shard's there. state_hash: of that version. written: when, ms since the
    epoch, 0 where that is not known. updates: steps it brought to this merge; 0 where
    it brought none, and the part is that of the merge before.
    """

    shard: int
    version: int
    line: str
    writer: str
    counters: Mapping[str, int | float]
    state_hash: str
    written: int
    updates: int

    @classmethod
    def of(cls, manifest: Manifest, shard: int, updates: int) -> MergedPart:
        """The part that a shard's version is."""
        at = (manifest.line, manifest.writer, dict(manifest.counters), manifest.state_hash)
        return cls(shard, manifest.number, *at, written_ms(manifest) or 0, updates)

    @property
    def records(self) -> int:
        """The shard's records there, where its step log goes on."""
        return counted(self.counters, RECORDS)


@dataclass(frozen=True, slots=True)
class MergeRecord:
    """The entry `merge` of a version: what it holds of each of the shards, `of` in number. summed: it is the
    sum of their steps, not the mean by updates."""

    of: int
    parts: tuple[MergedPart, ...]
    summed: bool = False

    @classmethod
    def in_version(cls, manifest: Manifest) -> MergeRecord | None:
        """That of a merged version; None for others. Raises UserError for what is no such entry."""
        entries = [entry for entry in manifest.schedule if isinstance(entry, dict)]
        found = [entry for entry in entries if entry["control"] == MERGE]
        return cls.read(found[-1], manifest.number) if found else None

    @classmethod
    def read(cls, entry: Mapping[str, Any], number: int) -> MergeRecord:
        """Inverse of `entry`. Raises UserError."""
        with _readable(f"version {number} has a record of a merge"):
            parts = tuple(MergedPart(**part) for part in entry["parts"])
            return cls(int(entry["of"]), parts, bool(entry["summed"]))

    def entry(self) -> dict[str, Any]:
        """The control entry."""
        parts = [asdict(part) for part in self.parts]
        return {"control": MERGE, "of": self.of, "summed": self.summed, "parts": parts}

    def part(self, shard: Shard) -> MergedPart | None:
        """What it holds of this shard; None where it holds nothing of it."""
        mine = [part for part in self.parts if part.shard == shard.number]
        return mine[0] if mine and shard.of == self.of else None


@dataclass(frozen=True, slots=True)
class ShardStanding:
    """What a merged version holds of a shard whose own version goes on from it, or from an older one.

    own: the version of the shard's own line that it holds; `before`: the merged version that the shard went
    on from, where it holds nothing of the shard since that. Both None: the shard went on from just this one.
    """

    own: int | None = None
    before: int | None = None


def standing(merged: Manifest, mine: ShardRecord, line: str) -> ShardStanding:
    """How a shard stands to a merged version that is not older than the one it went on from. line: of the
    shard's own versions."""
    if mine.name == merged.name:
        return ShardStanding()
    part = news_of(merged, mine, line)
    return ShardStanding(before=mine.base) if part is None else ShardStanding(own=part.version)


def news_of(merged: Manifest, mine: ShardRecord, line: str) -> MergedPart | None:
    """What a merged version holds of a shard that the shard's record does not know of; None for nothing."""
    record = MergeRecord.in_version(merged)
    part = None if record is None else record.part(mine.shard)
    return part if part is not None and part.line == line and part.version > mine.counted else None


def brings(merged: Manifest, of_shard: Manifest) -> bool:
    """Whether a shard's version holds what the merged one does not: later records of its line. Raises
    UserError for a version of no shard."""
    mine = record_of(of_shard)
    part = news_of(merged, mine, of_shard.line)
    known = counted(mine.since, RECORDS) if part is None else part.records
    return counted(of_shard.counters, RECORDS) > known


def record_of(manifest: Manifest) -> ShardRecord:
    """The record of a shard's version. Raises UserError for a version of no shard."""
    found = ShardRecord.of(manifest)
    if found is None:
        message = f"version {manifest.number} is of no shard, but lies where a shard's versions belong"
        raise UserError(message, "name another folder in checkpoints.path, or move this one away", EX_DATAERR)
    return found


def added(counters: Mapping[str, int | float], since: Mapping[str, int | float]) -> dict[str, int | float]:
    """By how much each counter has grown."""
    return {name: value - since.get(name, 0) for name, value in counters.items()}


def summed(counters: Sequence[Mapping[str, int | float]]) -> dict[str, int | float]:
    """Counters added up, by name."""
    names = sorted({name for one in counters for name in one})
    return {name: sum(one.get(name, 0) for one in counters) for name in names}
