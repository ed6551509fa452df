"""One writer per folder and host: a lock that ends with the process that holds it, however that ends.

It is an advisory lock (flock) on the folder itself: it leaves no file behind that somebody must remove, and
emptying the folder does not free it. It says who may start; what is written is guarded by claims (`commit`),
also against writers on other hosts, whom this lock does not see.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from checkpoints.store import VERSIONS

REFUSED_STARTS = "refused.jsonl"
"""Who was refused since another process holds the folder: read and removed by the one that holds it."""
_MOST_BYTES = 64 << 10
"""Of that file: nobody may read it for long."""
_LOCKS = Path("/proc/locks")


class WriterLock:
    """The exclusive lock of a folder. One thread at a time.

    Who takes over from a process that still holds it is the next to hold it, which others respect: that is a
    lock too, on the folder of the versions.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._fd = self._next_fd = -1
        self._is_next = False
        self._versions = root / VERSIONS
        self._refused = root / REFUSED_STARTS

    def be_next(self) -> None:
        """From now on nobody else gets the folder before this process has held it, unless another one is next
        already.
        """
        self._is_next = True
        self._hold_turn()

    def take(self) -> bool:
        """Whether no other process holds the folder, or is the next to; it is held by this one then.

        May be repeated: where another folder has come to stand at the path, that one is taken.
        A file system without such locks holds nobody off: True.
        """
        if self._fd >= 0 and self._still_there():
            return True
        if not self._hold_turn():
            return False
        fd = _locked(self._root, fcntl.LOCK_EX)
        if fd is None:
            return False
        if fd < 0:
            return True  # whoever writes there will be told
        self.release()
        self._fd, self._is_next = fd, False
        return True

    def holder(self) -> int | None:
        """The process that is to hold the folder next, else the one that does; None where nobody does or the
        system does not tell.
        """
        return _holder(self._versions) or _holder(self._root)

    def tell_refused(self) -> None:
        """Leave word for the holder that this process wanted the folder; where that fails nobody is told."""
        line = json.dumps({"pid": os.getpid(), "at": datetime.now(UTC).isoformat(timespec="seconds")})
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(self._refused, flags, 0o600)
            try:
                if os.fstat(fd).st_size < _MOST_BYTES:
                    os.write(fd, f"{line}\n".encode())
            finally:
                os.close(fd)

    def refused(self) -> list[int]:
        """The processes that left word since the last call."""
        try:
            text = self._refused.read_text(encoding="utf-8", errors="replace")[:_MOST_BYTES]
            self._refused.unlink()
        except OSError:
            return []
        found = []
        for line in text.splitlines():
            with suppress(ValueError, KeyError, TypeError):
                found.append(int(json.loads(line)["pid"]))
        return found

    def release(self) -> None:
        """Let go of the folder, and of the turn to hold it."""
        for fd in (self._fd, self._next_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._next_fd = -1

    def _hold_turn(self) -> bool:
        """False where another process is the next; where this one is, it keeps others from it."""
        if self._next_fd >= 0:
            return True
        fd = _locked(self._versions, fcntl.LOCK_EX if self._is_next else fcntl.LOCK_SH)
        if fd is None:
            return False
        if fd < 0:
            return True  # nothing was written yet
        if self._is_next:
            self._next_fd = fd
        else:
            os.close(fd)
        return True

    def _still_there(self) -> bool:
        try:
            there, held = os.stat(self._root), os.fstat(self._fd)
        except OSError:
            return True  # nothing else stands there
        return (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino)


def _locked(place: Path, kind: int) -> int | None:
    """The descriptor of the folder, now locked; None where another process holds it; -1 where there is no
    such folder, or its file system has no such locks.
    """
    try:
        fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return -1
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        return None if isinstance(error, BlockingIOError) else -1
    return fd


def _holder(place: Path) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        wanted = str(os.stat(place).st_ino)
        for line in _LOCKS.read_text(encoding="ascii").splitlines():
            words = line.split()
            held = words[1] == "FLOCK" and words[3] == "WRITE" and words[5].rpartition(":")[2] == wanted
            if held and int(words[4]) > 0:
                return int(words[4])
    return None
