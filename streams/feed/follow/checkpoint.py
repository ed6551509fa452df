"""The checkpoint of a followed feed: one file, replaced as a whole; the one before is kept.

A file is a line with the format and the SHA-256 of what follows, then msgpack. It is written under another
name, made durable, and then renamed, so that at any moment the newest name stands for a whole checkpoint.
"""

from __future__ import annotations

import fcntl
import os
import re
from hashlib import sha256
from operator import methodcaller
from pathlib import Path
from typing import Any

import msgpack

from streams.durable import remove_temporary, replacing

MAGIC = b"tripletd-feed/1 "
KEPT = 2
_NAME = re.compile(r"(\d{12})\.ckpt")


class CheckpointInUse(Exception):
    """Another process writes checkpoints in this folder."""


class FeedCheckpoints:
    """Checkpoints in a folder, which is made; one process at a time. Raises CheckpointInUse, OSError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise CheckpointInUse(str(folder)) from None
        remove_temporary(folder)
        self._newest = max(self._numbers(), default=0)

    def load(self) -> tuple[Any, list[str]]:
        """What the newest whole checkpoint holds, None without one; and a line for each damaged one."""
        notes: list[str] = []
        for number in sorted(self._numbers(), reverse=True):
            path = self._path(number)
            try:
                return _unpacked(path.read_bytes()), notes
            except ValueError as error:
                notes.append(f"{path} is damaged ({error}); the one before it is taken")
        return None, notes

    def save(self, said: Any) -> int:
        """Make a checkpoint durable, and remove those before the last `KEPT`; its size in bytes. `said` is
        what `pack` takes."""
        packed = pack(said)
        with replacing(self._path(self._newest + 1), 0o600) as file:
            file.write(MAGIC + sha256(packed).hexdigest().encode() + b"\n")
            file.write(packed)
        self._newest += 1
        for number in self._numbers():
            if number <= self._newest - KEPT:
                self._path(number).unlink(missing_ok=True)
        return len(packed)

    def close(self) -> None:
        """Let another process write here."""
        os.close(self._lock)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:012d}.ckpt"

    def _numbers(self) -> list[int]:
        found = (_NAME.fullmatch(path.name) for path in self.folder.iterdir())
        return [int(one[1]) for one in found if one]


def pack(said: Any) -> bytes:
    """Plain data in msgpack, and in it objects with a method `plain`, which gives it: they are asked one by
    one, so that what many thousands of them say is never there all at once."""
    packed: bytes = msgpack.packb(said, default=methodcaller("plain"), unicode_errors="surrogatepass")
    return packed


def _unpacked(data: bytes) -> Any:
    head, _, packed = data.partition(b"\n")
    if not head.startswith(MAGIC):
        raise ValueError("it is of another format")
    if head[len(MAGIC) :].decode(errors="replace") != sha256(packed).hexdigest():
        raise ValueError("its digest does not fit")
    return msgpack.unpackb(packed, unicode_errors="surrogatepass", strict_map_key=False)
