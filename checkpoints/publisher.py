"""Durable publishing off the learner's loop: a short stand-still to capture, then a thread does the rest.

With a float32 W of 400 MB (10,000 x 10,000) on 2 cores the loop stands still 0.06 s; with a version every
5 s the events per second were 0.987 of those without, and there is no second copy in anonymous memory.
FORMAT.md, "What a checkpoint costs", compares the designs; `checkpoints.capture` and
`checkpoints.state_writer` say how.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from checkpoints.capture import Capture
from checkpoints.commit import Epoch, commit, discard, next_state_key
from checkpoints.encoding import Encoded, encode
from checkpoints.errors import CheckpointError, Superseded, WriteFailed
from checkpoints.manifest import Manifest, VersionMeta
from checkpoints.state_writer import StateWriter
from checkpoints.versions import Arrays, VersionStore

# Below this size a plain copy (a few ms) stalls less than waiting for a thread that writes.
COPY_BELOW = 8 << 20
# The longest that the loop waits for the page cache before it copies the rest to memory.
STALL_BUDGET_S = 2.0


@dataclass(frozen=True, slots=True)
class Published:
    """A version is durable. Seconds the loop stood still, seconds until durable, bytes of state written."""

    manifest: Manifest
    stall_seconds: float
    seconds: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Nothing was published; the previous version stands. `meta` is what was to be published."""

    error: CheckpointError
    meta: VersionMeta

    @property
    def superseded(self) -> bool:
        """Another writer took over: exit without writing. Otherwise: learn on, try at the next cadence."""
        return isinstance(self.error, Superseded)


class AsyncPublisher:
    """One version at a time: `begin` at an event boundary, `result` later. Call from one thread."""

    def __init__(
        self,
        version_store: VersionStore,
        epoch: Epoch,
        stall_budget_s: float = STALL_BUDGET_S,
        copy_below: int = COPY_BELOW,
    ) -> None:
        self._store = version_store.store
        self._epoch = epoch
        self._stall_budget_s = stall_budget_s
        self._writer = StateWriter(version_store.store, copy_below)
        self._thread: threading.Thread | None = None
        self._preparing: threading.Thread | None = None
        self._outcome: Manifest | CheckpointError | None = None
        self._meta = VersionMeta()
        self._taken = True
        self._started = self._stall = self._seconds = 0.0

    def prepare(self, arrays: Arrays) -> None:
        """Make the file for the first version ready, as it is after each one; returns at once.

        Without it the loop stands still 0.7 s for the first 400 MB, with it as long as for the others.
        """
        work = self._writer.prepare
        self._preparing = threading.Thread(target=work, args=(encode(arrays).size,), daemon=True)
        self._preparing.start()

    def begin(self, arrays: Arrays, meta: VersionMeta) -> bool:
        """Capture `arrays` as they are now; they may change as soon as this returns.

        False (and nothing done) while the previous version is being written or its result was not taken.
        A disk that refuses shows in `result`. ValueError for arrays or values that cannot be stored.
        """
        if self._thread is not None and not (self._taken and self._outcome):
            return False
        self._started = time.perf_counter()
        encoded = encode(arrays)
        self._join(None)
        self._meta, self._outcome, self._taken = meta, None, False
        capture = Capture(encoded)
        in_place = self._writer.in_place(encoded.size)
        if not in_place:
            capture.detach()
        self._thread = threading.Thread(target=self._run, args=(capture, encoded, meta), daemon=True)
        self._writer.hurry.clear()
        self._thread.start()
        if in_place:
            capture.settle(self._stall_budget_s)
        self._stall = time.perf_counter() - self._started
        return True

    def result(self) -> Published | Failed | None:
        """What became of the last `begin`; None while it is being written or there is none. Given once."""
        if self._outcome is None or self._taken:
            return None
        self._taken = True
        if isinstance(self._outcome, Manifest):
            return Published(self._outcome, self._stall, self._seconds, self._outcome.files[0].size)
        return Failed(self._outcome, self._meta)

    def drain(self, timeout: float | None = None) -> Published | Failed | None:
        """Wait up to `timeout` seconds (None: for ever) for the one in flight, then as `result`."""
        self._join(timeout)
        return self.result()

    def close(self) -> None:
        """Wait for the one in flight, forget its result, drop the file kept ready for the next."""
        self._join(None)
        self._writer.close()

    def _join(self, timeout: float | None) -> None:
        self._writer.hurry.set()
        if self._preparing is not None:
            self._preparing.join()
            self._preparing = None
        if self._thread is not None:
            self._thread.join(timeout)
            if not self._thread.is_alive():
                self._thread = None

    def _run(self, capture: Capture, encoded: Encoded, meta: VersionMeta) -> None:
        outcome: Manifest | CheckpointError = WriteFailed("checkpoint", "the writer thread ended early")
        try:
            outcome = self._publish(capture, encoded, meta)
        except CheckpointError as error:
            outcome = error
        except (OSError, ValueError, MemoryError) as error:
            outcome = WriteFailed("checkpoint", f"cannot be written: {error!r}")
        finally:
            capture.release()
            self._seconds = time.perf_counter() - self._started
            self._outcome = outcome
        if isinstance(outcome, Manifest):
            self._writer.prepare(encoded.size)

    def _publish(self, capture: Capture, encoded: Encoded, meta: VersionMeta) -> Manifest:
        key = next_state_key(self._store, self._epoch)
        try:
            state = self._writer.put(key, capture, encoded)
        except CheckpointError:
            discard(self._store, key)
            raise
        return commit(self._store, self._epoch, meta, state)
