"""A filesystem that fails on demand and remembers every operation; the disks a power loss may leave."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpoints.fs import Files, Folders, Fs


@dataclass(frozen=True)
class Op:
    """One mutating call: name, path(s) relative to the root, and what was written."""

    name: str
    path: str
    target: str = ""
    offset: int = 0
    data: bytes = b""


class FaultyDisk:
    """Real files under `root`; call number `fail_at` (from 1) raises `error`; `log`: what worked."""

    def __init__(self, root: Path, fail_at: int = 0, error: int = errno.EIO) -> None:
        self.root = root
        self.fail_at = fail_at
        self.error = error
        self.calls = 0
        self.log: list[Op] = []
        self.open_files: dict[int, str] = {}
        self.fs = Fs(_Calls(Files(), self), _Calls(Folders(), self))  # type: ignore[arg-type]

    def call(self, name: str, real: Any, args: tuple[Any, ...]) -> Any:
        self.calls += 1
        if self.calls == self.fail_at:
            if name == "close":
                real(*args)
            raise OSError(self.error, os.strerror(self.error))
        result = real(*args)
        self._note(name, args, result)
        return result

    def _note(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        if name in ("create", "open_append"):
            self.open_files[result] = self._relative(args[0])
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


class _Calls:
    def __init__(self, real: object, disk: FaultyDisk) -> None:
        self._real, self._disk = real, disk

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        return lambda *args: self._disk.call(name, real, args)


@dataclass
class _File:
    content: bytearray
    durable: bytes


def power_losses(before: dict[str, bytes], log: list[Op]) -> Iterator[dict[str, bytes]]:
    """Every disk {path: bytes} that a power loss after some prefix of `log` may leave.

    Content that was not fsynced may be there, gone, or half there; a name whose folder was not synced may be
    there or not, each on its own, and with a folder all that is below it. `before` is durable.
    """
    for stop in range(len(log) + 1):
        yield from _one_prefix(before, log[:stop])


def _one_prefix(before: dict[str, bytes], log: list[Op]) -> Iterator[dict[str, bytes]]:
    durable = {path: _File(bytearray(data), data) for path, data in before.items()}
    now = dict(durable)
    pending: list[tuple[str, _File | None]] = []
    kept_folders = {folder for path in before for folder in _folders_above(path)} | {"tmp"}
    new_folders: set[str] = set()
    for op in log:
        if op.name == "create" and op.path not in now:
            now[op.path] = _File(bytearray(), b"")
            pending.append((op.path, now[op.path]))
        elif op.name == "write":
            content = now[op.path].content
            content.extend(bytes(max(0, op.offset + len(op.data) - len(content))))
            content[op.offset : op.offset + len(op.data)] = op.data
        elif op.name == "fsync":
            now[op.path].durable = bytes(now[op.path].content)
        elif op.name == "link":
            now[op.target] = now[op.path]
            pending.append((op.target, now[op.path]))
        elif op.name == "unlink":
            del now[op.path]
            pending.append((op.path, None))
        elif op.name == "make":
            new_folders |= {op.path} - kept_folders
        elif op.name == "sync":
            synced = {folder for folder in new_folders if (os.path.dirname(folder) or ".") == op.path}
            kept_folders, new_folders = kept_folders | synced, new_folders - synced
            inside = [
                (path, file)
                for path, file in pending
                if os.path.dirname(path) == ("" if op.path == "." else op.path)
            ]
            for path, file in inside:
                _set(durable, path, file)
            pending = [change for change in pending if change not in inside]
    subsets: list[list[tuple[str, _File | None]]] = [[], pending, *([change] for change in pending)]
    for subset in subsets:
        names = dict(durable)
        for path, file in subset:
            _set(names, path, file)
        lost = {path for path in names if new_folders.intersection(_folders_above(path))}
        for content in ("durable", "all", "half"):
            left = {path: _content(file, content) for path, file in names.items()}
            yield left
            if lost:
                yield {path: data for path, data in left.items() if path not in lost}


def _folders_above(path: str) -> Iterator[str]:
    while path := os.path.dirname(path):
        yield path


def _set(names: dict[str, _File], path: str, file: _File | None) -> None:
    names.pop(path, None)
    if file is not None:
        names[path] = file


def _content(file: _File, how: str) -> bytes:
    if how == "durable" or bytes(file.content) == file.durable:
        return file.durable
    return bytes(file.content) if how == "all" else bytes(file.content[: len(file.content) // 2])


def lay_out(disk: dict[str, bytes], root: Path) -> None:
    """Write `disk` under `root`."""
    for path, data in disk.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)


def snapshot(root: Path) -> dict[str, bytes]:
    """Inverse of `lay_out`."""
    return {
        str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()
    }
