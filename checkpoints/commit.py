"""The writer's side: claim a number, put the state, commit the manifest. Fencing lives here.

Which numbers are taken is read from the store: by a version (its manifest is there) or by a claim.

On one host a writer is held off before it begins, by a lock that ends with the process that holds it, however
that ends (`WriterLock`). It is an advisory lock (flock) on the folder itself: it leaves no file behind that
somebody must remove, and emptying the folder does not free it. It says who may start; what is written is
guarded by claims, also against writers on other hosts, whom the lock does not see.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
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
    LateListing,
    PutResult,
    Superseded,
    WriteFailed,
    folder,
    folder_number,
    is_there,
    listed,
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


def read_manifests(store: BlobStore, numbers: Sequence[int]) -> list[Manifest | Damaged]:
    """The manifest of each, or why it cannot be read; several at once where each is a request. Raises
    Unreachable.
    """

    def read(number: int) -> Manifest | Damaged:
        try:
            return read_manifest(store, number)
        except Damaged as error:
            return error

    if len(numbers) < 2 or not isinstance(store, LateListing):
        return [read(number) for number in numbers]
    with ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="manifests") as pool:
        return list(pool.map(read, numbers))


def numbers(store: BlobStore) -> list[int]:
    """Every number that is taken, ascending: versions, claims, and where a file or link is in the way."""
    committed, in_the_way = _taken(store)
    return sorted(committed | in_the_way)


def _taken(store: BlobStore) -> tuple[set[int], set[int]]:
    """Numbers with a manifest; numbers in whose folder's place something else stands."""
    keys = listed(store, VERSIONS, manifest_key, manifest_number)
    committed = {n for n in map(manifest_number, keys) if n is not None}
    return committed, {n for n in map(number_in_the_way, keys) if n is not None}


def _missing(store: BlobStore, number: int) -> Damaged:
    if number in _taken(store)[1]:
        place, problem = folder(number).rstrip("/"), "is a file or a link, not the folder of a version"
        return Damaged("mismatch", place, problem, "put the folder back or remove it; no other is affected")
    return Damaged("missing", manifest_key(number), "there is no such version")


FULL_LOOK_S = 10.0
"""Between two full looks of `Listing.poll`, which otherwise only asks whether there is a next number."""
READS_AT_ONCE = 8
"""Manifests on their way at the same time where each is a request."""


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
            if not is_there(self._store, following):
                return known[1]
        kinds = self._kinds()
        found = [n for n, claim in kinds.items() if not claim]
        if known is not None and found == known[1]:
            found = known[1]
        self._polled = now, found, max(kinds, default=-1)
        return found

    def claims(self) -> list[int]:
        """Numbers that writers took to fence off older ones, ascending."""
        return self.versions_and_claims()[1]

    def versions_and_claims(self) -> tuple[list[int], list[int]]:
        """`versions` and `claims`, by one look."""
        kinds = self._kinds()
        return [n for n, claim in kinds.items() if not claim], [n for n, claim in kinds.items() if claim]

    def candidates(self) -> list[int]:
        """Versions, and numbers in whose folder's place something else stands: once a version, maybe."""
        committed, in_the_way = _taken(self._store)
        return sorted({n for n, claim in self._kinds_of(committed).items() if not claim} | in_the_way)

    def newest_first(self) -> Iterator[tuple[int, Manifest | Damaged]]:
        """`candidates`, descending, each with its manifest, or why it cannot be read.

        One look, and then no manifest is read before it is asked for: however many versions there are, the
        newest costs the same. Raises Unreachable.
        """
        committed, in_the_way = _taken(self._store)
        for number in sorted(committed | in_the_way, reverse=True):
            if self._claims.get(number):
                continue
            try:
                found = read_manifest(self._store, number)
            except Damaged as error:
                yield number, error
                continue
            self._claims[number] = found.kind == "claim"
            if found.kind != "claim":
                yield number, found

    def _kinds(self) -> dict[int, bool]:
        return self._kinds_of(_taken(self._store)[0])

    def _kinds_of(self, committed: set[int]) -> dict[int, bool]:
        """Whether each is a claim, ascending; a damaged one counts as a version."""
        unknown = [number for number in sorted(committed) if number not in self._claims]
        for number, read in zip(unknown, read_manifests(self._store, unknown), strict=True):
            if isinstance(read, Manifest):
                self._claims[number] = read.kind == "claim"
        self._claims = {n: claim for n, claim in self._claims.items() if n in committed}
        return {number: self._claims.get(number, False) for number in sorted(committed)}


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
    while True:
        taken = numbers(store)
        line = line or _newest_line(store, taken) or new_line()
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


