"""Pieces and clients made by hand."""

from __future__ import annotations

from streams.kafka.clients.protocol import CorruptBatch, Fetched


def piece(partition, first, values, epoch=0):
    n = len(values)
    offsets = list(range(first, first + n))
    return Fetched(partition, offsets, offsets[:], list(values), [None] * n, [()] * n, epoch=epoch)


class Torn:
    """A log of records in which some cannot be read, one partition; stands in for a client.

    `error`: raised at those.
    """

    def __init__(self, damaged, end, error=CorruptBatch):
        self.damaged, self.end, self.error, self.offset, self.broken = damaged, end, error, 0, False

    def assign(self, positions):
        ((_, self.offset),) = positions.items()

    def poll(self, max_records, timeout_s):
        assert not self.broken, "a client is of no use after an error"
        if self.offset in self.damaged:
            self.broken = True
            raise self.error("torn")
        return [piece(0, self.offset, [b"x"])] if self.offset < self.end else []

    def positions(self):
        return {0: self.offset}

    def close(self):
        pass
