"""Durable publishing off the learner's loop."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoints.errors import CheckpointError, Superseded
from checkpoints.manifest import Manifest, VersionMeta
from checkpoints.versions import Arrays, Epoch, VersionStore


@dataclass(frozen=True, slots=True)
class Published:
    """A version is durable. Seconds the loop stood still, seconds until durable, bytes written."""

    manifest: Manifest
    stall_seconds: float
    seconds: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Nothing was published; the previous version stands. ``meta`` is what was to be published."""

    error: CheckpointError
    meta: VersionMeta

    @property
    def superseded(self) -> bool:
        """Another writer took over: exit without writing. Otherwise: learn on, try at the next cadence."""
        return isinstance(self.error, Superseded)


class AsyncPublisher:
    """One version at a time: ``begin`` at an event boundary, ``result`` later. Call from one thread."""

    def __init__(self, version_store: VersionStore, epoch: Epoch) -> None: ...
    def begin(self, arrays: Arrays, meta: VersionMeta) -> bool: """False while the previous one is still being written or its result was not taken."""; ...
    def result(self) -> Published | Failed | None: """Not blocking; each result is given once."""; ...
    def drain(self, timeout: float | None = None) -> Published | Failed | None: """Wait for the one in flight; None when idle or out of time."""; ...
    def close(self) -> None: ...
