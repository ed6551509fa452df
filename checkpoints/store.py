"""Where checkpoints live: a small protocol over named, immutable objects.

A local directory (`checkpoints.local.LocalStore`) and a fake in memory
(`checkpoints.memory.MemoryStore`) implement it and pass one contract suite; an object store needs
only create-only put, get, list and delete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import BinaryIO, Protocol, runtime_checkable

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
        ...

    def open(self, key: str) -> BinaryIO:
        """A binary stream of the object with `readinto`; KeyMissing when there is none."""
        ...

    def get(self, key: str) -> bytes:
        """The whole object; KeyMissing when there is none."""
        ...

    def list(self, prefix: str = "") -> list[str]:
        """Every key that starts with `prefix`, ascending."""
        ...

    def delete(self, key: str) -> None:
        """Remove `key`; nothing happens when there is none."""
        ...

    def append_line(self, key: str, line: bytes) -> None:
        """Add `line` and a newline to `key` (created when missing), durably. One writer at a time.

        A torn last line of an earlier, failed call stays as a line of its own.
        """
        ...

    def sweep(self) -> int:
        """Remove what dead writers left half-written; returns how many files went."""
        ...


class Staged(Protocol):
    """An object being written outside the namespace: it has no key before `commit`."""

    def resize(self, size: int) -> None:
        """Make it `size` bytes and reserve them. Raises WriteFailed."""
        ...

    def warm(self, stop: Callable[[], bool]) -> None:
        """Bring its memory in place so that `write_at` only copies; ends early when `stop()`."""
        ...

    def write_at(self, offset: int, data: Buffer) -> None:
        """Put `data` at `offset`; may be repeated for the same place, not durable yet."""
        ...

    def commit(self, key: str, *, told: Callable[[Buffer], None]) -> PutResult:
        """Hash, make durable, call it `key`; `told` hears all bytes in order.

        Raises as `BlobStore.put_new`.
        """
        ...

    def abort(self) -> None:
        """Drop it. Safe at any time, any number of times."""
        ...


@runtime_checkable
class StagingStore(Protocol):
    """A store that can take bytes early and name them later (local disks)."""

    def stage(self, size: int) -> Staged:
        """Begin an object of `size` bytes. Raises WriteFailed."""
        ...
