"""Takes the merged versions over into a shard: they are looked for and read off the loop, which then only
adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import structlog
from numpy.typing import NDArray

from checkpoints import Manifest, Version, VersionStore
from checkpoints.encoding import fresh
from checkpoints.manifest import ArraySpec
from checkpoints.store import CheckpointError, Damaged
from daemon.exits import EX_CONFIG, EX_TEMPFAIL, UserError
from daemon.learn.merges import Brought, adopt_entry, next_record
from daemon.learn.state import Entry
from daemon.runtime.watchdog import Pulse
from daemon.versions.contents import NOT_LEARNED, Arrays
from daemon.versions.shards import MergeRecord, ShardRecord, ShardStanding, news_of, record_of, standing
from streams.shards import Shard

MERGES_KEPT = 3
"""Of so many newest merged versions the shards keep what they brought."""

log = structlog.get_logger("tripletd.learn")


@dataclass(frozen=True, slots=True)
class Adoption:
    """A merged version to go on from, the arrays of what it holds of this shard, and the control entry."""

    merged: Version
    held: Arrays
    entry: Entry


class MergeWatch:
    """Looks for a newer merged version when called, in the housekeeper's thread; the loop takes what is
    ready.

    own: the shard's versions, in an object of this thread's own. merges: the merged ones, likewise.
    """

    def __init__(self, own: VersionStore, merges: VersionStore, newest: Manifest, pulse: Pulse) -> None:
        """newest: the version that the shard continues from."""
        self._own, self._merges, self._pulse = own, merges, pulse
        self._newest = newest
        self._trouble = ""
        self._ready: Adoption | None = None
        self._looked_at = -1

    def take(self) -> Adoption | None:
        """What is ready to be taken over, once."""
        ready, self._ready = self._ready, None
        return ready

    def published(self, version: Manifest) -> None:
        """A version of the shard is durable."""
        self._newest = version

    def __call__(self, record: ShardRecord) -> None:
        """Look, with the shard's record as it is now. Raises UserError where the shards are other ones by
        now."""
        if self._ready is not None:
            return
        try:
            number = max(self._merges.listing.poll(), default=-1)
            if number <= max(record.base, self._looked_at):
                return
            merged = self._merges.manifest(number)
            self._refuse_others(merged, record)
            with self._pulse.patient("reading a merged version"):
                self._ready = self._read(merged, record)
        except CheckpointError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.warning("a merged version is not taken over yet", why=str(error))
            return
        self._trouble, self._looked_at = "", number

    def _read(self, merged: Manifest, record: ShardRecord) -> Adoption:
        held = standing(merged, record, self._newest.line)
        if held.before is not None and self._merges.manifest(held.before).name != record.name:
            raise UserError(
                f"{record.name}, which this shard went on from, is not among the merged versions any more",
                "start again: it begins with the newest one, and learns again what that one lacks",
                EX_TEMPFAIL,
            )
        own = None if held.own is None else self._own.manifest(held.own)
        entry = adopt_entry(next_record(record, merged, own), before=held.before)
        arrays = self._merges.load(merged.number, learner_alone)
        return Adoption(arrays, held_arrays(held, self._own, self._merges), entry)

    def _refuse_others(self, merged: Manifest, record: ShardRecord) -> None:
        layout = MergeRecord.in_version(merged)
        if layout is not None and layout.of != record.shard.of:
            raise UserError(
                f"version {merged.number} is merged of {layout.of} shards, and this is one of "
                f"{record.shard.of}: the number of shards was changed",
                "stop this one, and start the shards that [shards] count names now; they go on from there",
                EX_CONFIG,
            )
        if merged.map.get("id") != self._newest.map.get("id"):
            raise UserError(
                f"version {merged.number} has another map than this shard learns with",
                "start again: it begins with that version",
                EX_TEMPFAIL,
            )


def held_arrays(held: ShardStanding, own: VersionStore, merges: VersionStore) -> Arrays:
    """The learner's arrays of what a merged version holds of a shard. Raises the errors of checkpoints."""
    number = held.before if held.own is None else held.own
    assert number is not None, "the shard went on from that very version: nothing is to be taken over"
    return (merges if held.own is None else own).load(number, learner_alone).arrays


def read_brought(base: Manifest, manifest: Manifest, own: VersionStore, merges: VersionStore) -> Brought:
    """A shard's version, and what the merged version `base` holds of that shard. own: the shard's versions.

    Raises the errors of checkpoints, and Damaged where under one of the numbers another version stands than
    was looked at: what one says of its events must never be taken with the arrays of another.
    """
    mine = record_of(manifest)
    held = standing(base, mine, manifest.line)
    part = news_of(base, mine, manifest.line)
    since = mine.since if part is None else part.counters
    version = own.load(manifest.number)
    _require_same("the shard's version", version.manifest.name, manifest.name)
    if part is not None:
        line = own.manifest(part.version).line
        _require_same("what was merged of the shard", f"{line}@{part.version}", f"{part.line}@{part.version}")
    elif held.before is not None:
        _require_same("the version it went on from", merges.manifest(held.before).name, mine.name)
    arrays = None if held == ShardStanding() else held_arrays(held, own, merges)
    return Brought(version, arrays, since)


def _require_same(what: str, found: str, wanted: str) -> None:
    if found != wanted:
        raise Damaged("mismatch", what, f"is {found}, not {wanted}", "its folder was replaced")


def learner_alone(spec: ArraySpec) -> NDArray[Any] | None:
    """Where an array of a version is read to: those that were learned alone are wanted."""
    return None if spec.name.startswith(NOT_LEARNED) else fresh(spec)


def versions_merged(merges: VersionStore, shard: Shard) -> set[int]:
    """Versions of a shard that the newest merged ones hold: it takes these to go on from those. Raises the
    errors of checkpoints."""
    found = set()
    for number in merges.versions()[-MERGES_KEPT:]:
        record = MergeRecord.in_version(merges.manifest(number))
        part = None if record is None else record.part(shard)
        if part is not None:
            found.add(part.version)
    return found
