"""A file on its way into a local store: written under a temporary name, then linked to its key."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from checkpoints.errors import KeyExists, WriteFailed
from checkpoints.fs import Fs
from checkpoints.store import Buffer, PutResult

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
