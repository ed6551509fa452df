"""What a replica says of itself, written by its threads and read by anybody."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from daemon.replica.model import ModelId
from daemon.replica.status import Refined, ReplicaStatus


class Board:
    """A `ReplicaStatus` that is replaced as a whole, so that a reader never sees half of a change."""

    def __init__(self, alias: str) -> None:
        self._lock = threading.Lock()
        self._fallbacks: Counter[str] = Counter()
        self._swaps: Counter[str] = Counter()
        self._status = ReplicaStatus(alias, None, None, "no version was looked for yet", "versions")

    @property
    def status(self) -> ReplicaStatus:
        """What is known now."""
        return self._status

    def served(self, model: ModelId, result: str, seconds: Mapping[str, float] | None = None) -> None:
        """A model answers from now on; `seconds` by phase where a whole version was swapped in."""
        with self._lock:
            self._swaps[result] += 1
            told = self._status.swap_seconds if seconds is None else dict(seconds)
            self._status = replace(
                self._status, model=model, since=time.time(), swaps=dict(self._swaps), swap_seconds=told
            )

    def looked(self, why: str, refusals: Mapping[str, int]) -> None:
        """Why nothing newer is served, "" when there is nothing; versions refused so far, by reason."""
        with self._lock:
            self._status = replace(self._status, why_not_newer=why, refusals=dict(refusals))

    def fell_back(self, reason: str) -> None:
        """The step log was lost."""
        with self._lock:
            self._fallbacks[reason] += 1
            self._status = replace(self._status, fallbacks=dict(self._fallbacks))

    def stands(self, joined: bool, stuck: tuple[str, ...]) -> None:
        """Whether steps are being followed, and which readers do not leave."""
        following = "steps" if joined else "versions"
        if (following, stuck) != (self._status.following, self._status.stuck):
            with self._lock:
                self._status = replace(self._status, following=following, stuck=stuck)

    def measured(self, refined: Refined) -> None:
        """What carrying the form over had cost."""
        with self._lock:
            self._status = replace(self._status, carried=refined)
