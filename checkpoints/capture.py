"""The state at one event boundary, handed to a writer thread at the smallest stall and without a second copy.

The learner stands still while the writer thread copies its arrays with write(2) into the page cache of the
new file (no fsync: 0.05 s for 400 MB once the kernel has the pages at hand). The second copy is then the
file's own page cache, which the kernel may drop after writeback, instead of anonymous memory of the learner.
When the disk is so slow that write() itself is throttled, the learner waits no longer than its budget: what
is not written yet is copied to memory and written from there: a slow disk costs memory for a while, not time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np

from checkpoints.encoding import Encoded

# Larger pieces let the kernel use larger folios (measured for 400 MB: 0.05 s, against 0.2-0.5 s with pieces
# of 1 MB); the piece in flight when the budget ends is written twice.
PIECE = 64 << 20


class Capture:
    """Consecutive pieces of one encoded state, live at first, copied once :meth:`detach` was called."""

    def __init__(self, encoded: Encoded) -> None:
        self._lock = threading.Lock()
        self._live = threading.Event()
        self._pieces: list[tuple[int, memoryview]] = []
        self._done = 0
        self._copied = False
        at = 0
        for part in encoded.parts():
            flat = memoryview(part)
            for start in range(0, len(flat), PIECE):
                self._pieces.append((at + start, flat[start:start + PIECE]))
            at += len(flat)

    def wait_written(self, timeout: float) -> bool:
        """Whether every piece was taken from the live arrays within ``timeout`` seconds."""
        return self._live.wait(timeout)

    def release(self) -> None:
        """No more pieces will be taken (done or failed): whoever waits may go on."""
        self._live.set()

    def detach(self) -> None:
        """Copy every piece that is not written yet; the live arrays may change from here on."""
        with self._lock:
            self._copied = True
            self._pieces[self._done:] = [(at, np.frombuffer(piece, np.uint8).copy().data)
                                         for at, piece in self._pieces[self._done:]]

    def pieces(self) -> Iterator[tuple[int, memoryview]]:
        """(offset, bytes) for the writer thread; the one in flight during :meth:`detach` comes twice.

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
        self.release()
