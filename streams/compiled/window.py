"""The window of known ids: a hash table over a ring, open addressing with linear probing.

A slot of the table holds an id or 0; ids are hashes already, so their low bits are their place. Taking an id
out moves forward what had to give way to it (Knuth, The Art of Computer Programming 3, section 6.4, algorithm
R), so that the table never fills with marks of what was there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streams.compiled.compile import inlined, kernel

from numba import types  # isort: skip  (as everywhere: after the module that fixes how to compile)

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
