"""A filesystem that fails on demand and remembers every operation."""

from __future__ import annotations

import errno
import os
import re
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpoints.local import Files, Folders, Fs


@dataclass(frozen=True)
class Op:
    """One mutating call: name, path(s) relative to the root, and what was written."""

    name: str
    path: str
    target: str = ""
    offset: int = 0
    data: bytes = b""


class FaultyDisk:
    """Real files under `root`; call number `fail_at` (from 1) raises `error`; `log`: what worked.

    `passed` counts calls by (operation, kind of place); `fail_on` (operation, kind, n) is the n-th such call.
    `retried`: files that were synced again after a failed sync.
    """

    def __init__(self, root: Path, fail_at: int = 0, error: int = errno.EIO) -> None:
        self.root = root
        self.fail_at = fail_at
        self.error = error
        self.fail_on: tuple[str, str, int] | None = None
        self.calls = 0
        self.passed: Counter[tuple[str, str]] = Counter()
        self.log: list[Op] = []
        self.open_files: dict[int, str] = {}
        self.retried: list[str] = []
        self._unsynced: set[str] = set()
        self._lock = threading.Lock()
        self.fs = Fs(_Calls(Files(), self), _Calls(Folders(), self))  # type: ignore[arg-type]

    def call(self, name: str, real: Any, args: tuple[Any, ...]) -> Any:
        with self._lock:
            place = (
                self.open_files.get(args[0], "?") if isinstance(args[0], int) else self._relative(args[-1])
            )
            if name == "fsync" and place in self._unsynced:
                self.retried.append(place)
            if self._fails(name, kind_of(place)):
                if name == "close":
                    real(*args)
                if name == "fsync":
                    self._unsynced.add(place)
                raise OSError(self.error, os.strerror(self.error))
            result = real(*args)
            if name == "open_append":  # what was in doubt is written again, and that is synced
                self._unsynced.discard(place)
            self._note(name, args, result)
            return result

    def _fails(self, name: str, kind: str) -> bool:
        self.calls += 1
        self.passed[name, kind] += 1
        return self.calls == self.fail_at or (name, kind, self.passed[name, kind]) == self.fail_on

    def _note(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        if name in ("create", "open_append", "open"):
            self.open_files[result] = self._relative(args[0])
        if name in ("create", "open_append"):
            self.log.append(Op("create", self.open_files[result]))
        elif name == "write":
            self.log.append(Op("write", self.open_files[args[0]], offset=args[1], data=bytes(args[2])))
        elif name == "fsync":
            self.log.append(Op("fsync", self.open_files[args[0]]))
        elif name == "link":
            self.log.append(Op("link", self._relative(args[0]), self._relative(args[1])))
        elif name in ("unlink", "make", "remove", "sync"):
            self.log.append(Op(name, self._relative(args[0])))

    def _relative(self, path: Path) -> str:
        return os.path.relpath(path, self.root)


def kind_of(path: str) -> str:
    """What a path of a store is, without its number and random part."""
    return re.sub(r"-?[0-9a-f]{8,}", "", re.sub(r"state-.*", "state", path))


class _Calls:
    def __init__(self, real: object, disk: FaultyDisk) -> None:
        self._real, self._disk = real, disk

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        return lambda *args: self._disk.call(name, real, args)
