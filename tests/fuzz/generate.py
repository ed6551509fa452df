"""Events that are legal, nearly legal, or not at all, drawn from a `Random`."""

from __future__ import annotations

import math
import struct
from random import Random
from typing import Any

from streams.event import SpaceSpec, ViewSpec
from tests.fuzz.cases import IDS
from tests.fuzz.pack import Map, Raw, Text, pack

NOT_UTF8 = [
    b"\x80", b"\xc0\x80", b"\xc1\xbf", b"\xc3", b"\xe0\x80\x80", b"\xe2\x82", b"\xed\xa0\x80",
    b"\xed\xbf\xbf",
    b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xff", b"a\xe9", b"\xf0\x9f\x98",
]  # fmt: skip
TEXTS = [one.encode() for one in [*IDS, "", "x" * 513, "y" * 300, "é" * 256, "nobody"]] + NOT_UTF8
WHOLE = [0, 1, 2, 31, 127, 128, 255, 256, 65535, 65536, 2**31 - 1, 2**32 - 1, 2**53 - 1, 2**53, 2**63 - 1]
WHOLE += [2**63, 2**64 - 1, -1, -32, -33, -128, -(2**31), -(2**63)]
REAL = [0.5, 1.0, 1e6, 1e-300, 1e-45, 0.0, -0.0, -1.0, 1.5, 1000000.5, math.nan, math.inf, -math.inf, 3e38]
BYTES = [b"", b"a", bytes(4), bytes(8), bytes(12), bytes(10), bytes(400), struct.pack("<f", math.nan) * 3]
LIES = [b"\xc1", b"\xc7\x04\x01abcd", b"\xd4\x01a", b"\xd6\xff" + bytes(4)]
LIES += [b"\xda\x7f\xff", b"\xde\xff\xff", b"\xdc\xff\xff"]
LIES += [bytes([head, 255, 255, 255, 255]) for head in b"\xdf\xdd\xc6\xdb"]
"""Headers of much that does not follow, and of types that the format does not use."""

DEEP = [b"\x91" * 600 + b"\xc0", b"\x81\xa1a" * 600 + b"\xc0", b"\x92\x80" * 40]
FIELDS = ["v", "id", "ts", "q", "c", "s", "w", "src", "imp", "prop", "sp", "key", "pair", "x", "views"]
KEYS = [*FIELDS, "z", "", "weight", "\0v"]


def record(rng: Random, space: SpaceSpec) -> bytes:
    """One record: an event of the space in any encoding, often with something wrong in it."""
    wide = rng.choice([0.0, 0.0, 0.3, 1.0])
    tree = event(rng, space)
    for _ in range(rng.choice([0, 0, 0, 1, 1, 2])):
        tree = spoilt(tree, rng)
    packed = pack(tree, rng, wide)
    return packed if rng.random() < 0.7 else mutated(packed, rng)


def event(rng: Random, space: SpaceSpec, full: float = 0.3) -> Map:
    """A legal event, except that an id may be unknown and there may be no catalog.

    Each field that it need not have is there with probability `full`.
    """
    fields: dict[str, Any] = {
        "v": 1,
        "id": _text(rng),
        "ts": rng.choice([0, 5, 200, 70_000, 1_700_000_000_000, 2**53 - 1]),
        **{role: _object(rng, space) for role in ("q", "c", "s")},
    }
    optional: dict[str, Any] = {
        "w": rng.choice([1, 2, 1_000_000, 0.5, 1e6, 1e-300, 0.1]),
        "src": _text(rng),
        "imp": _text(rng),
        "prop": rng.choice([1, 0.25, 1e-45]),
        "sp": Text(space.id.encode()),
    }
    fields |= {name: value for name, value in optional.items() if rng.random() < full}
    if rng.random() < full:
        fields |= {"v": 2, "key": _text(rng)}
    if rng.random() < full:
        fields |= {"v": 6, "pair": rng.choice([0, 1, 2, 3, 4, 255])}
    pairs = [(Text(name.encode()), value) for name, value in fields.items()]
    if rng.random() < 0.3:
        rng.shuffle(pairs)
    return Map(tuple(pairs))


def _text(rng: Random) -> Text:
    return Text(rng.choice([b"e1", b"event-17", *(one.encode() for one in IDS)]))


