"""The writer's side: claim a number, put the state, commit the manifest. Fencing lives here.

Which numbers are taken is read from the store: by a version (its manifest is there) or by a claim.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Literal

from checkpoints.manifest import ArraySpec, FileEntry, Manifest, VersionMeta
from checkpoints.store import (
    VERSIONS,
    BadKey,
    BlobStore,
    CheckpointError,
    Damaged,
    KeyExists,
    KeyMissing,
    PutResult,
    Superseded,
    folder,
    folder_number,
    manifest_key,
    manifest_number,
    number_in_the_way,
)


def read_manifest(store: BlobStore, number: int) -> Manifest:
    """The manifest of `number`, checked. Raises Damaged (`missing` without one) or FutureFormat."""
    key = manifest_key(number)
    try:
        manifest = Manifest.from_json(store.get(key), key)
    except KeyMissing:
        raise _missing(store, number) from None
    except BadKey as error:
        raise Damaged("mismatch", error.place, error.problem) from error
    if manifest.number != number:
        raise Damaged("mismatch", key, f"says it is version {manifest.number}")
    return manifest


def numbers(store: BlobStore) -> list[int]:
    """Every number that is taken, ascending: versions, claims, and where a file or link is in the way."""
    committed, in_the_way = _taken(store)
    return sorted(committed | in_the_way)


def _taken(store: BlobStore) -> tuple[set[int], set[int]]:
    """Numbers with a manifest; numbers in whose folder's place something else stands."""
    keys = store.list(VERSIONS)
    committed = {n for n in map(manifest_number, keys) if n is not None}
    return committed, {n for n in map(number_in_the_way, keys) if n is not None}


def _missing(store: BlobStore, number: int) -> Damaged:
    if number in _taken(store)[1]:
        place, problem = folder(number).rstrip("/"), "is a file or a link, not the folder of a version"
        return Damaged("mismatch", place, problem, "put the folder back or remove it; no other is affected")
    return Damaged("missing", manifest_key(number), "there is no such version")


FULL_LOOK_S = 10.0
"""Between two full looks of `Listing.poll`, which otherwise only asks whether there is a next number."""


class Listing:
    """Versions and claims in `store`; remembers what each number is, since that never changes."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._claims: dict[int, bool] = {}
        self._polled: tuple[float, list[int], int] | None = None

    def versions(self) -> list[int]:
        """Committed versions, ascending, also those whose manifest is damaged: loading one says why."""
        return [n for n, claim in self._kinds().items() if not claim]

    def poll(self) -> list[int]:
        """`versions`, at the price of one question while nothing is new: whether there is a next number. Not
        to be altered; the same list as before where nothing has changed.

        What that question cannot tell (a version that was deleted, one after a gap) is found by a full look
        every FULL_LOOK_S: until then a deleted version may still be named.
        """
        now, known = time.monotonic(), self._polled
        if known is not None and now - known[0] < FULL_LOOK_S:
            following = manifest_key(known[2] + 1)
            if following not in self._store.list(following):
                return known[1]
        kinds = self._kinds()
        found = [n for n, claim in kinds.items() if not claim]
        if known is not None and found == known[1]:
            found = known[1]
        self._polled = now, found, max(kinds, default=-1)
        return found

    def claims(self) -> list[int]:
        """Numbers that writers took to fence off older ones, ascending."""
        return [n for n, claim in self._kinds().items() if claim]

    def candidates(self) -> list[int]:
        """Versions, and numbers in whose folder's place something else stands: once a version, maybe."""
        return sorted({*self.versions(), *_taken(self._store)[1]})

    def _kinds(self) -> dict[int, bool]:
        found = {}
        for number in sorted(_taken(self._store)[0]):
            if number not in self._claims:
                try:
                    self._claims[number] = read_manifest(self._store, number).kind == "claim"
                except Damaged:
                    found[number] = False
                    continue
            found[number] = self._claims[number]
        self._claims = {n: claim for n, claim in self._claims.items() if n in found}
        return found


def new_line() -> str:
    """A random id for a line of history."""
    return os.urandom(8).hex()


@dataclass(slots=True)
class Epoch:
    """A writer's right to publish: fencing number, its random token, the next number it may put, and the line
    of history that it continues or begins.
    """

    number: int
    writer: str
    next_number: int
    line: str = field(default_factory=new_line)


@dataclass(frozen=True, slots=True)
class StateFile:
    """A state file that is durable and not yet named by a manifest."""

    key: str
    put: PutResult
    arrays: tuple[ArraySpec, ...]


def claim(store: BlobStore, after: int = -1, line: str | None = None) -> Epoch:
    """Take the next number, so that an older writer's put of it fails; sweep what dead writers left.

    The number is above `after`. The epoch's line is `line`, by default that of the newest version that can be
    read; a new one where none has any.

    The claim's record says in `runtime` who holds it ({host, pid}): a superseded writer reports it.

    On an empty store nothing is written: publishing version 0 is the claim. Raises WriteFailed.
    """
    store.sweep()
    writer, number = os.urandom(16).hex(), max(0, after)
    line = line or _newest_line(store) or new_line()
    while True:
        taken = numbers(store)
        if not taken:
            return Epoch(0, writer, 0, line)
        number = max(taken[-1], number) + 1
        holder = VersionMeta(runtime={"host": socket.gethostname(), "pid": os.getpid()})
        record = _manifest(holder, "claim", Epoch(number, writer, number, line))
        try:
            store.put_new(manifest_key(number), [record.to_json()])
        except KeyExists:
            continue
        _sweep_orphans(store, number)
        return Epoch(number, writer, number + 1, line)


