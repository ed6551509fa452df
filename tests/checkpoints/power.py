"""The disks that a power loss may leave, from the recorded operations of a writer.

What a real file system may do: content that was not fsynced may be there, gone, or half there, each file on
its own; a name whose folder was not synced may be there or not, each on its own and in any order; with a
folder whose own name was not synced all that is below it may be gone.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .disk import Op

Disk = dict[str, bytes]
"""What is on it: path -> bytes."""


@dataclass
class _File:
    content: bytes
    durable: bytes

    def left(self, how: str) -> bytes:
        if how == "durable" or self.content == self.durable:
            return self.durable
        if how == "all":
            return self.content
        stands = len(self.durable) if self.content.startswith(self.durable) else 0
        return self.content[: stands + (len(self.content) - stands) // 2]


Change = tuple[str, _File | None]


class Powered:
    """A disk under way: what is durable, what is only in memory."""

    def __init__(self, before: Disk) -> None:
        self._durable = {path: _File(data, data) for path, data in before.items()}
        self._now = dict(self._durable)
        self._pending: list[Change] = []
        self._kept = {folder for path in before for folder in _folders_above(path)} | {"tmp"}
        self._new: set[str] = set()

    def apply(self, op: Op) -> None:
        """One operation of the writer."""
        if op.name == "create" and op.path not in self._now:
            self._name(op.path, _File(b"", b""))
        elif op.name == "write":
            file = self._now[op.path]
            padded = file.content.ljust(op.offset, b"\0")
            file.content = padded[: op.offset] + op.data + padded[op.offset + len(op.data) :]
        elif op.name == "fsync":
            self._now[op.path].durable = self._now[op.path].content
        elif op.name == "link":
            self._name(op.target, self._now[op.path])
        elif op.name == "unlink":
            self._name(op.path, None)
        elif op.name == "make":
            self._new |= {op.path} - self._kept
        elif op.name == "sync":
            self._sync("" if op.path == "." else op.path)

    def losses(self, rng: random.Random, more: int) -> Iterator[Disk]:
        """What may be left if the power goes now; `more`: arbitrary mixtures beside the plain ones."""
        pending = self._pending
        subsets = [[], pending]
        subsets += [[change] for change in pending] + [
            [c for c in pending if c is not out] for out in pending
        ]
        for subset in subsets:
            names = self._names(subset)
            for how in ("durable", "all", "half"):
                yield from self._with_folders({path: file.left(how) for path, file in names.items()})
        for _ in range(more):
            names = self._names([change for change in pending if rng.random() < 0.5])
            mixed = {p: file.left(rng.choice(("durable", "all", "half"))) for p, file in names.items()}
            yield from self._with_folders(mixed)

    def _name(self, path: str, file: _File | None) -> None:
        _set(self._now, path, file)
        self._pending.append((path, file))

    def _names(self, changes: list[Change]) -> dict[str, _File]:
        names = dict(self._durable)
        for path, file in changes:
            _set(names, path, file)
        return names

    def _sync(self, folder: str) -> None:
        synced = {new for new in self._new if os.path.dirname(new) == folder}
        self._kept, self._new = self._kept | synced, self._new - synced
        for path, file in self._pending:
            if os.path.dirname(path) == folder:
                _set(self._durable, path, file)
        self._pending = [change for change in self._pending if os.path.dirname(change[0]) != folder]

    def _with_folders(self, left: Disk) -> Iterator[Disk]:
        yield left
        if kept := {p: data for p, data in left.items() if self._new.isdisjoint(_folders_above(p))}:
            yield kept


def power_losses(before: Disk, log: list[Op], seed: int = 0, more: int = 2) -> Iterator[tuple[int, Disk]]:
    """(operations done, disk) for every disk that a power loss after some prefix of `log` may leave.

    `before` is durable. A disk that differs in nothing from one given at the same prefix is left out.
    """
    powered, rng = Powered(before), random.Random(seed)
    for done in range(len(log) + 1):
        seen: set[int] = set()
        for left in powered.losses(rng, more):
            print_of = hash(tuple(sorted((path, hash(data)) for path, data in left.items())))
            if print_of not in seen:
                seen.add(print_of)
                yield done, left
        if done < len(log):
            powered.apply(log[done])


@cache
def _folders_above(path: str) -> frozenset[str]:
    above = os.path.dirname(path)
    return _folders_above(above) | {above} if above else frozenset()


def _set(names: dict[str, _File], path: str, file: _File | None) -> None:
    names.pop(path, None)
    if file is not None:
        names[path] = file


def lay_out(disk: Disk, root: Path) -> None:
    """Write `disk` under `root`."""
    for path, data in disk.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)


def snapshot(root: Path) -> Disk:
    """Inverse of `lay_out`."""
    return {
        str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()
    }
