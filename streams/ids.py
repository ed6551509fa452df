"""Ids: as 64-bit hashes, as packed texts that find their rows, and the window of ids that were applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias, overload

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from streams.errors import StreamError

UInt64Array = npt.NDArray[np.uint64]


def hash_ids(ids: Sequence[str]) -> UInt64Array:
    """xxh64 (seed 0) of each id's UTF-8 bytes, uint64 [n]."""
    from streams.compiled.hashing import hash_each  # brings numba in: only where events are decoded

    encoded = [one.encode() for one in ids]
    bounds = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(one) for one in encoded], out=bounds[1:])
    hashes = np.empty(len(encoded), np.uint64)
    hash_each(np.frombuffer(b"".join(encoded), np.uint8), bounds, hashes)
    return hashes


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """n byte strings: row i is `data[bounds[i]:bounds[i + 1]]`.

    data: uint8 [bytes]; bounds: int64 [n + 1], ascending from 0 to len(data).
    """

    data: npt.NDArray[np.uint8]
    bounds: npt.NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[bytes]) -> Packed:
        """These byte strings, copied into one buffer."""
        bounds = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)), out=bounds[1:])
        return cls(np.frombuffer(b"".join(rows), np.uint8), bounds)

    @classmethod
    def of_texts(cls, texts: Iterable[str]) -> Packed:
        """These texts in UTF-8."""
        return cls.of([text.encode() for text in texts])

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, row: int) -> bytes:
        """Row `row`, copied; IndexError outside 0 .. n - 1."""
        if not 0 <= row < len(self):
            raise IndexError(row)
        return self.data[self.bounds[row] : self.bounds[row + 1]].tobytes()

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return self.data.nbytes + self.bounds.nbytes

    def take(self, rows: npt.NDArray[np.integer]) -> Packed:
        """The rows named by an integer array within range, in its order, copied."""
        starts = self.bounds[rows]
        lengths = self.bounds[rows + 1] - starts
        bounds = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths, out=bounds[1:])
        places = np.repeat(starts - bounds[:-1], lengths)
        places += np.arange(bounds[-1])
        return Packed(self.data[places], bounds)


def join(pieces: Sequence[Packed]) -> Packed:
    """All rows of the pieces, one piece below the other, copied; no pieces, no rows."""
    if not pieces:
        return Packed.of(())
    ends = np.cumsum([0, *(len(piece.data) for piece in pieces)])
    bounds = [piece.bounds[1:] + end for piece, end in zip(pieces, ends, strict=False)]
    return Packed(np.concatenate([p.data for p in pieces]), np.concatenate([[0], *bounds]).astype(np.int64))


class IdColumn(Sequence[str]):
    """n different ids; row i is the i-th. Memory per id: its bytes, 8, and 8 to 16 of slots."""

    def __init__(self, packed: Packed) -> None:
        from streams.compiled.hashing import fill_slots  # brings numba in: only where ids are looked up

        self.packed = packed
        self._slots = np.full(1 << (2 * len(packed)).bit_length(), -1, np.int32)
        fill_slots(packed.data, packed.bounds, self._slots)

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return self.packed.nbytes + self._slots.nbytes

    def __len__(self) -> int:
        return len(self.packed)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[str]: ...
    def __getitem__(self, row: int | slice) -> str | Sequence[str]:
        """The id of a row; IndexError outside 0 .. n - 1. A slice is a list of texts."""
        if isinstance(row, slice):
            return [self.packed[one].decode() for one in range(*row.indices(len(self)))]
        return self.packed[row].decode()

    def texts_of(self, rows: Sequence[int]) -> list[str]:
        """The ids of rows, each 0 .. n - 1, in this order."""
        places, data = np.asarray(rows, np.int64), self.packed.data.data
        starts, stops = self.packed.bounds[places].tolist(), self.packed.bounds[places + 1].tolist()
        return [str(data[start:stop], "utf-8") for start, stop in zip(starts, stops, strict=True)]

    def rows_of(self, wanted: Packed) -> npt.NDArray[np.int64]:
        """The row of each wanted id (UTF-8), -1 where it is not there; int64 [len(wanted)]."""
        from streams.compiled.hashing import find_each

        rows = np.empty(len(wanted), np.int64)
        find_each(wanted.data, wanted.bounds, (self.packed.data, self.packed.bounds, self._slots), rows)
        return rows


UInt64s: TypeAlias = NDArray[np.uint64]


