"""Every filesystem call of the local store, so that tests can record, fail and replay each of them.

`Files` works on open files, `Folders` on names; `Fs` carries both.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from checkpoints.store import Buffer

_SYNC_FILE_RANGE_WRITE = 2
# One system call moves at most 2 GiB - 4 KiB.
_MAX_WRITE = 1 << 30


class Files:
    """Operations on file descriptors. All raise OSError."""

    def create(self, path: Path) -> int:
        """New empty file, mode 0600; FileExistsError when there is one."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def open(self, path: Path) -> int:
        """Existing regular file for reading; PermissionError for FIFOs and the like, OSError for links."""
        # O_NONBLOCK: opening a FIFO must fail below, not hang here.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise PermissionError(f"{path} is not a regular file")
        return fd

    def open_append(self, path: Path) -> int:
        """File to add to, created with mode 0600 when missing."""
        return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def lock(self, fd: int) -> bool:
        """Take the exclusive advisory lock without waiting; False when another process holds it."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def allocate(self, fd: int, size: int) -> None:
        """Make the file `size` bytes, all reserved on disk: a full disk shows before any write."""
        os.ftruncate(fd, size)
        if size:
            os.posix_fallocate(fd, 0, size)

    def write(self, fd: int, offset: int, data: Buffer) -> None:
        """Write all of `data` at `offset` (at the end for an append file)."""
        view = memoryview(data).cast("B")
        while view:
            done = os.pwrite(fd, view[:_MAX_WRITE], offset)
            view, offset = view[done:], offset + done

    def read(self, fd: int, offset: int, into: memoryview) -> int:
        """Fill `into` from `offset`; returns how many bytes there were."""
        return os.preadv(fd, [into], offset)

    def start_writeback(self, fd: int, offset: int, size: int) -> None:
        """Ask the disk to begin on these bytes; only a hint, never fails."""
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).sync_file_range(
                fd, ctypes.c_int64(offset), ctypes.c_int64(size), _SYNC_FILE_RANGE_WRITE
            )

    def fsync(self, fd: int) -> None:
        """Make content and size durable. A failure is final for this file: pages may be lost."""
        os.fsync(fd)

    def close(self, fd: int) -> None:
        """Close `fd`."""
        os.close(fd)


class Folders:
    """Operations on names. All raise OSError."""

    def make(self, path: Path) -> None:
        """Create one folder, mode 0700, unless there is one; NotADirectoryError for a file or a link."""
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from None

    def sync(self, path: Path) -> None:
        """Make the names inside `path` durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def link(self, source: Path, target: Path) -> None:
        """Second name for a file; FileExistsError when `target` is taken, so it decides races."""
        os.link(source, target, follow_symlinks=False)

    def unlink(self, path: Path) -> None:
        """Remove a name; FileNotFoundError when there is none."""
        os.unlink(path)

    def remove(self, path: Path) -> None:
        """Remove an empty folder."""
        os.rmdir(path)

    def names(self, path: Path) -> list[tuple[str, bool]]:
        """(name, is a real folder) inside `path`, ascending; empty when there is no such folder."""
        try:
            with os.scandir(path) as entries:
                return sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
        except FileNotFoundError:
            return []

    def is_link(self, path: Path) -> bool:
        """Whether `path` is a symbolic link."""
        return path.is_symlink()


@dataclass(frozen=True, slots=True)
class Fs:
    """The filesystem as the local store sees it."""

    files: Files = field(default_factory=Files)
    folders: Folders = field(default_factory=Folders)
