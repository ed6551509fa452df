"""The state at one event boundary, handed to a writer thread at the smallest stall and without a second copy.

The learner stands still while the writer thread copies its arrays with write(2) into the page cache of the
new file (no fsync: 0.05 s for 400 MB once the kernel has the pages at hand). The second copy is then the
file's own page cache, which the kernel may drop after writeback, instead of anonymous memory of the learner.
When the disk is so slow that write() itself is throttled, the learner does not wait it out: what is not
written yet is copied to memory and written from there, so a slow disk costs memory for a while, not time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np

from checkpoints.encoding import Encoded

# Larger pieces let the kernel use larger folios (measured for 400 MB: 0.05 s, against 0.2-0.5 s with pieces
# of 1 MB); the piece in flight when the wait ends is written twice.
PIECE = 16 << 20
# The learner waits while each slice brings this much: below 200 MB/s the disk is slow, above it a copy to
# memory would be no quicker.
SLICE_S = 0.25
SLICE_BYTES = 50_000_000


class Capture:
    """Consecutive pieces of one encoded state, live at first, copied once `detach` was called."""

    def __init__(self, encoded: Encoded) -> None:
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
        """No more pieces will be taken (done or failed): whoever waits may go on."""
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
