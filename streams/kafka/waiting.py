"""Records that were fetched and are still to be handed out: partitions take turns."""

from __future__ import annotations

from collections import deque

from streams.kafka.clients.protocol import Fetched


class Waiting:
    """Pieces per partition, in order; the partition at the front of the queue is next."""

    def __init__(self) -> None:
        self._pieces: dict[int, deque[Fetched]] = {}
        self._starts: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def __contains__(self, partition: int) -> bool:
        return partition in self._pieces

    def add(self, piece: Fetched) -> None:
        """Put a piece behind what its partition has already."""
        self._pieces.setdefault(piece.partition, deque()).append(piece)

    def next(self) -> Fetched:
        """The piece that `take` takes from: its partition and epoch are those of the records to come."""
        return next(iter(self._pieces.values()))[0]

    def take(self, max_records: int, max_bytes: int) -> Fetched:
        """The next records; their partition then goes to the end of the queue.

        At least one, at most `max_records`, and no more once their values have `max_bytes`.
        """
        partition, pieces = next(iter(self._pieces.items()))
        del self._pieces[partition]
        piece, start = pieces[0], self._starts.pop(partition, 0)
        stop = _stop(piece.values, start, min(len(piece.offsets), start + max_records), max_bytes)
        if stop < len(piece.offsets):
            self._starts[partition] = stop
        else:
            pieces.popleft()
        if pieces:
            self._pieces[partition] = pieces
        return piece if stop - start == len(piece.offsets) else _part(piece, slice(start, stop))

    def clear(self) -> None:
        """Forget everything."""
        self._pieces.clear()
        self._starts.clear()


def _stop(values: list[bytes | None], start: int, stop: int, max_bytes: int) -> int:
    if sum(map(len, filter(None, values[start:stop]))) < max_bytes:
        return stop
    held = 0
    for place in range(start, stop):
        held += len(values[place] or b"")
        if held >= max_bytes:
            return place + 1
    return stop


def _part(piece: Fetched, part: slice) -> Fetched:
    return Fetched(
        piece.partition,
        piece.epoch,
        piece.offsets[part],
        piece.timestamps[part],
        piece.values[part],
        piece.keys[part],
        piece.headers[part],
    )
