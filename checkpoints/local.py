"""A local directory as a store: temporary file, fsync, link(2), fsync of the folders.

Every filesystem call is a method of `Files` or `Folders`, so that tests can record, fail and replay each of
them.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from checkpoints.commit import WriterLock
from checkpoints.store import (
    BadKey,
    Buffer,
    Damaged,
    KeyExists,
    KeyMissing,
    PutResult,
    WriteFailed,
    check_key,
)

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
TEMP = "tmp"

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


@contextlib.contextmanager
def _writing(place: Path, failed: Callable[[], None] = lambda: None) -> Iterator[None]:
    """An OSError inside is WriteFailed of `place`, after `failed` was called."""
    try:
        yield
    except OSError as error:
        failed()
        raise write_failed(str(place), error) from error


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """An OSError inside is Damaged: `path` cannot be read."""
    try:
        yield
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
        remedy = "check the disk and the permissions of the checkpoint folder"
        raise Damaged("unreadable", str(path), message, remedy) from error


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
        with _writing(root / TEMP):
            self._fd, self._temp = _open_temp_again(fs, root / TEMP)

    def resize(self, size: int) -> None:
        """See `checkpoints.store.Staged`. Aborts on WriteFailed."""
        with _writing(self._temp, self.abort):
            self._fs.files.allocate(self._fd, size)
        self._size = size

    def warm(self, stop: Callable[[], bool]) -> None:
        """See `checkpoints.store.Staged`.

        Reading reserved, unwritten bytes fills the page cache with clean pages and costs the disk nothing.
        """
        buffer = memoryview(bytearray(min(CHUNK, max(self._size, 1))))
        at = 0
        with _writing(self._temp, self.abort):
            while at < self._size and not stop():
                at += self._fs.files.read(self._fd, at, buffer) or self._size

    def write_at(self, offset: int, data: Buffer) -> None:
        """Put `data` at `offset` in the page cache. Aborts on WriteFailed."""
        view = memoryview(data).cast("B")
        self._size = max(self._size, offset + len(view))
        with _writing(self._temp, self.abort):
            self._fs.files.write(self._fd, offset, view)

    def commit(
        self,
        key: str,
        sha256: str | None = None,
        durable: bool = True,
        *,
        on_chunk: Callable[[Buffer], None] = _nobody,
    ) -> PutResult:
        """Hash unless `sha256` is known, fsync, link to `key`, fsync folders. KeyExists, WriteFailed.

        `on_chunk` hears, in order, the bytes that are hashed.
        """
        target = self._root / key
        parents = [self._root / part for part in reversed(Path(key).parents)]
        try:
            digest = sha256 or self._hash(on_chunk)
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

    def _hash(self, on_chunk: Callable[[Buffer], None]) -> str:
        """sha256 of the file, from the page cache, while the disk already writes what was hashed."""
        digest = hashlib.sha256()
        buffer = memoryview(bytearray(min(CHUNK, max(self._size, 1))))
        at = 0
        while at < self._size:
            got = self._fs.files.read(self._fd, at, buffer)
            if got == 0:
                raise OSError(f"only {at} of {self._size} bytes can be read back")
            digest.update(buffer[:got])
            on_chunk(buffer[:got])
            self._fs.files.start_writeback(self._fd, at, got)
            at += got
        return digest.hexdigest()


class LocalStore:
    """Objects as files under `root` (created when missing, mode 0700; files 0600).

    Raises WriteFailed when the folder cannot be made.
    """

    def __init__(self, root: Path, fs: Fs | None = None) -> None:
        self.root = Path(root)
        self._fs = fs or Fs()
        self._in_doubt: set[str] = set()  # keys whose last line may have reached the disk in part
        with _writing(self.root):
            new = [path for path in (self.root, *self.root.parents) if not path.exists()]
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)  # durable before any version in it
            if not self._fs.folders.names(self.root):  # also left so by a start that died right here
                for path in new or [self.root]:
                    with contextlib.suppress(PermissionError):  # a parent that is not ours to open
                        self._fs.folders.sync(path.parent)
            self._fs.folders.make(self.root / TEMP)
        self.sweep()

    def put_new(self, key: str, chunks: Iterable[Buffer], durable: bool = True) -> PutResult:
        """See `checkpoints.store.BlobStore`."""
        self._checked(key)
        staged = LocalStaged(self._fs, self.root)
        digest, at = hashlib.sha256(), 0
        try:
            for chunk in chunks:
                view = memoryview(chunk).cast("B")
                staged.write_at(at, view)
                digest.update(view)
                at += len(view)
            return staged.commit(key, digest.hexdigest(), durable)
        finally:
            staged.abort()

    def stage(self, size: int) -> LocalStaged:
        """See `checkpoints.store.StagingStore`."""
        staged = LocalStaged(self._fs, self.root)
        staged.resize(size)
        return staged

    def open(self, key: str) -> BinaryIO:
        """See `checkpoints.store.BlobStore`. BadKey for links and whatever is not a regular file."""
        path = self._path(key)
        with _reading(path):
            try:
                return os.fdopen(self._fs.files.open(path), "rb", buffering=0)
            except (FileNotFoundError, NotADirectoryError):
                raise KeyMissing(str(path), "there is no such file") from None
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.EACCES, None):
                    raise BadKey(str(path), "is not a regular file that can be read") from error
                raise

    def get(self, key: str) -> bytes:
        """See `checkpoints.store.BlobStore`."""
        with self.open(key) as stream, _reading(self.root / key):
            return stream.read()

    def list(self, prefix: str = "") -> list[str]:
        """See `checkpoints.store.BlobStore`. Links are listed, and refused when opened."""
        start = prefix.rpartition("/")[0]
        if start:
            self._checked(f"{start}/any")
        with _reading(self.root / start):
            return sorted(key for key in self._walk(start) if key.startswith(prefix))

    def delete(self, key: str, durable: bool = True) -> None:
        """See `checkpoints.store.BlobStore`. A folder goes with its last file."""
        path = self._path(key)
        try:
            self._fs.folders.unlink(path)
            if durable:
                self._fs.folders.sync(path.parent)
        except FileNotFoundError:
            return
        except OSError as error:
            raise write_failed(str(path), error) from error
        if path.parent != self.root:
            with contextlib.suppress(OSError):
                self._fs.folders.remove(path.parent)

    def append_line(self, key: str, line: bytes) -> None:
        """See `checkpoints.store.BlobStore`."""
        path = self._path(key)
        with _writing(path):
            for folder in reversed(Path(key).parents[:-1]):
                self._fs.folders.make(self.root / folder)
            fd = self._fs.files.open_append(path)
            try:
                last, size = memoryview(bytearray(1)), os.fstat(fd).st_size
                torn = size > 0 and self._fs.files.read(fd, size - 1, last) == 1 and last.tobytes() != b"\n"
                fresh = b"\n" if torn or key in self._in_doubt else b""
                self._in_doubt.add(key)
                self._fs.files.write(fd, size, fresh + line + b"\n")
                self._fs.files.fsync(fd)
                self._in_doubt.discard(key)
            finally:
                self._fs.files.close(fd)
            self._fs.folders.sync(path.parent)

    def is_there(self) -> bool:
        """Whether there is a folder at its place now: it may have been deleted, or not be mounted."""
        return self.root.is_dir()

    def writer_lock(self) -> WriterLock:
        """What holds off other writers on this host; not taken yet."""
        return WriterLock(self.root)

    def sweep(self) -> int:
        """See `checkpoints.store.BlobStore`: temporary files whose lock is free."""
        return sweep_temps(self._fs, self.root / TEMP)

    def _walk(self, folder: str) -> Iterator[str]:
        for name, is_folder in self._fs.folders.names(self.root / folder):
            key = f"{folder}/{name}" if folder else name
            if not is_folder:
                yield key
            elif key != TEMP:
                yield from self._walk(key)

    def _checked(self, key: str) -> str:
        check_key(key)
        if key == TEMP or key.startswith(TEMP + "/"):
            raise BadKey(key, "is where temporary files live")
        for folder in (self.root / part for part in Path(key).parents[:-1]):
            with _reading(folder):
                if self._fs.folders.is_link(folder):
                    raise BadKey(str(folder), "is a symbolic link")
        return key

    def _path(self, key: str) -> Path:
        return self.root / self._checked(key)
