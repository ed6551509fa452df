"""The writer's side: claim a number, put the state, commit the manifest. Fencing lives here."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Literal

from checkpoints.errors import CheckpointError, Damaged, KeyExists, Superseded
from checkpoints.keys import VERSIONS, folder, folder_number, manifest_key, manifest_number
from checkpoints.listing import numbers, read_manifest
from checkpoints.manifest import ArraySpec, FileEntry, Manifest, VersionMeta
from checkpoints.store import BlobStore, PutResult


@dataclass(slots=True)
class Epoch:
    """A writer's right to publish: fencing number, its random token, the next number it may put."""

    number: int
    writer: str
    next_number: int


@dataclass(frozen=True, slots=True)
class StateFile:
    """A state file that is durable and not yet named by a manifest."""

    key: str
    put: PutResult
    arrays: tuple[ArraySpec, ...]


def claim(store: BlobStore) -> Epoch:
    """Take the next number, so that an older writer's put of it fails; sweep what dead writers left.

    The claim's record says in `runtime` who holds it ({host, pid}): a superseded writer reports it.

    On an empty store nothing is written: publishing version 0 is the claim. Raises WriteFailed.
    """
    store.sweep()
    writer, number = os.urandom(16).hex(), 0
    while True:
        taken = numbers(store)
        if not taken:
            return Epoch(0, writer, 0)
        number = max(taken[-1], number) + 1
        holder = VersionMeta(runtime={"host": socket.gethostname(), "pid": os.getpid()})
        record = _manifest(holder, "claim", Epoch(number, writer, number))
        try:
            store.put_new(manifest_key(number), [record.to_json()])
        except KeyExists:
            continue
        _sweep_orphans(store, number)
        return Epoch(number, writer, number + 1)


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
