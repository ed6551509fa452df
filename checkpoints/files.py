"""Files of a local store: every filesystem call, and a file written under a temporary name, then linked.

The calls are methods of one object so that tests can record, fail and replay each of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from checkpoints.errors import KeyExists, WriteFailed
from checkpoints.store import Buffer, PutResult

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


CHUNK = 4 << 20


_STANDS = "the last good version stands, writing is tried again"
_GONE = (
    "the checkpoint folder, or part of it, was removed with all in it; put it back, from a copy or empty: "
    "a running learner keeps what it learned and tries again"
)
_IN_THE_WAY = (
    "a file or a link stands where a checkpoint folder belongs; move it away, or name another folder: "
    "what else is there is not touched"
)
_FORBIDDEN = f"make the checkpoint folder writable for this user; {_STANDS}"
_REMEDIES = {
    errno.ENOENT: _GONE,
    errno.ENOTDIR: _IN_THE_WAY,
    errno.EEXIST: _IN_THE_WAY,
    errno.ELOOP: _IN_THE_WAY,
    errno.EISDIR: _IN_THE_WAY,
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EROFS: _FORBIDDEN,
}


def write_failed(place: str, error: OSError) -> WriteFailed:
    """`error` as WriteFailed with what stands and what to do about it."""
    remedy = _REMEDIES.get(error.errno or 0, f"free space or repair the disk; {_STANDS}")
    return WriteFailed(place, f"cannot be written: {error.strerror or error}", remedy)


def open_temp(fs: Fs, folder: Path) -> tuple[int, Path]:
    """A new locked temporary file. The lock tells a sweeper that its writer lives."""
    while True:
        path = folder / f"{os.urandom(8).hex()}.tmp"
        fd = fs.files.create(path)
        try:
            # A sweeper may take the file between create and lock: then it holds the lock, or has unlinked it.
            if fs.files.lock(fd) and os.fstat(fd).st_nlink > 0:
                return fd, path
        except OSError:
            drop(fs, fd, path)
            raise
        drop(fs, fd, path)


def _open_temp_again(fs: Fs, folder: Path) -> tuple[int, Path]:
    """`open_temp`; a folder of temporary files that is gone is made again (copies leave empty ones out)."""
    try:
        return open_temp(fs, folder)
    except FileNotFoundError:
        fs.folders.make(folder)
        return open_temp(fs, folder)


def drop(fs: Fs, fd: int, path: Path) -> None:
    """Close and unlink a temporary file as far as the disk lets us; a sweep takes the rest."""
    with contextlib.suppress(OSError):
        fs.folders.unlink(path)
    with contextlib.suppress(OSError):
        fs.files.close(fd)


def sweep_temps(fs: Fs, folder: Path) -> int:
    """Remove temporary files whose writer is dead (their lock is free); returns how many."""
    gone = 0
    try:
        names = fs.folders.names(folder)
    except OSError:
        return 0  # sweeping is no reason to stop; the next one takes them
    for name, _ in names:
        with contextlib.suppress(OSError):
            fd = fs.files.open(folder / name)
            try:
                if fs.files.lock(fd):
                    fs.folders.unlink(folder / name)
                    gone += 1
            finally:
                fs.files.close(fd)
    return gone


def _nobody(data: Buffer) -> None:
    """Where nobody else wants to hear what is hashed."""


class LocalStaged:
    """One temporary file. After `commit` or `abort` the temporary name and the descriptor are gone."""

    def __init__(self, fs: Fs, root: Path) -> None:
        self._fs = fs
        self._root = root
        self._size = 0
        self._fd = -1
        try:
            self._fd, self._temp = _open_temp_again(fs, root / "tmp")
        except OSError as error:
            raise write_failed(str(root / "tmp"), error) from error

    def resize(self, size: int) -> None:
        """See `checkpoints.store.Staged`. Aborts on WriteFailed."""
        try:
            self._fs.files.allocate(self._fd, size)
        except OSError as error:
            self.abort()
            raise write_failed(str(self._temp), error) from error
        self._size = size

    def warm(self, stop: Callable[[], bool]) -> None:
        """See `checkpoints.store.Staged`.

        Reading reserved, unwritten bytes fills the page cache with clean pages and costs the disk nothing.
        """
        buffer = memoryview(bytearray(min(CHUNK, max(self._size, 1))))
        at = 0
        try:
            while at < self._size and not stop():
                at += self._fs.files.read(self._fd, at, buffer) or self._size
        except OSError as error:
            self.abort()
            raise write_failed(str(self._temp), error) from error

    def write_at(self, offset: int, data: Buffer) -> None:
        """Put `data` at `offset` in the page cache. Aborts on WriteFailed."""
        view = memoryview(data).cast("B")
        self._size = max(self._size, offset + len(view))
        try:
            self._fs.files.write(self._fd, offset, view)
        except OSError as error:
            self.abort()
            raise write_failed(str(self._temp), error) from error

    def commit(
        self,
        key: str,
        sha256: str | None = None,
        durable: bool = True,
        *,
        told: Callable[[Buffer], None] = _nobody,
    ) -> PutResult:
        """Hash unless `sha256` is known, fsync, link to `key`, fsync folders. KeyExists, WriteFailed.

        `told` hears, in order, the bytes that are hashed.
        """
        target = self._root / key
        parents = [self._root / part for part in reversed(Path(key).parents)]
        try:
            digest = sha256 or self._hash(told)
            if durable:
                self._fs.files.fsync(self._fd)
            for folder in parents[1:]:
                self._fs.folders.make(folder)
            self._fs.folders.link(self._temp, target)
            if durable:
                for folder in reversed(parents):
                    self._fs.folders.sync(folder)
        except FileExistsError as error:
            raise KeyExists(key, "is taken") from error
        except OSError as error:
            raise write_failed(str(target), error) from error
        finally:
            self.abort()
        return PutResult(self._size, digest)

    def abort(self) -> None:
        """Drop the temporary name; what was linked stays."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            drop(self._fs, fd, self._temp)

    def _hash(self, told: Callable[[Buffer], None]) -> str:
        """sha256 of the file, from the page cache, while the disk already writes what was hashed."""
        digest = hashlib.sha256()
        buffer = memoryview(bytearray(min(CHUNK, max(self._size, 1))))
        at = 0
        while at < self._size:
            got = self._fs.files.read(self._fd, at, buffer)
            if got == 0:
                raise OSError(f"only {at} of {self._size} bytes can be read back")
            digest.update(buffer[:got])
            told(buffer[:got])
            self._fs.files.start_writeback(self._fd, at, got)
            at += got
        return digest.hexdigest()
