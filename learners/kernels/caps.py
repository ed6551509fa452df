"""The window of steps: a ring of the newest events, and a table of what each name took part in.

Sums are whole numbers of `UNIT` parts of a full step, so that taking out what was added leaves nothing, and
no sum depends on an order. The table is open addressing with linear probing; taking a key out moves forward
what had to give way to it (Knuth, The Art of Computer Programming 3, section 6.4, algorithm R).
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from learners.kernels.compile import DOUBLES, DOUBLES_OUT, inlined, kernel

UNIT = float(1 << 20)
"""Parts of a full step: what is counted; 2^20 parts of 10^9 full steps stay whole in float64."""
LIMIT = float(1 << 30)
"""Full steps that an event is taken to want at most: more than any cap."""
KINDS = 4
SOURCE, QUERY, CLICKED, SKIPPED = range(KINDS)
LET_IN, SOURCE_FULL, QUERY_FULL, ITEM_FULL = range(4)
SUM, HELD, EVENTS = range(3)

NAMES = types.Array(types.uint64, 2, "C", readonly=True)
NAMES_OUT = types.uint64[:, ::1]
WINDOW = types.Tuple((NAMES_OUT, types.int64[::1], types.uint64[::1], types.int64[:, ::1], types.int64[::1]))
"""names uint64 [window, 4] and spent int64 [window] of the events in the window, the k-th let in at k mod
window; keys uint64 [slots, a power of two]: a name's key or 0; counts int64 [slots, 3]: the sum of the key,
what of it is only held for events that are not learned yet, and its events; caps int64 [4], per kind of name
in parts, -1 for none."""

EMPTY = np.uint64(0)


@inlined
def key_of(name: Any, kind: int, salt: Any) -> Any:
    """The key of a name: all bits mixed (splitmix64), so that kinds differ and the low bits are a place. An
    item has one key, clicked or skipped."""
    key = name + salt + np.uint64(min(kind, CLICKED) + 1) * np.uint64(0x9E3779B97F4A7C15)
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    key ^= key >> np.uint64(31)
    return np.uint64(1) if key == EMPTY else key


@inlined
def slot_of(keys: Any, key: Any) -> Any:
    """The slot that holds the key, else the empty one where it belongs."""
    mask = len(keys) - 1
    slot = np.int64(key & np.uint64(mask))
    while keys[slot] not in (EMPTY, key):
        slot = (slot + 1) & mask
    return slot


@inlined
def take_out(keys: Any, counts: Any, hole: Any) -> None:
    """Empty a slot; every key behind it that this would hide moves forward."""
    mask = len(keys) - 1
    at = (hole + 1) & mask
    while keys[at] != EMPTY:
        home = np.int64(keys[at] & np.uint64(mask))
        if (at - home) & mask >= (at - hole) & mask:
            keys[hole] = keys[at]
            counts[hole] = counts[at]
            hole = at
        at = (at + 1) & mask
    keys[hole] = EMPTY
    counts[hole] = 0


@inlined
def counts_for(caps: Any, named: Any, kind: int) -> Any:
    """Whether an event's name of this kind is counted: not without a cap, and no item twice."""
    return caps[kind] >= 0 and not (kind == SKIPPED and named[SKIPPED] == named[CLICKED])


@inlined
def add(window: Any, salt: Any, named: Any, spent: Any, held: Any, events: int) -> None:
    """Add to what the names of one event took part in; a name of no event is forgotten."""
    _, _, keys, counts, caps = window
    for kind in range(KINDS):
        if not counts_for(caps, named, kind):
            continue
        key = key_of(named[kind], kind, salt)
        slot = slot_of(keys, key)
        keys[slot] = key
        counts[slot, SUM] += spent
        counts[slot, HELD] += held
        counts[slot, EVENTS] += events
        if counts[slot, EVENTS] == 0:
            take_out(keys, counts, slot)


@inlined
def judge(window: Any, salt: Any, named: Any, wanted: Any) -> tuple[Any, Any]:
    """(fate, parts it may spend) of one event; the parts are -1 where that depends on events held."""
    _, _, keys, counts, caps = window
    allowed = wanted
    for kind in range(KINDS):
        if not counts_for(caps, named, kind):
            continue
        slot = slot_of(keys, key_of(named[kind], kind, salt))
        total, held = counts[slot, SUM], counts[slot, HELD]
        if total - held >= caps[kind]:
            return (ITEM_FULL if kind == SKIPPED else kind + 1), 0
        if caps[kind] - total < max(allowed, 1):  # whoever wants nothing is refused by a full cap too
            if held > 0:
                return LET_IN, -1
            allowed = caps[kind] - total
    return LET_IN, allowed


@inlined
def wanted_parts(weight: float) -> Any:
    """The most that an event of this weight can spend; nothing where the learner will refuse it."""
    if not (np.isfinite(weight) and weight > 0):
        return np.int64(0)
    return np.int64(np.ceil(min(weight, LIMIT) * UNIT))


@kernel(
    types.UniTuple(types.int64, 2)(
        WINDOW, types.uint64, types.int64, NAMES, DOUBLES, types.int64, types.uint8[::1], DOUBLES_OUT
    )
)
def plan(
    window: Any, salt: Any, admitted: int, names: Any, weights: Any, start: int, fates: Any, limits: Any
) -> tuple[int, int]:
    """Judge events from `start` on up to the first whose fate depends on what those before it will spend;
    (that event or n, how many were ever let in). At least one is judged.

    window: see WINDOW; nothing is held in it. salt: uint64, of the places in the table. names: uint64 [n, 4].
    weights: float64 [n]. fates uint8 [n], limits float64 [n] the weight each may be learned with: written for
    the events judged. What was let in is in the window then, its limit held: `settle` it.
    """
    ring, spent, _, _, _ = window
    size = len(spent)
    for t in range(start, min(len(weights), start + size)):
        wanted = wanted_parts(weights[t])
        fate, allowed = judge(window, salt, names[t], wanted)
        if allowed < 0:
            return t, admitted
        fates[t] = fate
        limits[t] = weights[t] if allowed == wanted else allowed / UNIT
        if fate != LET_IN:
            limits[t] = 0.0
            continue
        place = admitted % size
        if admitted >= size:
            add(window, salt, ring[place], -spent[place], 0, -1)
        ring[place] = names[t]
        spent[place] = allowed
        add(window, salt, ring[place], allowed, allowed, 1)
        admitted += 1
    return min(len(weights), start + size), admitted


@kernel(types.void(WINDOW, types.uint64, types.int64, DOUBLES))
def settle(window: Any, salt: Any, admitted: int, steps: Any) -> None:
    """Of the newest events let in, which are held: count what they spent instead.

    admitted: how many were let in before them. steps: float64 [their number], in full steps, 0 where nothing
    changed; no event spends more than is held for it, and none that changed something less than one part.
    """
    ring, spent, _, _, _ = window
    for k in range(len(steps)):
        place = (admitted + k) % len(spent)
        held = spent[place]
        took = np.int64(np.ceil(min(steps[k], LIMIT) * UNIT))
        spent[place] = min(took, held)
        add(window, salt, ring[place], spent[place] - held, -held, 0)


@kernel(types.void(WINDOW, types.uint64, types.int64))
def count(window: Any, salt: Any, events: int) -> None:
    """Fill an empty table from the first `events` of the ring."""
    ring, spent, _, _, _ = window
    for place in range(events):
        add(window, salt, ring[place], spent[place], 0, 1)
