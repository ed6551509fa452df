"""Verdicts on modes as they are kept: beside their version, one file for each time that it was judged."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from checkpoints import VersionStore
from checkpoints.store import CheckpointError, KeyExists
from daemon.index.verdict import IndexVerdict, ModeChoice, choose_mode

ATTACHED = "index"
LOOK_EVERY_S = 10.0
MOST = 100
"""Times that one version is judged."""
REMEMBERED = 16

log = structlog.get_logger("tripletd.index")


def keep_verdict(versions: VersionStore, verdict: IndexVerdict) -> None:
    """Write a verdict beside its version. Raises CheckpointError, and KeyExists after `MOST` of them."""
    for number in range(MOST):
        try:
            versions.attach(verdict.version, f"{ATTACHED}-{number}", {}, verdict.to_meta())
        except KeyExists:
            if number + 1 == MOST:
                raise
            continue
        return


def read_verdict(versions: VersionStore, version: int, index: str) -> IndexVerdict | None:
    """The newest on this version in this store, None where there is none. Raises CheckpointError."""
    newest = None
    for number in range(MOST):
        meta = versions.attached_meta(version, f"{ATTACHED}-{number}")
        if meta is None:
            break
        found = IndexVerdict.of_meta(meta)
        if found is not None and found.index == index:
            newest = found
    return newest


def newest_verdict(versions: VersionStore, version: int, index: str) -> IndexVerdict | None:
    """On this version, or on the newest one before it that was judged. Raises CheckpointError."""
    for number in sorted(versions.versions(), reverse=True):
        if number <= version:
            found = read_verdict(versions, number, index)
            if found is not None:
                return found
    return None


class KeptVerdicts:
    """Which mode the verdicts choose for a version. Any thread; the files are looked at every `every_s`."""

    def __init__(
        self,
        versions: VersionStore,
        index: str,
        every_s: float = LOOK_EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._versions, self._index = versions, index
        self._every_s, self._clock = every_s, clock
        self._known: dict[int, tuple[float, ModeChoice]] = {}
        self._lock = threading.Lock()

    def mode_of(self, version: int) -> ModeChoice:
        """The choice for a version; what was chosen last while the files cannot be read."""
        with self._lock:
            known = self._known.get(version)
            if known is not None and self._clock() - known[0] < self._every_s:
                return known[1]
            try:
                choice = choose_mode(newest_verdict(self._versions, version, self._index), self._index)
            except CheckpointError as error:
                log.warning("verdicts on the store cannot be read", index=self._index, why=str(error))
                choice = known[1] if known is not None else choose_mode(None, self._index)
            if known is None or known[1] != choice:
                log.info("how the store is asked", index=self._index, mode=choice.mode, why=choice.why)
            self._known[version] = (self._clock(), choice)
            while len(self._known) > REMEMBERED:
                del self._known[next(iter(self._known))]
            return choice
