"""A checkpoint folder with small versions, for whoever moves names over it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from checkpoints import Ledger, LocalStore, VersionMeta, VersionStore

MAP = {"id": "m" * 64, "spec": {}}


def meta(parent: int | None = None, **changes: Any) -> VersionMeta:
    fields: dict[str, Any] = {"space": "photos", "map": MAP, "parent": parent}
    return VersionMeta(**(fields | changes))


class Shelf:
    """Versions 0 to `count - 1` under `root`, W = (1 + n / 10) I; a ledger nobody has written to."""

    def __init__(self, root: Path, count: int = 4, dim: int = 3) -> None:
        self.root = root
        self.dim = dim
        self._epoch = self.versions.claim()
        for number in range(count):
            self.add(parent=number - 1 if number else None)

    @property
    def versions(self) -> VersionStore:
        return VersionStore(LocalStore(self.root))

    @property
    def ledger(self) -> Ledger:
        return Ledger(LocalStore(self.root))

    def add(self, W: np.ndarray | None = None, **changes: Any) -> int:
        number = self._epoch.next_number
        if W is None:
            W = np.eye(self.dim, dtype=np.float32) * np.float32(1 + number / 10)
        return self.versions.publish(self._epoch, {"W": W}, meta(**changes)).number

    def says(self, kind: str, version: int | None = None, alias: str | None = None, **more: Any) -> int:
        return self.ledger.append({"kind": kind, "version": version, "alias": alias, **more}).n

    def spoil_entry(self, n: int) -> None:
        path = self.root / "ledger" / f"{n:010d}.json"
        path.chmod(0o600)
        path.write_bytes(path.read_bytes()[:-30])

    def spoil_state(self, number: int) -> None:
        (path,) = (self.root / "versions" / f"{number:010d}").glob("state-*.safetensors")
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.chmod(0o600)
        path.write_bytes(data)

    def bytes_of_ledger(self) -> list[bytes]:
        folder = self.root / "ledger"
        return [path.read_bytes() for path in sorted(folder.glob("*"))] if folder.is_dir() else []
