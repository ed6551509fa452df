"""Records to a table of events, and the table to columns: what surrounds the compiled functions.

Records are joined and gone through piece by piece, twice: once for what is where, once to copy the
vectors out. A piece stays in a processor's own cache from joining to copying, and its memory is used
again for the next; one long join takes longer than two short ones, because the system has to hand out
fresh memory for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from streams.catalog import Catalog, RoleColumns
from streams.compiled.compile import BYTES, LONGS, SPANS, inlined, kernel
from streams.compiled.hashing import fill_slots
from streams.compiled.scan import scan
from streams.event import UNNAMED_VIEW, Column, DenseColumn, Float32Array, Int64Array, SpaceSpec, SparseColumn
from streams.limits import MAX_KEY_BYTES

from numba import types  # isort: skip


# ruff: noqa: PLR0917  (kernels take plain arrays)


STARTS = types.Array(types.int64, 3, "C", readonly=True)
NUMBER = 4
"""Bytes of an index, and of a value."""


@inlined
def copy(data: Any, start: int, size: int, out: Any, at: int) -> None:
    """`out[at:at + size]` = `data[start:start + size]`.

    Unsigned places become one wide copy; signed ones do not, as each might count from the end.
    """
    source, target = np.uint64(start), np.uint64(at)
    for step in range(np.uint64(size)):
        out[target + step] = data[source + step]


@inlined
def clear(size: int, out: Any, at: int) -> None:
    """`out[at:at + size]` = 0."""
    target = np.uint64(at)
    for step in range(np.uint64(size)):
        out[target + step] = 0


@kernel(types.void(BYTES, SPANS, types.int64, types.int64, LONGS, STARTS, STARTS, types.uint8[::1]))
def fill(
    data: Any, spans: Any, first: int, last: int, sizes: Any, starts: Any, columns: Any, room: Any
) -> None:
    """Copy the vectors of the table's rows first .. last - 1, whose `spans` point into `data`, to `room`.

    sizes: as in SPACE. starts int64 [3, views, rows + 1]: how many numbers of a column are before each row's.
    columns int64 [3, views, 2]: the place in `room` of a column's indices (-1 in a dense view) and of its
    values (-1 where the role has no columns). A row without a vector becomes zeros in a dense view.
    """
    for row in range(first, last):
        for role in range(columns.shape[0]):
            for view in range(columns.shape[1]):
                indices, values = columns[role, view, 0], columns[role, view, 1]
                at, size = NUMBER * starts[role, view, row], spans[row, role, view, 2]
                if values < 0:
                    continue
                if indices >= 0:
                    copy(data, spans[row, role, view, 0], size, room, indices + at)
                    copy(data, spans[row, role, view, 1], size, room, values + at)
                elif size > 0:
                    copy(data, spans[row, role, view, 0], size, room, values + at)
                else:
                    clear(sizes[view], room, values + at)


PIECE_BYTES = 1 << 19
ROLES = 3
ALIGN = 64
UInt8Array = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class ScannedEvents:
    """The events among some records: `streams.compiled.compile.TABLE`, one row per event.

    `pieces` are (first record, last, first event, last), each last excluded; the `spans` of an event count
    from the beginning of its piece.
    """

    values: Sequence[bytes]
    pieces: list[tuple[int, int, int, int]]
    records: Int64Array
    timestamps: Int64Array
    weights: Float32Array
    ids: npt.NDArray[np.uint64]
    rows: npt.NDArray[np.int32]
    spans: Int64Array
    sources: npt.NDArray[np.uint64]
    pairs: npt.NDArray[np.uint8]
    keys: npt.NDArray[np.bytes_] | None = field(kw_only=True)

    def __len__(self) -> int:
        return len(self.records)

    def joined(self) -> Iterator[tuple[UInt8Array, int, int]]:
        """Each piece's bytes, its first event and its last, excluded."""
        for first, last, begin, end in self.pieces:
            yield _join(self.values[first:last]), begin, end