class IdWindow:
    """Remembers the last `capacity` distinct ids that it admitted; 0 remembers none and admits all.

    ids: the 64-bit hashes of event ids, as a decoder gives them. A known id is a repetition: it is not
    admitted, and its place in the window stays what it was. So an id is known until `capacity` others were
    admitted after it. What is admitted depends on the ids and their order alone, not on where batches end.
    To admit only ids whose events were learned, call `look` first.
    Two different ids of one hash count as one: with 100,000 known ids that befalls one event in 10^14.
    Costs 24 to 40 bytes per id of `capacity`, and about 50 ns per event. Not safe for two threads at once.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 0:
            raise ValueError(f"a window holds 0 ids or more, not {capacity}")
        self.capacity = capacity
        self._ring = np.zeros(capacity, np.uint64)
        self._table = np.zeros(1 << (2 * capacity).bit_length(), np.uint64)  # at most half full
        self._admitted = 0
        if capacity:
            from streams.compiled import (
                hashing as window,  # here, so that the first event does not wait for it
            )

            self._compiled = window

    def __len__(self) -> int:
        """How many ids are known."""
        return min(self._admitted, self.capacity)

    def look(self, ids: UInt64s, start: int = 0) -> tuple[int, NDArray[np.bool_]]:
        """(stop, bool [stop - start]): which of the ids from `start` on are not known, up to the first of
        which that depends on whether those before it are admitted; stop > start unless nothing is left."""
        fresh, stop = np.ones(len(ids), np.bool_), len(ids)
        if self.capacity and stop > start:
            met = np.zeros(1 << (2 * (stop - start)).bit_length(), np.uint64)
            stop = int(self._compiled.look(ids, start, self._ring, self._table, self._admitted, met, fresh))
        return stop, fresh[start:stop]

    def admit(self, ids: UInt64s) -> NDArray[np.bool_]:
        """bool [n], for uint64 [n] in the order of application: True for each id that was not known."""
        fresh = np.ones(len(ids), np.bool_)
        if self.capacity and len(ids):
            self._admitted = self._compiled.admit(ids, self._ring, self._table, self._admitted, fresh)
        return fresh

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What the window is restored from; empty without a capacity.

        `ids` uint64 [len]: the known ids, the k-th admitted at k mod capacity; a read-only view, which
        changes with the next `admit`. `admitted` int64 []: how many were ever admitted.
        """
        if not self.capacity:
            return {}
        ids = self._ring[: len(self)]
        ids.flags.writeable = False
        return {"ids": ids, "admitted": np.array(self._admitted, np.int64)}

    @classmethod
    def from_arrays(cls, capacity: int, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """A window that continues from `arrays`, copied; an empty one where there are none.

        Raises StreamError when they are not those of a window of this capacity.
        """
        window = cls(capacity)
        if not arrays:
            return window
        ids, admitted = _checked(capacity, arrays)
        if capacity and window._compiled.fill(ids, window._table) != len(ids):
            raise StreamError("the array of known event ids holds an id twice, or none: it was altered")
        window._ring[: len(ids)] = ids
        window._admitted = admitted
        return window


def united_ids(
    capacity: int,
    base: Mapping[str, NDArray[Any]],
    windows: Sequence[Mapping[str, NDArray[Any]]],
    news: Sequence[int],
) -> dict[str, NDArray[Any]]:
    """The arrays of one window that knows what several know: the base's ids, then the newest `news[k]` of
    each, in turns by age, the newest last.

    news: how many ids each admitted since what the base holds of it; windows need not have continued from
    the base, so their own counts do not tell. Where one forgot some of them, as many as it knows count.
    Raises StreamError for what is no window.
    """
    whole = IdWindow.from_arrays(capacity, base)
    if not capacity:
        return {}
    newest = [_newest(capacity, one, count) for one, count in zip(windows, news, strict=True)]
    if newest:
        ages = np.concatenate([np.arange(len(ids), 0, -1) for ids in newest])
        whole.admit(np.concatenate(newest)[np.argsort(-ages, kind="stable")])
    return {name: np.array(array) for name, array in whole.arrays().items()}


def _newest(capacity: int, window: Mapping[str, NDArray[Any]], count: int) -> UInt64s:
    """The last `count` ids that a window admitted, as far as it still knows them, in order."""
    ids, admitted = _checked(capacity, window)
    numbers = np.arange(admitted - min(count, len(ids)), admitted)
    found: UInt64s = ids[numbers % capacity]
    return found


def _checked(capacity: int, arrays: Mapping[str, NDArray[Any]]) -> tuple[UInt64s, int]:
    """(ids, admitted) of arrays whose types and lengths fit each other and the capacity."""
    expected = {"ids": (np.uint64, 1), "admitted": (np.int64, 0)}
    if {name: (array.dtype.type, array.ndim) for name, array in arrays.items()} != expected:
        raise StreamError("a window of event ids is uint64 `ids` [n] and int64 `admitted` []: it was altered")
    ids, admitted = arrays["ids"], int(arrays["admitted"])
    if admitted < 0 or len(ids) != min(admitted, capacity):
        raise StreamError(
            f"{len(ids)} known event ids of {admitted} admitted do not make a window of {capacity}: "
            "it was altered, or written with another capacity"
        )
    return ids, admitted
