"""Hears of versions: shown at once, tidied up after in the errands thread."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoints.errors import CheckpointError
from checkpoints.publisher import Published
from daemon.learn.applying.progress import Snapshot
from daemon.learn.observe import Observer
from daemon.learn.steps.handover import Handover
from daemon.learn.threads.errands import Errands
from daemon.versions.counters import RECORDS, counted


@dataclass(frozen=True, slots=True)
class Acknowledger:
    """A version is durable before it is acknowledged, and stands whatever happens then."""

    observer: Observer
    errands: Errands
    handover: Handover

    def captured(self, snapshot: Snapshot) -> None:
        """The step log is cut here, so that replicas of the version go on from it."""
        self.handover.captured(counted(snapshot.counters, RECORDS), snapshot.watermark)

    def published(self, result: Published) -> None:
        """Show it; have its position noted, old versions pruned, learned records retained."""
        self.observer.published(result)
        self.errands.published(result.manifest)
        self.handover.published(result.manifest)

    def failed(self, error: CheckpointError) -> None:
        """A version could not be written."""
        self.observer.failed(error)

    def skipped(self) -> None:
        """A version was due too soon."""
        self.observer.skipped()