def _newest_line(store: BlobStore, taken: Sequence[int]) -> str:
    """The line of the newest version that can be read, "" where it has none. Raises Unreachable: the line of
    an older one may be another.
    """
    for number in reversed(taken):
        try:
            record = read_manifest(store, number)
        except Damaged:
            continue
        if record.kind == "version":
            return record.line
    return ""


def next_state_key(store: BlobStore, epoch: Epoch) -> str:
    """A fresh name for the next state file, its number and all after it checked to be free.

    Raises Superseded when another writer has taken one of them: its claim may be pruned long since.
    """
    while taken := [number for number in numbers(store) if number >= epoch.next_number]:
        if taken[0] > epoch.next_number or not _is_own(store, epoch.next_number, epoch):
            raise _superseded(store, taken[0])
        epoch.next_number += 1  # this writer took it in a put whose outcome it could not know
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
    except KeyExists as error:
        discard(store, state.key)
        if _is_own(store, epoch.next_number, epoch):  # a put that had failed has arrived after all
            remedy = "the version that it belongs to stands, the next attempt takes the next number"
            raise WriteFailed(error.place, "an earlier attempt has arrived meanwhile", remedy) from error
        raise _superseded(store, epoch.next_number) from None
    except (CheckpointError, ValueError) as error:
        # The manifest may be there all the same (only its folder's fsync failed), or come yet where it is
        # on its way: then the file must stay. What is left is swept at the next claim.
        on_its_way = isinstance(store, LateListing) and isinstance(error, WriteFailed)
        if not on_its_way and not is_there(store, manifest_key(epoch.next_number)):
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


def _is_own(store: BlobStore, number: int, epoch: Epoch) -> bool:
    try:
        return read_manifest(store, number).writer == epoch.writer
    except Damaged:
        return False


def _superseded(store: BlobStore, number: int) -> Superseded:
    remedy = "this process stops; let one learner write to a checkpoint folder"
    return Superseded(f"version {number}", f"{_claimed_by(store, number)} has taken this number", remedy)


def _claimed_by(store: BlobStore, number: int) -> str:
    """Who took a number, as far as its record tells (a version tells no process, only the epoch)."""
    try:
        record = read_manifest(store, number)
    except CheckpointError:
        return "another writer"
    at = record.runtime
    process = f" (process {at['pid']} on {at['host']})" if record.kind == "claim" and "pid" in at else ""
    return f"the writer of epoch {record.epoch}{process} of {record.created}"


def _sweep_orphans(store: BlobStore, claimed: int) -> None:
    """Remove state files up to `claimed` that no manifest names: their writers are dead or superseded.

    Where each look is a request, the one state of a folder with a manifest is not looked at: it is that of
    the version, or what a writer that was fenced off left under the claim, and goes with it.
    """
    keys = listed(store, VERSIONS, manifest_key, manifest_number)
    committed = {n for n in map(manifest_number, keys) if n is not None}
    states = [(folder_number(key), key) for key in keys if key.rpartition("/")[2].startswith("state-")]
    count = Counter(number for number, _ in states)
    for number, key in states:
        if number is None or number > claimed:
            continue
        if number in committed and count[number] == 1 and isinstance(store, LateListing):
            continue
        name = key.rpartition("/")[2]
        with contextlib.suppress(CheckpointError):
            gone = number not in committed and not is_there(store, manifest_key(number))
            if gone or all(name != f.name for f in read_manifest(store, number).files):
                store.delete(key)


