"""Durable publishing off the learner's loop: a short stand-still to capture, then a thread does the rest.

With a float32 W of 400 MB (10,000 x 10,000) on 2 cores the loop stands still 0.06 s; with a version every
5 s the events per second were 0.987 of those without, and there is no second copy in anonymous memory.
FORMAT.md, "What a checkpoint costs", compares the designs.

The learner stands still while the writer thread copies its arrays with write(2) into the page cache of
the new file (no fsync: 0.05 s for 400 MB once the kernel has the pages at hand). The second copy is then
the file's own page cache, which the kernel may drop after writeback, instead of anonymous memory of the
learner. When the disk is so slow that write() itself is throttled, the learner does not wait it out: what
is not written yet is copied to memory and written from there, so a slow disk costs memory for a while,
not time.

Each state goes into a file that was made ready beforehand. The stall of a capture is the time of
write(2): 0.06 s for 400 MB when the pages are there, 0.1-0.2 s when the kernel takes them from its free
list, 0.8-1.0 s when a virtual machine's host must find them first. So, after each version, the next file
is reserved on disk and its (clean) pages brought into the page cache, off the loop. It costs disk room
for one more state, and page cache that may be dropped.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from checkpoints.commit import Epoch, StateFile, commit, discard, next_state_key
from checkpoints.encoding import ArrayDigests, EncodedState, encode
from checkpoints.manifest import Manifest, VersionMeta
from checkpoints.store import BlobStore, CheckpointError, Staged, StagingStore, Superseded, WriteFailed
from checkpoints.versions import Arrays, VersionStore

# Larger pieces let the kernel use larger folios (measured for 400 MB: 0.05 s, against 0.2-0.5 s with pieces
# of 1 MB); the piece in flight when the wait ends is written twice.
PIECE = 16 << 20
# The learner waits while each slice brings this much: below 200 MB/s the disk is slow, above it a copy to
# memory would be no quicker.
SLICE_S = 0.25
SLICE_BYTES = 50_000_000


class Capture:
    """Consecutive pieces of one encoded state, live at first, copied once `detach` was called."""

    def __init__(self, encoded: EncodedState) -> None:
        self._lock = threading.Lock()
        self._live = threading.Event()
        self._pieces: list[tuple[int, memoryview]] = []
        self._done = self._written = 0
        self._copied = False
        at = 0
        for part in encoded.parts():
            flat = memoryview(part)
            while flat:
                size = PIECE - at % PIECE  # cut where the file's folios end
                self._pieces.append((at, flat[:size]))
                at, flat = at + len(flat[:size]), flat[size:]

    def settle(self, budget_s: float) -> None:
        """Return once the live arrays may change: written, or copied when the disk is slow or time is up."""
        deadline = time.monotonic() + budget_s
        before = 0
        while not self._live.wait(min(SLICE_S, budget_s)):
            written = self._written
            if written - before < SLICE_BYTES or time.monotonic() >= deadline:
                self.detach()
                return
            before = written

    def release(self) -> None:
        """No more pieces will be taken (done or failed): waiting callers may continue."""
        self._live.set()

    def detach(self) -> None:
        """Copy every piece that is not written yet; the live arrays may change from here on."""
        with self._lock:
            self._copied = True
            self._pieces[self._done :] = [
                (at, np.frombuffer(piece, np.uint8).copy().data) for at, piece in self._pieces[self._done :]
            ]

    def pieces(self) -> Iterator[tuple[int, memoryview]]:
        """(offset, bytes) for the writer thread; the one in flight during `detach` comes twice.

        A piece counts as written when the next one is asked for.
        """
        while True:
            with self._lock:
                if self._done == len(self._pieces):
                    break
                piece, copied = self._pieces[self._done], self._copied
            yield piece
            with self._lock:
                if copied == self._copied:
                    self._pieces[self._done] = (piece[0], piece[1][:0])
                    self._done += 1
                    self._written += len(piece[1])
        self.release()


class StateWriter:
    """Writes one captured state at a time into `store`; used by one thread at a time.

    `hurry` ends `prepare` early, since its caller has more urgent work.
    """

    def __init__(self, store: BlobStore, copy_below: int) -> None:
        self._store = store
        self._copy_below = copy_below
        self._spare: Staged | None = None
        self.hurry = threading.Event()

    def in_place(self, size: int) -> bool:
        """Whether a state of `size` bytes is taken from the live arrays rather than from a copy."""
        return isinstance(self._store, StagingStore) and size > self._copy_below

    def put(self, key: str, capture: Capture, encoded: EncodedState) -> StateFile:
        """The captured state under `key`, durable. Raises KeyExists, WriteFailed."""
        digests = ArrayDigests(encoded)
        if not isinstance(self._store, StagingStore):
            pieces = (piece for _, piece in capture.pieces())
            return StateFile(key, self._store.put_new(key, digests.passing(pieces)), digests.specs())
        staged = self._stage(self._store, encoded.size)
        try:
            for offset, piece in capture.pieces():
                staged.write_at(offset, piece)
            put = staged.commit(key, on_chunk=digests.update)
        finally:
            staged.abort()
        return StateFile(key, put, digests.specs())

    def prepare(self, size: int) -> None:
        """Make a file for the next state of about `size` bytes ready; a refusing disk is no error here."""
        if isinstance(self._store, StagingStore) and self.in_place(size) and self._spare is None:
            with contextlib.suppress(WriteFailed):
                spare = self._store.stage(size)
                spare.warm(self.hurry.is_set)
                self._spare = spare

    def close(self) -> None:
        """Drop the file kept ready."""
        if self._spare is not None:
            self._spare.abort()
            self._spare = None

    def _stage(self, store: StagingStore, size: int) -> Staged:
        staged, self._spare = self._spare, None
        if staged is None:
            return store.stage(size)
        staged.resize(size)
        return staged


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

    def _run(self, capture: Capture, encoded: EncodedState, meta: VersionMeta) -> None:
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

    def _publish(self, capture: Capture, encoded: EncodedState, meta: VersionMeta) -> Manifest:
        key = next_state_key(self._store, self._epoch)
        try:
            state = self._writer.put(key, capture, encoded)
        except CheckpointError:
            discard(self._store, key)
            raise
        return commit(self._store, self._epoch, meta, state)
