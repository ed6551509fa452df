"""Everything that can go wrong with checkpoints, each as one readable message with its remedy.

CheckpointError
  Damaged          a stored version, ledger entry or derived file is not what was written
    FutureFormat   written by a newer release: nothing is wrong with it, this release cannot read it
  Superseded       another writer owns the store now: stop at once, write nothing more
  WriteFailed      the disk refused a write; the last good version stands, a later attempt may succeed
  KeyExists        a create-only put met an existing key
  KeyMissing       no such key
  BadKey           a key or file name that could lead outside the store
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias


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
    """A write, fsync or link failed (disk full, I/O error). Learning can go on; try again later."""

    kind = "write_failed"
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


Report: TypeAlias = Callable[[CheckpointError], None]
"""Told of what a reader passes over."""
