"""xxh64 with seed 0: the 64 bits by which ids are known.

Yann Collet, "XXH64 algorithm description", xxHash specification 0.2.0. All sums and products are modulo 2^64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from streams.compiled.compile import BYTES, LONGS, inlined, kernel

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
