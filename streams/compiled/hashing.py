"""Hashes of ids and the two hash tables over them: a catalog's rows, and the window of known ids.

xxh64 with seed 0 (Yann Collet, "XXH64 algorithm description", xxHash specification 0.2.0); all sums and
products are modulo 2^64. Both tables use open addressing with linear probing. The catalog's is at most
half full. The window's lies over a ring: a slot holds an id or 0; ids are hashes already, so their low
bits are their place. Taking an id out moves forward what had to give way to it (Knuth, The Art of
Computer Programming 3, section 6.4, algorithm R), so that the table never fills with marks of removed
ids.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streams.compiled.compile import BYTES, LONGS, inlined, kernel

from numba import types  # isort: skip


P1 = np.uint64(0x9E3779B185EBCA87)
P2 = np.uint64(0xC2B2AE3D27D4EB4F)
P3 = np.uint64(0x165667B19E3779F9)
P4 = np.uint64(0x85EBCA77C2B2AE63)
P5 = np.uint64(0x27D4EB2F165667C5)
"""The specification's primes."""

STRIPE, LANE, WORD = 32, 8, 4
BITS = np.uint64(64)


@inlined
def little_endian(data: Any, at: int, width: int) -> Any:
    """The `width` <= 8 bytes from `at` as uint64."""
    value = np.uint64(0)
    for place in range(width):
        value |= np.uint64(data[at + place]) << np.uint64(8 * place)
    return value


@inlined
def rotate(value: Any, bits: int) -> Any:
    """Bits rotated to the left, 0 < bits < 64."""
    return (value << np.uint64(bits)) | (value >> (BITS - np.uint64(bits)))


@inlined
def mixed(total: Any, lane: Any) -> Any:
    """One accumulator with one more lane of 8 bytes."""
    return rotate(total + lane * P2, 31) * P1


@inlined
def folded(data: Any, at: int, stop: int) -> Any:
    """The four accumulators of the whole stripes in [at, stop), merged into one."""
    a, b, c, d = P1 + P2, P2, np.uint64(0), np.uint64(0) - P1
    while at + STRIPE <= stop:
        a = mixed(a, little_endian(data, at, LANE))
        b = mixed(b, little_endian(data, at + LANE, LANE))
        c = mixed(c, little_endian(data, at + 2 * LANE, LANE))
        d = mixed(d, little_endian(data, at + 3 * LANE, LANE))
        at += STRIPE
    total = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18)
    for one in (a, b, c, d):
        total = (total ^ mixed(np.uint64(0), one)) * P1 + P4
    return total


@inlined
def xxh64(data: Any, start: int, stop: int) -> Any:
    """The hash of the bytes in [start, stop) as uint64."""
    length = stop - start
    at = start + length - length % STRIPE
    total = (folded(data, start, stop) if length >= STRIPE else P5) + np.uint64(length)
    while at + LANE <= stop:
        lane = mixed(np.uint64(0), little_endian(data, at, LANE))
        total = rotate(total ^ lane, 27) * P1 + P4
        at += LANE
    if at + WORD <= stop:
        total = rotate(total ^ (little_endian(data, at, WORD) * P1), 23) * P2 + P3
        at += WORD
    while at < stop:
        total = rotate(total ^ (np.uint64(data[at]) * P5), 11) * P1
        at += 1
    total = (total ^ (total >> np.uint64(33))) * P2
    total = (total ^ (total >> np.uint64(29))) * P3
    return total ^ (total >> np.uint64(32))


@kernel(types.void(BYTES, LONGS, types.uint64[::1]))
def hash_each(data: Any, bounds: Any, hashes: Any) -> None:
    """`hashes[i]` = xxh64 of `data[bounds[i]:bounds[i + 1]]`; bounds ascend within data."""
    for row in range(len(hashes)):
        hashes[row] = xxh64(data, bounds[row], bounds[row + 1])


# ruff: noqa: PLR0917  (kernels take plain arrays)


INDEX = types.Tuple((BYTES, LONGS, types.Array(types.int32, 1, "C", readonly=True)))
"""ids uint8: all ids one after another; bounds int64 [n + 1]: where each begins and the last ends; slots
int32: a power of two of rows, -1 where there is none; no slots at all where there is no catalog."""


@inlined
def first_slot(data: Any, start: int, stop: int, slots: Any) -> Any:
    """Where looking for these bytes begins."""
    return np.int64(xxh64(data, start, stop) & np.uint64(len(slots) - 1))


@inlined
def same(data: Any, start: int, stop: int, other: Any, begin: int, end: int) -> Any:
    """Whether two ranges of bytes are equal."""
    if stop - start != end - begin:
        return False
    for step in range(stop - start):  # noqa: SIM110  (numba has no all)
        if data[start + step] != other[begin + step]:
            return False
    return True