def _newest_line(store: BlobStore) -> str:
    """The line of the newest version that can be read, "" where it has none."""
    for number in reversed(numbers(store)):
        try:
            record = read_manifest(store, number)
        except CheckpointError:
            continue
        if record.kind == "version":
            return record.line
    return ""


def next_state_key(store: BlobStore, epoch: Epoch) -> str:
    """A fresh name for the next state file, its number and all after it checked to be free.

    Raises Superseded when another writer has taken one of them: its claim may be pruned long since.
    """
    while taken := [number for number in numbers(store) if number >= epoch.next_number]:
        if taken[0] > epoch.next_number:
            raise _superseded(store, taken[0])
        _skip_own(store, epoch)
    # The random part keeps a retry, or two writers racing for version 0, from meeting in one file.
    return f"{folder(epoch.next_number)}state-{epoch.number}-{os.urandom(4).hex()}.safetensors"


def commit(store: BlobStore, epoch: Epoch, meta: VersionMeta, state: StateFile) -> Manifest:
    """Write the manifest of the durable `state` file: the version exists from here on.

    On any error the state file is removed again. Raises Superseded, WriteFailed, ValueError (a value in
    `meta` that JSON cannot carry).
    """
    name = state.key.rpartition("/")[2]
    manifest = _manifest(
        meta,
        "version",
        epoch,
        files=(FileEntry(name, state.put.size, state.put.sha256),),
        arrays=state.arrays,
        state_hash=state.put.sha256,
    )
    try:
        store.put_new(manifest_key(epoch.next_number), [manifest.to_json()])
    except KeyExists:
        discard(store, state.key)
        raise _superseded(store, epoch.next_number) from None
    except (CheckpointError, ValueError):
        # The manifest may be there all the same (only its folder's fsync failed): then the file must stay.
        if manifest_key(epoch.next_number) not in store.list(folder(epoch.next_number)):
            discard(store, state.key)
        raise
    epoch.next_number += 1
    return manifest


def check_writer(store: BlobStore, epoch: Epoch) -> None:
    """Raise Superseded when another writer has taken a number since: ask before what no put fences.

    Deleting, or sending dead letters, does not fail by itself after a freeze of any length; a put does.
    """
    after = epoch.next_number
    for number in numbers(store):
        if number >= after and not _is_own(store, number, epoch):
            raise _superseded(store, number)


def check_next(store: BlobStore, epoch: Epoch) -> None:
    """Raise Superseded when another writer has taken the number that this one puts next.

    As `check_writer`, but by one look instead of a listing: a claim that was pruned since is not found.
    """
    number = epoch.next_number
    try:
        record = Manifest.from_json(store.get(manifest_key(number)), manifest_key(number))
    except CheckpointError:
        return
    if record.writer != epoch.writer:
        raise _superseded(store, number)


def discard(store: BlobStore, key: str) -> None:
    """Remove a file that no manifest names; what cannot be removed now is swept at the next claim."""
    with contextlib.suppress(CheckpointError):
        store.delete(key)


def _manifest(meta: VersionMeta, kind: Literal["version", "claim"], epoch: Epoch, **stored: Any) -> Manifest:
    shared = {f.name: getattr(meta, f.name) for f in fields(VersionMeta)}
    return Manifest(
        **shared,
        **stored,
        kind=kind,
        number=epoch.next_number,
        epoch=epoch.number,
        writer=epoch.writer,
        line=epoch.line,
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )


def _skip_own(store: BlobStore, epoch: Epoch) -> None:
    """Step over a number that this writer took in a put whose outcome it could not know."""
    if not _is_own(store, epoch.next_number, epoch):
        raise _superseded(store, epoch.next_number)
    epoch.next_number += 1


def _is_own(store: BlobStore, number: int, epoch: Epoch) -> bool:
    try:
        return read_manifest(store, number).writer == epoch.writer
    except Damaged:
        return False


def _superseded(store: BlobStore, number: int) -> Superseded:
    return Superseded(
        f"version {number}",
        f"{_holder(store, number)} has taken this number",
        "this process stops; let one learner write to a checkpoint folder",
    )


def _holder(store: BlobStore, number: int) -> str:
    """Who took a number, as far as its record tells (a version tells no process, only the epoch)."""
    try:
        record = read_manifest(store, number)
    except CheckpointError:
        return "another writer"
    at = record.runtime
    process = f" (process {at['pid']} on {at['host']})" if record.kind == "claim" and "pid" in at else ""
    return f"the writer of epoch {record.epoch}{process} of {record.created}"


def _sweep_orphans(store: BlobStore, claimed: int) -> None:
    """Remove state files up to `claimed` that no manifest names: their writers are dead or superseded."""
    keys = store.list(VERSIONS)
    committed = {n for n in map(manifest_number, keys) if n is not None}
    for key in keys:
        number, name = folder_number(key), key.rpartition("/")[2]
        if number is None or number > claimed or not name.startswith("state-"):
            continue
        with contextlib.suppress(CheckpointError):
            if number not in committed or all(name != f.name for f in read_manifest(store, number).files):
                store.delete(key)
