"""After a version is durable: what is old goes, and its position is noted for lag dashboards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from checkpoints import Ledger, Manifest, VersionStore, protected, prune
from checkpoints.errors import CheckpointError
from daemon.config.stream import StreamConfig
from daemon.learn.writing.fence import Fence
from daemon.process.watchdog import Pulse
from daemon.retention import learned_twice, retain_topics
from streams.address import Address
from streams.errors import StreamError
from streams.source import Source

log = structlog.get_logger("tripletd.learn")


@dataclass(frozen=True, slots=True)
class Housekeeping:
    """Works in the errands thread, with a store and a ledger of its own. The version stands whatever happens
    here: what fails is a warning, and the next version makes up for it.
    """

    versions: VersionStore
    ledger: Ledger
    fence: Fence
    address: Address
    keep: int
    stream: StreamConfig
    retain_steps: Callable[[], None]
    pulse: Pulse

    def __call__(self, version: Manifest, source: Source) -> None:
        """Prune versions, retain records, commit the position (nothing ever resumes from it).

        Raises UserError when another learner has taken over meanwhile.
        """
        with self.pulse.patient("pruning"):
            learned = self._prune(version)
            retain_topics(self.address, self.stream, learned, log.warning)
            self.retain_steps()
        self.pulse.beat("noting the position")
        try:
            source.commit({partition: at.next_offset for partition, at in version.positions.items()})
        except StreamError as error:
            log.warning("after a version", error=str(error))

    def _prune(self, version: Manifest) -> dict[int, int]:
        """Old versions; comes back with the positions below which records may go."""
        learned: dict[int, int] = {}
        try:
            learned = learned_twice(self.versions, version)
            prune(self.versions, self._protected, self.keep, self.fence.check)
        except CheckpointError as error:
            log.warning("after a version", error=str(error))
        return learned

    def _protected(self) -> set[int]:
        """What aliases point at, one step back included. Damaged while an entry cannot be read: it may point
        at any.
        """
        return protected(self.ledger.whole())
