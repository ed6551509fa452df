"""Numbered versions in a store: claim, publish, load. See FORMAT.md for the rules on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from checkpoints.errors import CheckpointError
from checkpoints.manifest import Manifest, VersionMeta
from checkpoints.store import BlobStore

Arrays = Mapping[str, np.ndarray]


@dataclass(slots=True)
class Epoch:
    """A writer's right to publish: fencing number, its random token, the next number it may put."""

    number: int
    writer: str
    next_number: int


@dataclass(frozen=True, slots=True)
class Version:
    """A loaded version: its manifest and its arrays (writable, C-contiguous, 64-byte aligned)."""

    manifest: Manifest
    arrays: dict[str, np.ndarray]


class VersionStore:
    """Versions in ``store``. Reading needs no claim; publishing does."""

    def __init__(self, store: BlobStore) -> None: ...
    def versions(self) -> list[int]: """Committed versions, ascending; claims are hidden."""; ...
    def manifest(self, number: int) -> Manifest: ...
    def load(self, number: int) -> Version: ...
    def newest_valid(self, report: Callable[[CheckpointError], None] | None = None) -> Version | None: ...
    def claim(self) -> Epoch: """Become the writer. Do this before newest_valid(); on an empty store publish version 0 next."""; ...
    def publish(self, epoch: Epoch, arrays: Arrays, meta: VersionMeta) -> Manifest: """Raises Superseded, WriteFailed."""; ...
    def attach(self, number: int, name: str, arrays: Arrays, meta: dict[str, Any]) -> None: """KeyExists when there."""; ...
    def attached(self, number: int, name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None: ...