@kernel(types.void(BYTES, LONGS, types.int32[::1]))
def fill_slots(ids: Any, bounds: Any, slots: Any) -> None:
    """Enter every row into `slots`, given as -1 throughout and at least twice as many as rows; ids differ."""
    for row in range(len(bounds) - 1):
        slot = first_slot(ids, bounds[row], bounds[row + 1], slots)
        while slots[slot] >= 0:
            slot = (slot + 1) & (len(slots) - 1)
        slots[slot] = row


@inlined
def find_row(data: Any, start: int, stop: int, index: Any) -> Any:
    """The row of the id in [start, stop), or -1."""
    ids, bounds, slots = index
    if len(slots) == 0:
        return -1
    slot = first_slot(data, start, stop, slots)
    while slots[slot] >= 0:
        row = np.int64(slots[slot])
        if same(data, start, stop, ids, bounds[row], bounds[row + 1]):
            return row
        slot = (slot + 1) & (len(slots) - 1)
    return -1


@kernel(types.void(BYTES, LONGS, INDEX, types.int64[::1]))
def find_each(data: Any, bounds: Any, index: Any, rows: Any) -> None:
    """`rows[i]` = the row of the id in `data[bounds[i]:bounds[i + 1]]`, or -1."""
    for place in range(len(rows)):
        rows[place] = find_row(data, bounds[place], bounds[place + 1], index)


IDS = types.Array(types.uint64, 1, "C", readonly=True)
IDS_OUT = types.uint64[::1]
FLAGS_OUT = types.boolean[::1]

EMPTY = np.uint64(0)
STANDS_FOR_ZERO = np.uint64(1)
"""The id 0 is kept as 1: two ids of 2^64 are one."""


@inlined
def kept(identifier: Any) -> Any:
    """The id as the table keeps it."""
    return STANDS_FOR_ZERO if identifier == EMPTY else identifier


@inlined
def slot_of(table: Any, key: Any) -> Any:
    """The slot that holds the key, else the empty one where it belongs."""
    mask = len(table) - 1
    slot = np.int64(key & np.uint64(mask))
    while table[slot] not in (EMPTY, key):
        slot = (slot + 1) & mask
    return slot


@inlined
def take_out(table: Any, key: Any) -> None:
    """Empty the key's slot; every id behind it that this would hide moves forward."""
    mask = len(table) - 1
    hole = slot_of(table, key)
    at = (hole + 1) & mask
    while table[at] != EMPTY:
        home = np.int64(table[at] & np.uint64(mask))
        if (at - home) & mask >= (at - hole) & mask:
            table[hole] = table[at]
            hole = at
        at = (at + 1) & mask
    table[hole] = EMPTY


@kernel(types.int64(IDS, IDS_OUT, IDS_OUT, types.int64, FLAGS_OUT))
def admit(ids: Any, ring: Any, table: Any, admitted: int, fresh: Any) -> Any:
    """Mark which ids are new, one after another, and remember those; how many were ever admitted then.

    ids: uint64 [n]. ring: uint64 [capacity >= 1], overwritten; the admission number k lies at k mod capacity.
    table: uint64 [a power of two > capacity], overwritten. fresh: bool [n], overwritten.
    """
    for row in range(len(ids)):
        key = kept(ids[row])
        slot = slot_of(table, key)
        fresh[row] = table[slot] == EMPTY
        if fresh[row]:
            place = admitted % len(ring)
            if admitted >= len(ring):
                take_out(table, ring[place])
                slot = slot_of(table, key)
            ring[place] = key
            table[slot] = key
            admitted += 1
    return admitted


@kernel(types.int64(IDS, types.int64, IDS, IDS, types.int64, IDS_OUT, FLAGS_OUT))
def look(ids: Any, start: int, ring: Any, table: Any, admitted: int, met: Any, fresh: Any) -> Any:
    """Mark which ids are not known, from `start` up to the first that cannot be told yet; its place, or n.

    That is one that came before from `start` on, where it was not known, and one that those before it may
    push out. met: uint64 [a power of two > n - start] of zeros, overwritten. The others as `admit` has them.
    """
    new = 0
    for row in range(start, len(ids)):
        key = kept(ids[row])
        fresh[row] = table[slot_of(table, key)] == EMPTY
        if fresh[row]:
            slot = slot_of(met, key)
            if met[slot] == key:
                return row
            met[slot] = key
            new += 1
        else:
            for oldest in range(max(0, admitted - len(ring)), min(admitted, admitted + new - len(ring))):
                if ring[oldest % len(ring)] == key:
                    return row
    return len(ids)


@kernel(types.int64(IDS, IDS_OUT))
def fill(ids: Any, table: Any) -> Any:
    """Put the ids of a ring into an empty table; how many of them are distinct and none of them 0."""
    distinct = 0
    for row in range(len(ids)):
        slot = slot_of(table, ids[row])
        if ids[row] != EMPTY and table[slot] == EMPTY:
            table[slot] = ids[row]
            distinct += 1
    return distinct
