"""msgpack written in every way it can be: any width of header, any order, and lengths that lie."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from random import Random
from typing import Any

NUMBERS = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
FLOATS = {0xCA: ">f", 0xCB: ">d"}
LENGTHS = {1: ">B", 2: ">H", 4: ">I"}


@dataclass(frozen=True)
class Text:
    """A text by its bytes, which need not be UTF-8."""

    raw: bytes


@dataclass(frozen=True)
class Map:
    """A map by its pairs: keys may repeat and be anything."""

    pairs: tuple[tuple[Any, Any], ...]


@dataclass(frozen=True)
class Raw:
    """Bytes put in as they are."""

    raw: bytes


def pack(node: Any, rng: Random, wide: float = 0.0) -> bytes:
    """The bytes of a tree of Text, Map, Raw, lists, bytes, numbers, booleans and None.

    With probability `wide` a header is another than the shortest that fits.
    """
    if isinstance(node, Raw):
        return node.raw
    if node is None or isinstance(node, bool):
        return bytes([0xC0 if node is None else 0xC2 + node])
    if isinstance(node, int | float):
        return _number(node, rng, wide)
    if isinstance(node, bytes):
        return _header(len(node), None, {1: 0xC4, 2: 0xC5, 4: 0xC6}, rng, wide) + node
    if isinstance(node, Text):
        return _header(len(node.raw), (0xA0, 31), {1: 0xD9, 2: 0xDA, 4: 0xDB}, rng, wide) + node.raw
    if isinstance(node, Map):
        parts = [pack(one, rng, wide) for pair in node.pairs for one in pair]
        return _header(len(node.pairs), (0x80, 15), {2: 0xDE, 4: 0xDF}, rng, wide) + b"".join(parts)
    header = _header(len(node), (0x90, 15), {2: 0xDC, 4: 0xDD}, rng, wide)
    return header + b"".join(pack(one, rng, wide) for one in node)


def _header(
    size: int, fixed: tuple[int, int] | None, marks: dict[int, int], rng: Random, wide: float
) -> bytes:
    ways = [bytes([fixed[0] + size])] if fixed and size <= fixed[1] else []
    ways += [
        bytes([mark]) + struct.pack(LENGTHS[width], size)
        for width, mark in marks.items()
        if size < 256**width
    ]
    return rng.choice(ways) if rng.random() < wide else ways[0]


def _number(number: float, rng: Random, wide: float) -> bytes:
    if isinstance(number, float):
        if rng.random() < wide:
            try:
                return b"\xca" + struct.pack(">f", number)
            except OverflowError:
                pass
        return b"\xcb" + struct.pack(">d", number)
    ways = [struct.pack(">b", number)] if -32 <= number < 128 else []
    for mark, form in NUMBERS.items():
        try:
            ways.append(bytes([mark]) + struct.pack(form, number))
        except struct.error:
            continue
    return rng.choice(ways) if rng.random() < wide else ways[0]
