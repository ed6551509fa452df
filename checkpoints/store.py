"""Where checkpoints live: named, immutable objects behind a small protocol, and what can go wrong there.

Every error is one readable message with its remedy:

CheckpointError
  Damaged          a stored version, ledger entry or derived file is not what was written
    FutureFormat   written by a newer release: nothing is wrong with it, this release cannot read it
  Superseded       another writer owns the store now: stop at once, write nothing more
  WriteFailed      the disk refused a write; the last good version stands, a later attempt may succeed
  Unreachable      an object store does not answer, or refuses: nothing is said of what is stored
  KeyExists        a create-only put met an existing key
  KeyMissing       no such key
  BadKey           a key or file name that could lead outside the store
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import BinaryIO, Protocol, TypeAlias, runtime_checkable


class CheckpointError(Exception):
    """Base of all: `kind` (a short closed word), `place`, `problem` and `remedy`.

    `retriable` says whether the same call may succeed later without anybody changing anything.
    """

    kind = "checkpoint"
    retriable = False

    def __init__(self, place: str, problem: str, remedy: str = "") -> None:
        self.place = place
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{place}: {problem}" + (f" -- {remedy}" if remedy else ""))


class Damaged(CheckpointError):
    """A stored file is truncated, altered, missing or contradicts its manifest. It is never loaded.

    `kind` is one of `missing`, `truncated`, `altered`, `malformed`, `mismatch`, `unreadable`,
    `future_format`.
    """

    def __init__(self, kind: str, place: str, problem: str, remedy: str = "") -> None:
        self.kind = kind
        super().__init__(place, problem, remedy or "restore a copy or delete it; older ones are not affected")


class FutureFormat(Damaged):
    """The file names a format that this release does not know."""

    def __init__(self, place: str, found: object, known: str) -> None:
        super().__init__(
            "future_format",
            place,
            f"format {found!r} is not known to this release (it reads {known})",
            "upgrade tripletd, or point it at another checkpoint folder",
        )


class Superseded(CheckpointError):
    """Another writer has claimed the store since this one started. Exit without writing."""

    kind = "superseded"


class WriteFailed(CheckpointError):
    """A write, fsync or link failed (disk full, I/O error). Learning can continue; try again later."""

    kind = "write_failed"
    retriable = True


class Unreachable(CheckpointError):
    """A store elsewhere did not answer, or refused to. What is stored may be whole: try again later."""

    kind = "unreachable"
    retriable = True


class KeyExists(CheckpointError):
    """The key of a create-only put is taken."""

    kind = "key_exists"


class KeyMissing(CheckpointError):
    """There is no object under this key."""

    kind = "key_missing"


class BadKey(CheckpointError):
    """A key with an absolute path, `..`, a link or odd characters is refused."""

    kind = "bad_key"


OnDamage: TypeAlias = Callable[[CheckpointError], None]
"""Called with what a reader passes over."""


Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class PutResult:
    """Size in bytes and sha256 (hex) of a stored object."""

    size: int
    sha256: str


class BlobStore(Protocol):
    """Named immutable objects. Keys are relative, `/`-separated, of `[A-Za-z0-9._-]` parts."""

    def put_new(self, key: str, chunks: Iterable[Buffer], durable: bool = True) -> PutResult:
        """Create `key` whole or not at all; durable when it returns.

        Raises KeyExists when the key is taken, WriteFailed on an I/O error. After WriteFailed the key may
        or may not be there, but never in part.
        """

    def open(self, key: str) -> BinaryIO:
        """A binary stream of the object with `readinto`; KeyMissing when there is none."""

    def get(self, key: str) -> bytes:
        """The whole object; KeyMissing when there is none."""

    def list(self, prefix: str = "") -> list[str]:
        """Every key that starts with `prefix`, ascending."""

    def delete(self, key: str, durable: bool = True) -> None:
        """Remove `key`; nothing happens when there is none. Not `durable`: a lost power may bring it back."""

    def append_line(self, key: str, line: bytes) -> None:
        """Add `line` and a newline to `key` (created when missing), durably. One writer at a time.

        A torn last line of an earlier, failed call stays as a line of its own.
        """

    def sweep(self) -> int:
        """Remove what dead writers left half-written; returns how many files went."""


@runtime_checkable
class PlacedStore(Protocol):
    """A store at a place that can be away, as a folder that is not mounted."""

    def is_there(self) -> bool:
        """Whether the place is there now."""


def is_away(store: BlobStore) -> bool:
    """Whether the store's place is not there; False for a store that has no place."""
    return isinstance(store, PlacedStore) and not store.is_there()