REFUSED_STARTS = "refused.jsonl"
"""Who was refused since another process holds the folder: read and removed by the one that holds it."""
_MOST_BYTES = 64 << 10
"""Of that file: nobody may read it for long."""
_LOCKS = Path("/proc/locks")


class WriterLock:
    """The exclusive lock of a folder. One thread at a time.

    Who takes over from a process that still holds it is the next to hold it, which others respect: that is a
    lock too, on the folder of the versions.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._fd = self._next_fd = -1
        self._is_next = False
        self._versions = root / VERSIONS
        self._refused = root / REFUSED_STARTS

    def be_next(self) -> None:
        """From now on nobody else gets the folder before this process has held it, unless another one is next
        already.
        """
        self._is_next = True
        self._hold_turn()

    def take(self) -> bool:
        """Whether no other process holds the folder, or is the next to; it is held by this one then.

        May be repeated: where another folder has come to stand at the path, that one is taken.
        A file system without such locks holds nobody off: True.
        """
        if self._fd >= 0 and self._still_there():
            return True
        if not self._hold_turn():
            return False
        fd = _locked(self._root, fcntl.LOCK_EX)
        if fd is None:
            return False
        if fd < 0:
            return True  # the writer there will get the error
        self.release()
        self._fd, self._is_next = fd, False
        return True

    def holder(self) -> int | None:
        """The process that is to hold the folder next, else the one that does; None where nobody does or the
        system does not tell.
        """
        return _holder(self._versions) or _holder(self._root)

    def tell_refused(self) -> None:
        """Leave a note for the holder that this process wanted the folder; where that fails it is left
        out."""
        line = json.dumps({"pid": os.getpid(), "at": datetime.now(UTC).isoformat(timespec="seconds")})
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(self._refused, flags, 0o600)
            try:
                if os.fstat(fd).st_size < _MOST_BYTES:
                    os.write(fd, f"{line}\n".encode())
            finally:
                os.close(fd)

    def refused(self) -> list[int]:
        """The processes that left word since the last call."""
        try:
            text = self._refused.read_text(encoding="utf-8", errors="replace")[:_MOST_BYTES]
            self._refused.unlink()
        except OSError:
            return []
        found = []
        for line in text.splitlines():
            with suppress(ValueError, KeyError, TypeError):
                found.append(int(json.loads(line)["pid"]))
        return found

    def release(self) -> None:
        """Let go of the folder, and of the turn to hold it."""
        for fd in (self._fd, self._next_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._next_fd = -1

    def _hold_turn(self) -> bool:
        """False where another process is the next; where this one is, it keeps others from it."""
        if self._next_fd >= 0:
            return True
        fd = _locked(self._versions, fcntl.LOCK_EX if self._is_next else fcntl.LOCK_SH)
        if fd is None:
            return False
        if fd < 0:
            return True  # nothing was written yet
        if self._is_next:
            self._next_fd = fd
        else:
            os.close(fd)
        return True

    def _still_there(self) -> bool:
        try:
            there, held = os.stat(self._root), os.fstat(self._fd)
        except OSError:
            return True  # nothing else stands there
        return (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino)


def _locked(place: Path, kind: int) -> int | None:
    """The descriptor of the folder, now locked; None where another process holds it; -1 where there is no
    such folder, or its file system has no such locks.
    """
    try:
        fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return -1
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        return None if isinstance(error, BlockingIOError) else -1
    return fd


def _holder(place: Path) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        wanted = str(os.stat(place).st_ino)
        for line in _LOCKS.read_text(encoding="ascii").splitlines():
            words = line.split()
            held = words[1] == "FLOCK" and words[3] == "WRITE" and words[5].rpartition(":")[2] == wanted
            if held and int(words[4]) > 0:
                return int(words[4])
    return None
