"""From the loop to the publishing thread: never waits, never grows past its limit."""

from __future__ import annotations

import threading
from collections import deque

from daemon.learn.steps.applied import AppliedBatch, Item

MAX_BYTES = 64 << 20
"""Vectors that may wait; a batch above it is still taken when none waits."""
MAX_BATCHES = 10_000
MAX_MARKS = 1_000


class Inbox:
    """Batches and marks in the order of the loop. What does not fit is left out: its reader sees the gap."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._lock = threading.Lock()
        self._items: deque[Item] = deque()
        self._max_bytes = max_bytes
        self._bytes = self._batches = 0
        self.left_out = 0  # batches that did not fit, ever

    def offer(self, item: Item) -> None:
        """Hand over one item, unless there is no room for it."""
        with self._lock:
            if not isinstance(item, AppliedBatch):
                if len(self._items) - self._batches < MAX_MARKS:
                    self._items.append(item)
                return
            size = _bytes(item)
            if self._batches and (self._bytes + size > self._max_bytes or self._batches >= MAX_BATCHES):
                self.left_out += 1
                return
            self._items.append(item)
            self._bytes += size
            self._batches += 1

    def take(self) -> list[Item]:
        """Everything that waits."""
        with self._lock:
            items, self._items = list(self._items), deque()
            self._bytes = self._batches = 0
        return items


def _bytes(batch: AppliedBatch) -> int:
    if batch.triplets is None:
        return 0
    triplets = batch.triplets
    return triplets.query.nbytes + triplets.clicked.nbytes + triplets.skipped.nbytes