@runtime_checkable
class LateListing(Protocol):
    """A store whose listing may lag behind what was written, though each key can be asked for at once."""

    def exists(self, key: str) -> bool:
        """Whether `key` is there now. Raises Unreachable."""


@runtime_checkable
class VerifyingStore(Protocol):
    """A store elsewhere, that keeps what was fetched as local files."""

    def open_verified(self, key: str, size: int, sha256: str) -> BinaryIO:
        """The object of that size and hash, from a local copy where there is one; raises as `BlobStore.open`.

        The hash of a copy is not taken again: who reads it does, and calls `forget` where it is another.
        """

    def forget(self, sha256: str) -> None:
        """Drop the local copy of that hash."""


class Staged(Protocol):
    """An object being written outside the namespace: it has no key before `commit`."""

    def resize(self, size: int) -> None:
        """Make it `size` bytes and reserve them. Raises WriteFailed."""

    def warm(self, stop: Callable[[], bool]) -> None:
        """Bring its memory in place so that `write_at` only copies; ends early when `stop()`."""

    def write_at(self, offset: int, data: Buffer) -> None:
        """Put `data` at `offset`; may be repeated for the same place, not durable yet."""

    def commit(self, key: str, *, on_chunk: Callable[[Buffer], None]) -> PutResult:
        """Hash, make durable, call it `key`; `on_chunk` hears all bytes in order.

        Raises as `BlobStore.put_new`.
        """

    def abort(self) -> None:
        """Drop it. Safe at any time, any number of times."""


@runtime_checkable
class StagingStore(Protocol):
    """A store that can take bytes early and name them later (local disks)."""

    def stage(self, size: int) -> Staged:
        """Begin an object of `size` bytes. Raises WriteFailed."""


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
VERSIONS = "versions/"
LEDGER = "ledger/"
HISTORY = "history.jsonl"


def check_name(name: str) -> str:
    """`name` when it is one plain file name; raises BadKey for folders, `..`, links' tricks, NUL."""
    if not _NAME.fullmatch(name):
        raise BadKey(repr(name), "is not a plain file name (letters, digits, '.', '_', '-')")
    return name


def check_key(key: str) -> str:
    """`key` when every `/`-separated part is a plain name; raises BadKey."""
    if not all(map(_NAME.fullmatch, key.split("/"))):
        raise BadKey(repr(key), "is not a relative path of plain names")
    return key


def folder(number: int) -> str:
    """`versions/0000000012/` for 12."""
    return f"{VERSIONS}{number:010d}/"


def manifest_key(number: int) -> str:
    """Where the manifest of version `number` lives."""
    return folder(number) + "manifest.json"


def ledger_key(n: int) -> str:
    """Where ledger entry `n` lives."""
    return f"{LEDGER}{n:010d}.json"


def numbered(pattern: str) -> Callable[[str], int | None]:
    """What reads the number, the only group of `pattern`, out of a key; None for keys of another form."""
    form = re.compile(pattern)
    return lambda key: int(match[1]) if (match := form.fullmatch(key)) else None


folder_number = numbered(r"versions/([0-9]{10})/[^/]+")
"""The version in whose folder a key lies."""
manifest_number = numbered(r"versions/([0-9]{10})/manifest\.json")
"""Inverse of `manifest_key`."""
number_in_the_way = numbered(r"versions/([0-9]{10})")
"""The version where whose folder belongs an object stands instead."""
ledger_number = numbered(r"ledger/([0-9]{10})\.json")
"""Inverse of `ledger_key`."""


def is_there(store: BlobStore, key: str) -> bool:
    """Whether `key` is there, by one look that no listing delays."""
    return store.exists(key) if isinstance(store, LateListing) else key in store.list(key)


def listed(
    store: BlobStore,
    prefix: str,
    key_of: Callable[[int], str],
    number_of: Callable[[str], int | None],
    first: int = 0,
) -> list[str]:
    """Keys that start with `prefix`, ascending. Where listings lag behind, the numbers after the last one
    listed are asked for one by one: what was written before this call is found, as long as no number between
    has gone again.

    key_of: the key of a number; number_of: the number that a key stands for, None for none; first: the least
    number there is.
    """
    keys = store.list(prefix)
    if not isinstance(store, LateListing):
        return keys
    number = max((n for n in map(number_of, keys) if n is not None), default=first - 1)
    more = []
    while store.exists(following := key_of(number + 1)):
        more.append(following)
        number += 1
    return sorted({*keys, *more})
