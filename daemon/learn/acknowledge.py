"""After a version is durable: its position for lag dashboards, and what is old out of the way."""

from __future__ import annotations

import structlog

from checkpoints.aliases import aliases
from checkpoints.errors import CheckpointError
from checkpoints.publisher import Published
from checkpoints.retention import prune
from daemon.config.stream import StreamConfig
from daemon.learn.fence import Fence
from daemon.learn.inputs import Inputs
from daemon.learn.observe import Observer
from daemon.retention import learned_twice, retain_topics
from streams.errors import StreamError

log = structlog.get_logger("tripletd.learn")


class Acknowledger:
    """Hears of versions. A durable version stands whatever happens here, so failures are only logged."""

    def __init__(
        self, inputs: Inputs, observer: Observer, fence: Fence, keep: int, stream: StreamConfig
    ) -> None:
        self._inputs = inputs
        self._observer = observer
        self._fence = fence
        self._keep = keep
        self._stream = stream

    def published(self, result: Published) -> None:
        """Commit the position (dashboards only; nothing resumes from it), prune versions, retain records.

        Raises UserError when another learner has taken over meanwhile.
        """
        self._observer.published(result)
        positions = {p: at.next_offset for p, at in result.manifest.positions.items()}
        learned: dict[int, int] = {}
        try:
            learned = learned_twice(self._inputs.versions, result.manifest)
            self._inputs.control.commit(positions)
            prune(self._inputs.versions, self._protected, self._keep, self._fence.check)
        except (StreamError, CheckpointError) as error:
            log.warning("after a version", error=str(error))
        retain_topics(self._inputs.address, self._stream, learned, log.warning)

    def _protected(self) -> set[int]:
        """Versions that verdicts point at. Damaged while one cannot be read: it may point at any."""
        return set(aliases(self._inputs.ledger.whole()).values())

    def failed(self, error: CheckpointError) -> None:
        """A version could not be written."""
        self._observer.failed(error)

    def skipped(self) -> None:
        """A version was due too soon."""
        self._observer.skipped()
