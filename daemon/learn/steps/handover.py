"""The loop's side of the step log: references in, nothing that takes time or can fail."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoints.manifest import Manifest
from daemon.learn.applying.apply import Step
from daemon.learn.steps.applied import AppliedBatch, Captured, Durable
from daemon.learn.steps.inbox import Inbox
from daemon.versions.algorithms import digest_of
from daemon.versions.counters import records_of


@dataclass(frozen=True, slots=True)
class Handover:
    """Tells the publishing thread what happened, in order; nobody where there is no step log."""

    inbox: Inbox | None

    def applied(self, first: int, last: int, watermark: int | None, step: Step) -> None:
        """A batch was learned: `first`, `last` records before and after it."""
        if self.inbox is not None:
            learned = (step.learned, step.info, step.timestamps, step.weights)
            self.inbox.offer(AppliedBatch(first, last, watermark, *learned))

    def captured(self, records: int, watermark: int | None) -> None:
        """A version was captured here."""
        if self.inbox is not None:
            self.inbox.offer(Captured(records, watermark))

    def published(self, version: Manifest) -> None:
        """A version is durable."""
        if self.inbox is not None:
            self.inbox.offer(durable(version))


def durable(version: Manifest) -> Durable:
    """What the step log says of a version."""
    return Durable(version.number, records_of(version), digest_of(version), version.writer)
