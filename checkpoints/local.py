"""A local directory as a store: temporary file, fsync, link(2), fsync of the folders."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from checkpoints.errors import BadKey, Damaged, KeyMissing
from checkpoints.files import Fs, LocalStaged, sweep_temps, write_failed
from checkpoints.store import Buffer, PutResult, check_key

TEMP = "tmp"


def unreadable(path: Path, error: OSError) -> Damaged:
    """`error` while reading `path` as Damaged."""
    return Damaged(
        "unreadable",
        str(path),
        f"cannot be read: {error.strerror or error}",
        "check the disk and the permissions of the checkpoint folder",
    )


class LocalStore:
    """Objects as files under `root` (created when missing, mode 0700; files 0600).

    Raises WriteFailed when the folder cannot be made.
    """

    def __init__(self, root: Path, fs: Fs | None = None) -> None:
        self.root = Path(root)
        self._fs = fs or Fs()
        self._in_doubt: set[str] = set()  # keys whose last line may have reached the disk in part
        try:
            self._make_root()
            self._fs.folders.make(self.root / TEMP)
        except OSError as error:
            raise write_failed(str(self.root), error) from error
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
        try:
            return os.fdopen(self._fs.files.open(path), "rb", buffering=0)
        except (FileNotFoundError, NotADirectoryError):
            raise KeyMissing(str(path), "there is no such file") from None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EACCES, None):
                raise BadKey(str(path), "is not a regular file that can be read") from error
            raise unreadable(path, error) from error

    def get(self, key: str) -> bytes:
        """See `checkpoints.store.BlobStore`."""
        with self.open(key) as stream:
            try:
                return stream.read()
            except OSError as error:
                raise unreadable(self.root / key, error) from error

    def list(self, prefix: str = "") -> list[str]:
        """See `checkpoints.store.BlobStore`. Links are listed, and refused when opened."""
        start = prefix.rpartition("/")[0]
        if start:
            self._checked(f"{start}/any")
        try:
            return sorted(key for key in self._walk(start) if key.startswith(prefix))
        except OSError as error:
            raise unreadable(self.root / start, error) from error

    def delete(self, key: str) -> None:
        """See `checkpoints.store.BlobStore`. A folder goes with its last file."""
        path = self._path(key)
        try:
            self._fs.folders.unlink(path)
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
        try:
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
        except OSError as error:
            raise write_failed(str(path), error) from error

    def sweep(self) -> int:
        """See `checkpoints.store.BlobStore`: temporary files whose lock is free."""
        return sweep_temps(self._fs, self.root / TEMP)

    def _make_root(self) -> None:
        """Make the folder; its own name is durable before anything inside it can be a version."""
        new = [path for path in (self.root, *self.root.parents) if not path.exists()]
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._fs.folders.names(self.root):  # also left so by a start that died right here
            for path in new or [self.root]:
                with contextlib.suppress(PermissionError):  # a parent that is not ours to open
                    self._fs.folders.sync(path.parent)

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
            try:
                linked = self._fs.folders.is_link(folder)
            except OSError as error:
                raise unreadable(folder, error) from error
            if linked:
                raise BadKey(str(folder), "is a symbolic link")
        return key

    def _path(self, key: str) -> Path:
        return self.root / self._checked(key)