class RecordScanner:
    """Reads records of one space, objects by id in one catalog (None: there is none)."""

    def __init__(self, space: SpaceSpec, catalog: Catalog | None, keyed: bool = False) -> None:
        self._views = space.views
        self._space = _space_arrays(space)
        self._sizes: Int64Array = self._space[3]
        self._index = _index_arrays(catalog)
        self._keyed = keyed

    def find(self, values: Sequence[bytes], limit: int) -> ScannedEvents:
        """The events among the records of at most `limit` bytes; all other records are left out."""
        n, views = len(values), len(self._views)
        bounds = _bounds(values)
        table: tuple[Any, ...] = (
            np.empty(n, np.int64),
            np.empty(n, np.int64),
            np.empty(n, np.float32),
            np.empty(n, np.uint64),
            np.empty((n, ROLES), np.int32),
            np.empty((n, ROLES, views, 3), np.int64),
            np.empty(n, np.uint64),
            np.empty(n, np.uint8),
            np.empty((n if self._keyed else 0, MAX_KEY_BYTES), np.uint8),
        )
        first = taken = 0
        pieces = []
        while first < n:
            last = max(first + 1, int(np.searchsorted(bounds, bounds[first] + PIECE_BYTES, "right")) - 1)
            data, before = _join(values[first:last]), taken
            taken = scan(data, bounds, first, last, limit, self._space, self._index, table, taken)
            pieces.append((first, last, before, taken))
            first = last
        *columns, keys = (column[:taken] for column in table)
        named = keys.view(f"S{MAX_KEY_BYTES}").reshape(-1) if self._keyed else None
        return ScannedEvents(values, pieces, *columns, keys=named)

    def roles(self, found: ScannedEvents) -> tuple[RoleColumns, RoleColumns, RoleColumns]:
        """The columns of query, clicked and skipped."""
        rows = [np.ascontiguousarray(found.rows[:, role]) for role in range(ROLES)]
        inline = np.array([(one < 0).any() for one in rows])
        starts = self._starts(found)
        columns, size = _places(starts[:, :, -1], self._sizes, inline)
        # One piece of memory for everything, which the allocator hands out again for the next batch: many
        # pieces of a megabyte go back to the system every time, and fresh pages cost more than decoding does.
        room = np.empty(size, np.uint8)
        for data, first, last in found.joined():
            fill(data, found.spans, first, last, self._sizes, starts, columns, room)
        query, clicked, skipped = (
            RoleColumns(
                rows[role], self._columns(room, starts[role], columns[role]) if inline[role] else None
            )
            for role in range(ROLES)
        )
        return query, clicked, skipped

    def _starts(self, found: ScannedEvents) -> Int64Array:
        """int64 [roles, views, events + 1]: how many numbers of a column come before each event's."""
        starts = np.zeros((ROLES, len(self._views), len(found) + 1), np.int64)
        counts = np.where(self._sizes > 0, self._sizes, found.spans[..., 2]) >> 2
        np.cumsum(counts.transpose(1, 2, 0), axis=2, out=starts[:, :, 1:])
        return starts

    def _columns(self, room: UInt8Array, starts: Int64Array, places: Int64Array) -> dict[str, Column]:
        """One role's columns, as views into `room`."""
        columns: dict[str, Column] = {}
        for view, indptr, (indices, values) in zip(self._views, starts, places.tolist(), strict=True):
            size = NUMBER * int(indptr[-1])
            numbers = room[values : values + size].view("<f4")
            if view.kind == "dense":
                columns[view.name] = DenseColumn(numbers.reshape(len(indptr) - 1, view.dim))
            else:
                index = room[indices : indices + size].view("<i4")
                columns[view.name] = SparseColumn(indptr, index, numbers, view.dim)
        return columns


def _places(counts: Int64Array, sizes: Int64Array, inline: npt.NDArray[np.bool_]) -> tuple[Int64Array, int]:
    """Where the arrays of columns of so many numbers begin, as `fill` takes it, and the bytes of all."""
    needed = np.repeat(NUMBER * counts[:, :, None], 2, axis=2)
    needed[:, sizes > 0, 0] = 0
    needed[~inline] = 0
    ends = np.cumsum(-(-needed // ALIGN) * ALIGN).reshape(needed.shape)
    places = ends - -(-needed // ALIGN) * ALIGN
    places[:, sizes > 0, 0] = -1
    places[~inline] = -1
    return places, int(ends[-1, -1, -1]) if ends.size else 0


def _join(values: Sequence[bytes]) -> UInt8Array:
    return np.frombuffer(b"".join(values), np.uint8)


def _bounds(values: Sequence[bytes]) -> Int64Array:
    bounds = np.zeros(len(values) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=bounds[1:])
    return bounds


def _space_arrays(space: SpaceSpec) -> tuple[Any, ...]:
    """The space as `streams.compiled.compile.SPACE`."""
    names = [_utf8(view.name) for view in space.views]
    sizes = np.array([4 * view.dim if view.kind == "dense" else 0 for view in space.views], np.int64)
    unnamed = 0 if [view.name for view in space.views] == [UNNAMED_VIEW] else -1
    return _join([_utf8(space.id)]), _join(names), _bounds(names), sizes, unnamed


def _index_arrays(catalog: Catalog | None) -> tuple[Any, ...]:
    """The catalog's ids as `streams.compiled.hashing.INDEX`."""
    if catalog is None:
        return _join([]), _bounds([]), np.empty(0, np.int32)
    ids = [_utf8(one) for one in catalog.ids]
    slots = np.full(1 << (2 * len(ids)).bit_length(), -1, np.int32)  # more than twice as many as ids
    data, bounds = _join(ids), _bounds(ids)
    fill_slots(data, bounds, slots)
    return data, bounds, slots


def _utf8(text: str) -> bytes:
    # a name that is no valid text fits no record
    return text.encode("utf-8", "surrogatepass")
