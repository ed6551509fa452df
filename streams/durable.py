"""Files that are whole or not there, and last, whatever ends the process that writes them."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO

TEMPORARY = "making-"
"""How the names of files begin that are not whole yet; a process that is killed leaves them behind."""


@contextmanager
def replacing(path: Path, mode: int | None = None, stamp: int | None = None) -> Iterator[IO[bytes]]:
    """A new file, which takes the name `path` when it is whole and on the disk, or never. mode: its rights,
    None for those that the umask leaves. stamp: the time that it is to have, in seconds. Raises OSError."""
    name = path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
    opener = partial(os.open, mode=0o666 if mode is None else mode)
    try:
        with open(name, "x+b", opener=opener) as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
            if stamp is not None:
                os.utime(file.fileno(), (stamp, stamp))
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(descriptor: int, data: bytes, end: int, flush: Callable[[int], None]) -> None:
    """Append to a file that ends at `end`, and flush: all of it is there, or none and OSError is raised."""
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        flush(descriptor)
    except OSError:
        with suppress(OSError):  # on a disk that is full, cutting the end off still works
            os.ftruncate(descriptor, end)
        raise


def is_locked(file: int | IO[bytes]) -> bool:
    """Whether the lock of an open file is this process's now, until that is closed. False where another
    process has it, or the file system has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def remove_temporary(folder: Path) -> None:
    """Remove what processes left in a folder that were killed while they wrote; nobody may be writing."""
    for path in folder.glob(f"{TEMPORARY}*"):
        with suppress(OSError):
            path.unlink()
