"""States fetched from an object store, kept as local files and shared by the processes of a host.

A file is named by the sha256 of its content, so it is of use to every version, name and bucket that holds the
same bytes. It comes into its place by a rename after its hash was checked, so a kill leaves a part behind
and never a wrong file; whoever needs the same state next takes the part's lock, which dies with its holder,
and begins it anew. Nothing is synced to disk: after a power loss a file may hold anything, and whoever reads
it checks the hash all the same, and has it fetched again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from checkpoints.store import Damaged

PART = ".part"


class StateCache:
    """Files of one folder (made when missing, mode 0700), at most `most_bytes` of them, the newest always.

    For many threads and processes at once. Raises OSError where the folder cannot be used.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._most_bytes = most_bytes

    def open(self, sha256: str, size: int, fetch: Callable[[], Iterable[bytes]], place: str) -> BinaryIO:
        """The file of that hash and size, from `fetch` where there is none; one process of many fetches it.

        place: what is fetched, for messages. Raises Damaged where the bytes that come are others, and what
        `fetch` raises.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / sha256
        if (found := self._whole(path, size)) is not None:
            return found
        part = self._folder / f"{sha256}{PART}"
        fd = _locked(part)
        try:
            if (found := self._whole(path, size)) is not None:  # another process was quicker
                _unlink(part)
                return found
            os.ftruncate(fd, 0)
            _fill(fd, size, sha256, fetch(), place)
            os.rename(part, path)
        except BaseException:
            _unlink(part)  # still locked: whoever waits for it looks again
            raise
        finally:
            os.close(fd)
        self._make_room(path)
        return self._whole(path, size) or self.open(sha256, size, fetch, place)

    def forget(self, sha256: str) -> None:
        """Remove the file of that hash: what it holds is something else."""
        _unlink(self._folder / sha256)

    def _whole(self, path: Path, size: int) -> BinaryIO | None:
        """The file, open, used last from now on; None where there is none of that size."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        if not stat.S_ISREG(os.fstat(fd).st_mode) or os.fstat(fd).st_size != size:
            os.close(fd)
            return None
        with contextlib.suppress(OSError):
            os.utime(fd)
        return os.fdopen(fd, "rb", buffering=0)

    def _make_room(self, newest: Path) -> None:
        """Remove what was used longest ago, and parts that nobody holds, until all is within the bound."""
        kept: list[tuple[float, int, Path]] = []
        with contextlib.suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    about = entry.stat(follow_symlinks=False)
                    if entry.name.endswith(PART):
                        _drop_part(Path(entry.path))
                    elif stat.S_ISREG(about.st_mode) and len(entry.name) == 64:
                        kept.append((about.st_mtime, about.st_size, Path(entry.path)))
        total = sum(size for _, size, _ in kept)
        for _, size, path in sorted(kept):
            if total <= self._most_bytes:
                break
            if path != newest:
                _unlink(path)
                total -= size


def _locked(part: Path) -> int:
    """The part file, held by this process alone; waits for who holds it."""
    while True:
        fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), os.stat(part, follow_symlinks=False)):
                    return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # it was renamed or removed while this one waited


def _fill(fd: int, size: int, sha256: str, pieces: Iterable[bytes], place: str) -> None:
    digest, at = hashlib.sha256(), 0
    for piece in pieces:
        digest.update(piece)
        view = memoryview(piece).cast("B")
        while view:
            done = os.pwrite(fd, view, at)
            view, at = view[done:], at + done
    if at != size:
        raise Damaged("truncated", place, f"has {at} of the {size} bytes that its manifest states")
    if digest.hexdigest() != sha256:
        raise Damaged("altered", place, "its bytes do not match the sha256 in its manifest")


def _drop_part(part: Path) -> None:
    fd = os.open(part, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(fd), os.stat(part, follow_symlinks=False)):
            os.unlink(part)
    finally:
        os.close(fd)


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
