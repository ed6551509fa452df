"""The support set in arrays of fixed size: objects kept once each, triplets that refer to them, eviction.

An object is known by its content: a hash of its numbers finds candidates, and the numbers themselves decide.
Objects that serve as queries fill the slots from the front, the others from the back, so that tiles of one
kind need only half the kernel values.

Scores of queries against items by kernels over a support set.

sum_i theta_i S_i(q, p) = sum_i theta_i k_i(q, p) + sum over kept objects o of a_i(o) k_i(o, p), with a_i(o) =
theta_i sum_l tau_l,i k_i(q, q_l) ([o = c_l] - [o = s_l]): a is worked out once per query, kernel values once
per item.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numba import types

from learners.kernels.compile import FLOATS, POINTERS_OUT, ROWS, ROWS_OUT, inlined, kernel
from learners.kernels.kernel_values import (
    GAPS_OUT,
    PLAN,
    TILES_OUT,
    Plan,
    empty_tile,
    put_lane,
    tile_values,
    values_room,
    view_norms,
)
from learners.kernels.tiles import LANES, turn_lanes

OLDEST, SMALLEST = range(2)
"""Which triplet goes when there is no room: the one that joined first, or the one with the least sum of its
taus (the older of equals)."""

EMPTY = -1
LAST = np.iinfo(np.int64).max
QUERY, CLICKED, SKIPPED = range(3)

TRIPLETS_OUT = types.int32[:, ::1]
HASHES_OUT = types.uint64[::1]
SUPPORT = types.Tuple((TILES_OUT, TRIPLETS_OUT, ROWS_OUT, POINTERS_OUT))
INDEX = types.Tuple((TILES_OUT, GAPS_OUT, HASHES_OUT, TRIPLETS_OUT))

Support: TypeAlias = tuple[Any, Any, Any, Any]
"""rows float32 [tiles, dim, LANES], object slot = tile * LANES + lane; triplets int32 [T, 3], slots of query,
clicked, skipped, EMPTY where none is; tau float32 [T, width], 0 beyond the m kernels; joined int64 [T], the
number of the step with which a triplet joined or was last taken again."""

BLOCK = 64
"""Triplets whose terms are summed in float32 before they go into the float64 sum."""

Marks: TypeAlias = tuple[Any, Any]
"""What a step changed: bool [tiles], those in which an object is new, or new in its role; bool [blocks],
those of BLOCK triplets in which one came, went or got other taus. Both are only ever set here."""

Index: TypeAlias = tuple[Any, Any, Any, Any]
"""What follows from a support: norms and gaps of `kernel_values.Kept`; hashes uint64 [slots]; users
int32 [slots, 2], how many triplets use an object as query and otherwise (a slot without users is free)."""

_START, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_ONE, _TWO, _THREE = np.uint64(1), np.uint64(2), np.uint64(3)


@inlined
def _folded(value: Any, word: Any) -> Any:
    value = (value ^ np.uint64(word)) * _PRIME
    return value ^ (value >> _SHIFT)


@inlined
def _hash(bits: Any) -> Any:
    """Of an object's numbers as bits, uint32 [dim]: multiply and fold, word by word, in four chains, so that
    no product waits for the one before."""
    a, b, c, d = _START, _START + _ONE, _START + _TWO, _START + _THREE
    ends = len(bits) - len(bits) % 4
    for column in range(0, ends, 4):
        a = _folded(a, bits[column])
        b = _folded(b, bits[column + 1])
        c = _folded(c, bits[column + 2])
        d = _folded(d, bits[column + 3])
    for column in range(ends, len(bits)):
        a = _folded(a, bits[column])
    for one in (b, c, d):
        a = (a ^ one) * _PRIME
        a ^= a >> _SHIFT
    return a


@inlined
def _same(rows: Any, slot: int, row: Any) -> Any:
    tile, lane = slot // LANES, slot % LANES
    for column in range(len(row)):  # noqa: SIM110  (a loop compiles)
        if rows[tile, column, lane] != row[column]:
            return False
    return True


@inlined
def _find(support: Support, index: Index, row: Any, value: Any) -> int:
    """The slot that holds this object, or EMPTY; a tile of hashes is compared at once."""
    hashes, users = index[2], index[3]
    for first in range(0, len(hashes), LANES):
        found = 0
        for slot in range(first, first + LANES):
            found += hashes[slot] == value
        if found == 0:
            continue
        for slot in range(first, first + LANES):
            known = hashes[slot] == value and users[slot, 0] + users[slot, 1] > 0
            if known and _same(support[0], slot, row):
                return slot
    return EMPTY


@inlined
def _free_slot(users: Any, as_query: bool) -> int:
    """A slot without users, from the front for a query and from the back else; EMPTY when none is left."""
    for place in range(len(users)):
        slot = place if as_query else len(users) - 1 - place
        if users[slot, 0] + users[slot, 1] == 0:
            return slot
    return EMPTY


@inlined
def _place_of(triplets: Any, query: int, clicked: int, skipped: int) -> int:
    """Where this triplet is, or the first place without one for three times EMPTY; EMPTY when nowhere."""
    for place in range(len(triplets)):
        same = triplets[place, QUERY] == query and triplets[place, CLICKED] == clicked
        if same and triplets[place, SKIPPED] == skipped:
            return place
    return EMPTY


@inlined
def _oldest(joined: Any) -> Any:
    """The place with the least number above 0, which is the triplet that joined first; EMPTY for none."""
    least = LAST
    for place in range(len(joined)):  # a minimum compiles to vectors, a search does not
        least = min(least, joined[place] if joined[place] > 0 else LAST)
    for place in range(len(joined)):
        if joined[place] == least:
            return place
    return EMPTY


@inlined
def _worst(support: Support, rule: int) -> Any:
    """The triplet that goes by the rule; there must be one."""
    _, triplets, tau, joined = support
    if rule == OLDEST:
        return _oldest(joined)
    worst, least = EMPTY, np.inf
    for place in range(len(triplets)):
        if triplets[place, QUERY] == EMPTY:
            continue
        size = 0.0
        for k in range(tau.shape[1]):
            size += np.float64(tau[place, k])
        older = worst == EMPTY or joined[place] < joined[worst]
        if size < least or (size == least and older):
            worst, least = place, size
    return worst


@inlined
def _evict(support: Support, index: Index, counts: Any, rule: int, changed: Any) -> Any:
    """The place that is empty now."""
    _, triplets, tau, joined = support
    users, place = index[3], _worst(support, rule)
    users[triplets[place, QUERY], 0] -= 1
    users[triplets[place, CLICKED], 1] -= 1
    users[triplets[place, SKIPPED], 1] -= 1
    triplets[place, :] = EMPTY
    tau[place, :] = 0
    joined[place] = 0
    counts[1] += 1
    changed[place // BLOCK] = True
    return place


@inlined
def _hold(
    support: Support, index: Index, row: Any, lengths: Any, value: Any, slot: int, role: int, counts: Any,
    rule: int, marks: Marks,
) -> int:  # fmt: skip
    """The slot of an object with one more user: `slot`, or where it is put when that is EMPTY; triplets go
    while there is no room for it."""
    norms, gaps, hashes, users = index
    if slot == EMPTY:
        slot = _free_slot(users, role == QUERY)
        while slot == EMPTY:
            _evict(support, index, counts, rule, marks[1])
            slot = _free_slot(users, role == QUERY)
        put_lane(row, lengths, (support[0], norms, gaps), slot)
        hashes[slot] = value
    column = 0 if role == QUERY else 1
    if users[slot, column] == 0:
        marks[0][slot // LANES] = True
    users[slot, column] += 1
    return slot


@inlined
def join(
    support: Support,
    index: Index,
    objects: Any,
    lengths: Any,
    taus: Any,
    counts: Any,
    rule: int,
    marks: Marks,
) -> None:
    """Add a triplet with the taus of its kernels; others go where there is no room.

    objects: float32 [3, dim], query, clicked, skipped, without -0; lengths: float32 [3, V]; taus: float32
    [m]; counts: int64 [2], steps taken with this one, and triplets evicted, which is counted on. A triplet
    that is there already is not kept twice: its taus are added up, and it counts as new. marks: what changes.
    """
    _, triplets, tau, joined = support
    slots, values = np.empty(3, np.int64), np.empty(3, np.uint64)
    for role in range(3):
        values[role] = _hash(objects[role].view(np.uint32))
        slots[role] = _find(support, index, objects[role], values[role])
    place = EMPTY
    if slots[0] != EMPTY and slots[1] != EMPTY and slots[2] != EMPTY:
        place = _place_of(triplets, slots[0], slots[1], slots[2])
    if place == EMPTY:
        evicted = counts[1]
        place = _place_of(triplets, EMPTY, EMPTY, EMPTY)
        if place == EMPTY:
            place = _evict(support, index, counts, rule, marks[1])
            evicted += 1
        for role in range(3):
            # an eviction, or the object before, may have changed where it is
            slots[role] = _find(support, index, objects[role], values[role])
            slots[role] = _hold(
                support, index, objects[role], lengths[role], values[role], slots[role], role, counts, rule,
                marks,
            )  # fmt: skip
        if counts[1] > evicted:
            place = _place_of(triplets, EMPTY, EMPTY, EMPTY)
        for role in range(3):
            triplets[place, role] = slots[role]
    marks[1][place // BLOCK] = True
    for k in range(len(taus)):
        tau[place, k] += taus[k]
    joined[place] = counts[0]


@kernel(types.void(SUPPORT, PLAN, INDEX))
def index_support(support: Support, plan: Plan, index: Index) -> None:
    """Fill an index of zeros from a support whose slots are in range."""
    rows, triplets, _, _ = support
    norms, gaps, hashes, users = index
    for place in range(len(triplets)):
        if triplets[place, QUERY] != EMPTY:
            users[triplets[place, QUERY], 0] += 1
            users[triplets[place, CLICKED], 1] += 1
            users[triplets[place, SKIPPED], 1] += 1
    row, lengths = np.empty(rows.shape[1], np.float32), np.empty(len(plan[0]), np.float32)
    norms[:] = 1
    for slot in range(len(hashes)):
        if users[slot, 0] + users[slot, 1] > 0:
            for column in range(len(row)):
                row[column] = rows[slot // LANES, column, slot % LANES]
            view_norms(plan, row, lengths)
            put_lane(row, lengths, (rows, norms, gaps), slot)
            hashes[slot] = _hash(row.view(np.uint32))


@inlined
def used_tile(users: Any, tile: int, role: int) -> Any:
    """Whether a triplet uses an object of this tile as query (role 0) or otherwise (role 1)."""
    for slot in range(tile * LANES, (tile + 1) * LANES):  # noqa: SIM110  (a loop compiles)
        if users[slot, role] > 0:
            return True
    return False


@inlined
def without_minus_zero(rows: Any, t: int, out: Any) -> None:
    """out = row t with every -0 as 0, so that equal objects have equal bits."""
    for column in range(len(out)):
        out[column] = rows[t, column] + np.float32(0)


@inlined
def _coefficients(support: Support, theta: Any, of_query: Any, out: Any) -> None:
    """out[tile, k, lane] = a_k(o) of the object in this slot; of_query: float32 [slots, width]."""
    _, triplets, tau, _ = support
    out[:] = 0
    for place in range(len(triplets)):
        query, clicked, skipped = triplets[place, QUERY], triplets[place, CLICKED], triplets[place, SKIPPED]
        if query == EMPTY:
            continue
        for k in range(len(theta)):
            term = theta[k] * tau[place, k] * of_query[query, k]
            out[clicked // LANES, k, clicked % LANES] += term
            out[skipped // LANES, k, skipped % LANES] -= term


@inlined
def _against(weights: Any, tile: int, values: Any, kernels: int, sums: Any) -> None:
    """sums[lane] += sum over k of weights[tile, k, lane] values[0, k, lane]."""
    for k in range(kernels):
        for lane in range(LANES):
            sums[lane] += weights[tile, k, lane] * values[0, k, lane]


@inlined
def _total(sums: Any) -> float:
    total = 0.0
    for lane in range(LANES):
        total += np.float64(sums[lane])
    return total


@kernel(types.void(SUPPORT, INDEX, PLAN, FLOATS, ROWS, ROWS, types.float32[:, :, :, ::1], ROWS_OUT))
def score_supports(
    support: Support, index: Index, plan: Plan, theta: Any, queries: Any, items: Any, weights: Any, out: Any
) -> None:
    """out[i, j] = sum_k theta_k S_k(queries[i], items[j]), float32, for at most LANES queries.

    weights: float32 [queries, tiles, width, LANES], overwritten. The bits of a score do not depend on which
    others are asked for with it.
    """
    kept, users = (support[0], index[0], index[1]), index[3]
    tiles, views, width, m = len(support[0]), len(plan[0]), support[2].shape[1], len(theta)
    room = values_room(plan, 1, width)
    asking = empty_tile(queries.shape[1], views)
    lengths, of_query = np.empty((1, views), np.float32), np.zeros((1, tiles * LANES, width), np.float32)
    for i in range(len(queries)):
        view_norms(plan, queries[i], lengths[0])
        put_lane(queries[i], lengths[0], asking, i)
        for tile in range(tiles):
            if used_tile(users, tile, 0):
                tile_values(plan, kept, tile, queries[i : i + 1], lengths, room)
                turn_lanes(room[1], 0, -1, width, of_query, 0, tile * LANES, 0)
        _coefficients(support, theta, of_query[0], weights[i])
    sums, first = np.empty((len(queries), LANES), np.float32), np.empty(len(queries), np.float64)
    for j in range(len(items)):
        view_norms(plan, items[j], lengths[0])
        tile_values(plan, asking, 0, items[j : j + 1], lengths, room)
        for i in range(len(queries)):
            first[i], sums[i, :] = 0.0, 0
            for k in range(m):
                first[i] += np.float64(theta[k]) * np.float64(room[1][0, k, i])
        for tile in range(tiles):
            if used_tile(users, tile, 1):
                tile_values(plan, kept, tile, items[j : j + 1], lengths, room)
                for i in range(len(queries)):
                    _against(weights[i], tile, room[1], m, sums[i])
        for i in range(len(queries)):
            out[i, j] = np.float32(first[i] + _total(sums[i]))