def _object(rng: Random, space: SpaceSpec) -> Map:
    named = (Text(b"id"), _text(rng))
    if rng.random() < 0.3:
        return Map((named,))
    if [view.name for view in space.views] == ["x"] and rng.random() < 0.7:
        features: tuple[Any, Any] = (Text(b"x"), _vector(rng, space.views[0]))
    else:
        views = [(Text(view.name.encode()), _vector(rng, view)) for view in space.views]
        rng.shuffle(views)
        features = (Text(b"views"), Map(tuple(views)))
    return Map(rng.choice([(features,), (named, features), (features, named)]))


def _vector(rng: Random, view: ViewSpec) -> Any:
    if view.kind == "dense":
        return _numbers(rng, view.dim)
    count = rng.choice([0, 1, 2, 5, 20, 70])
    return [struct.pack(f"<{count}i", *sorted(rng.sample(range(100), count))), _numbers(rng, count)]


def _numbers(rng: Random, count: int) -> bytes:
    return struct.pack(f"<{count}f", *(rng.choice([0.0, 1.0, -2.5, 1e30, math.nan]) for _ in range(count)))


def spoilt(node: Any, rng: Random) -> Any:
    """The tree with one change somewhere in it."""
    if isinstance(node, Map) and node.pairs and rng.random() < 0.85:
        return _spoilt_map(node, rng)
    if isinstance(node, list) and node and rng.random() < 0.7:
        place, items = rng.randrange(len(node)), list(node)
        items[place : place + 1] = rng.choice([[], [items[place]] * 2, [spoilt(items[place], rng)]])
        return items
    if isinstance(node, bytes) and rng.random() < 0.8:
        return rng.choice([node[:-1], node[:-4], node + b"\0", node + bytes(4), node[1:]])
    return anything(rng)


def _spoilt_map(node: Map, rng: Random) -> Map:
    pairs, place = list(node.pairs), rng.randrange(len(node.pairs))
    key, value = pairs[place]
    what = rng.randrange(14)
    if what == 0:
        del pairs[place]
    elif what == 1:
        pairs.insert(rng.randrange(len(pairs) + 1), (key, rng.choice([value, anything(rng)])))
    elif what == 2:
        pairs[place] = (rng.choice([Text(rng.choice(KEYS).encode()), anything(rng)]), value)
    elif what == 3:
        pairs.append((Text(rng.choice(KEYS).encode()), anything(rng)))
    elif what == 4 and isinstance(key, Text):
        pairs[place] = (key.raw, value)  # a key of bytes
    else:
        pairs[place] = (key, spoilt(value, rng))
    return Map(tuple(pairs))


def anything(rng: Random, depth: int = 2) -> Any:
    """Any value, lies about lengths and types that the format does not use among them."""
    what = rng.randrange(13 if depth else 10)
    if what < 9:
        simple = [WHOLE, REAL, BYTES, [Text(one) for one in TEXTS], [None, True, False]]
        return rng.choice(rng.choice(simple))
    if what < 10:
        return Raw(rng.choice([*LIES, *DEEP]))
    if what < 12:
        return [anything(rng, depth - 1) for _ in range(rng.randrange(4))]
    size = rng.choice([0, 1, 2, 3, 33])
    names = [Text(rng.choice(KEYS).encode()) for _ in range(size)]
    return Map(tuple((name, anything(rng, 0)) for name in names))


def mutated(value: bytes, rng: Random, other: bytes = b"") -> bytes:
    """The bytes with one to four changes: flipped, cut, put in, doubled, ended early, or `other`'s end."""
    raw = bytearray(value)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        place = rng.randrange(len(raw) + 1)
        what = rng.randrange(8)
        if what == 0 and place < len(raw):
            raw[place] ^= 1 << rng.randrange(8)
        elif what == 1:
            raw[place : place + 1] = bytes([rng.randrange(256)])
        elif what == 2:
            raw[place:place] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 4)))
        elif what == 3:
            del raw[place : place + rng.randrange(1, 6)]
        elif what == 4:
            del raw[place:]
        elif what == 5:
            raw[place : place + 1] = rng.choice(
                [*LIES, b"\x80", b"\x90", b"\xa0", b"\xc0", b"\xc4\0", b"\xcb"]
            )
        elif what == 6:
            raw[place:place] = raw[place : place + rng.randrange(1, 20)]
        else:
            raw[place:] = other[rng.randrange(len(other) + 1) :]
    return bytes(raw)
