"""Segments to records and back, one record at a time (FORMAT.md, "Steps"), and parts joined to segments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NoReturn

import msgpack

from streams.poison import NULL_VALUE as NO_VALUE
from streams.poison import TOO_LARGE as PAST_LIMIT
from streams.poison import Poison
from streams.steps import segment as numbers
from streams.steps.segment import (
    BAD_HASH,
    BAD_PARTS,
    BREAK_REASONS,
    CHAIN_BYTES,
    MALFORMED,
    NULL_VALUE,
    OUT_OF_RANGE,
    TOO_LARGE,
    UNSUPPORTED_VERSION,
    BadSegment,
    Base,
    Body,
    Break,
    ChainPosition,
    RankOneSteps,
    Segment,
    Taken,
    Triplets,
    link,
)
from streams.wire import open_map, unpack

MAX_NUMBER = 2**53 - 1
DIGEST_CHARS = 32  # of xxh3_128 in hex


class HeaderFields:
    """The entries of one msgpack map; each is taken once, and none may be left over."""

    def __init__(self, value: bytes | None, max_bytes: int, where: str) -> None:
        """Raises BadSegment when the bytes are not one map."""
        try:
            self._left = open_map(unpack(value, max_bytes, max_list=0), where)
        except Poison as error:
            reason = {NO_VALUE: NULL_VALUE, PAST_LIMIT: TOO_LARGE}.get(error.reason, MALFORMED)
            raise BadSegment(reason, f"{where}: {error.reason} {error.detail}".rstrip()) from None
        self._where = where

    def number(self, name: str, high: int = MAX_NUMBER) -> int:
        """A whole number within 0..high."""
        value = self._take(name, int)
        if not 0 <= value <= high:
            self._refuse(name, f"is {value}, not within 0..{high}")
        return int(value)

    def optional_number(self, name: str) -> int | None:
        """A whole number, or nil."""
        return self.number(name) if self._left.get(name, 0) is not None else self._take(name, type(None))

    def flag(self, name: str) -> bool:
        """Read a boolean."""
        return bool(self._take(name, bool))

    def one_of(self, name: str, known: tuple[str, ...]) -> str:
        """One of a few texts."""
        value = self._take(name, str)
        if value not in known:
            self._refuse(name, f"is {value!r}, not one of {', '.join(known)}")
        return str(value)

    def hex_digest(self, name: str) -> str:
        """32 lower-case hex digits."""
        value = self._take(name, str)
        if len(value) != DIGEST_CHARS or not set(value) <= set("0123456789abcdef"):
            self._refuse(name, f"is not {DIGEST_CHARS} hex digits")
        return str(value)

    def hash(self, name: str) -> bytes:
        """A value of the chain."""
        value = self._take(name, bytes)
        if len(value) != CHAIN_BYTES:
            self._refuse(name, f"is not {CHAIN_BYTES} bytes")
        return bytes(value)

    def data(self, name: str) -> bytes:
        """Bytes of any length."""
        return bytes(self._take(name, bytes))

    def nothing_left(self) -> None:
        """Raise BadSegment for a field that the format does not have."""
        if self._left:
            unknown = ", ".join(map(repr, self._left))
            raise BadSegment(MALFORMED, f"{self._where} has unknown fields: {unknown}")

    def _take(self, name: str, kind: type) -> Any:
        if name not in self._left:
            self._refuse(name, "is missing", MALFORMED)
        value = self._left.pop(name)
        if type(value) is not kind:
            self._refuse(name, f"is a {type(value).__name__}, not {kind.__name__}", MALFORMED)
        return value

    def _refuse(self, name: str, problem: str, reason: str = OUT_OF_RANGE) -> NoReturn:
        raise BadSegment(reason, f"{self._where}.{name} {problem}")


FORMAT_VERSIONS = (1, 2, 3)
"""2 is the kind `triplets`, 3 the same with keys, 1 are all others: who reads 1 alone refuses what it does
not know, no more."""
MAX_SEGMENT_BYTES = 64 << 20
MAX_PARTS = 4096
MAX_HEAD_BYTES = 4096
MAX_DIM = 2**31 - 1
ROOM = 512  # more than the fields of a part take besides its header and data, and what a broker adds
KINDS = {1: ("steps", "base", "break"), 2: ("triplets",), 3: ("triplets",)}


@dataclass(frozen=True, slots=True)
class EncodedSegment:
    """A segment as the values of consecutive records, and the chain's value after it."""

    records: list[bytes]
    after: bytes


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """One record: part `part` of `parts`, the segment's header bytes, its share of the payload."""

    version: int
    part: int
    parts: int
    before: bytes
    after: bytes
    head: bytes
    data: bytes


def encode_segment(place: ChainPosition, body: Body, before: bytes, max_record_bytes: int) -> EncodedSegment:
    """Records of at most `max_record_bytes` each; equal segments give equal bytes.

    Raises BadSegment (too_large) when the payload is over `MAX_SEGMENT_BYTES` or the parts are over
    `MAX_PARTS`: make smaller segments.
    """
    where = {"epoch": place.epoch, "seq": place.seq, "run": place.run, "writer": place.writer}
    head = msgpack.packb({**where, **_describe(body)})
    payload = numbers.pack(body) if isinstance(body, RankOneSteps | Triplets) else b""
    room = max_record_bytes - len(head) - ROOM
    parts = max(1, -(-len(payload) // max(1, room)))
    if len(payload) > MAX_SEGMENT_BYTES or parts > MAX_PARTS or room < 1:
        problem = f"{len(payload)} bytes of steps do not fit {MAX_PARTS} records of {max_record_bytes}"
        raise BadSegment(TOO_LARGE, problem)
    after = link(before, head, payload)
    records = []
    for part in range(parts):
        record = {"v": version_of(body), "part": part, "parts": parts, "chain": before, "next": after}
        data = payload[part * room : (part + 1) * room]
        records.append(msgpack.packb({**record, "head": head, "data": data}))
    return EncodedSegment(records, after)


def decode_part(value: bytes | None) -> SegmentPart:
    """One record, its structure checked; raises BadSegment, and nothing else, whatever the bytes."""
    fields = HeaderFields(value, MAX_SEGMENT_BYTES + MAX_HEAD_BYTES + ROOM, "the record")
    version = fields.number("v")
    if version not in FORMAT_VERSIONS:
        raise BadSegment(UNSUPPORTED_VERSION, f"version {version}; this release reads {FORMAT_VERSIONS}")
    part, parts = fields.number("part", MAX_PARTS - 1), fields.number("parts", MAX_PARTS)
    if part >= parts:
        raise BadSegment(OUT_OF_RANGE, f"part {part} of {parts}")
    before, after = fields.hash("chain"), fields.hash("next")
    head, data = fields.data("head"), fields.data("data")
    fields.nothing_left()
    return SegmentPart(version, part, parts, before, after, head, data)


def version_of(body: Body) -> int:
    """The version of the format that has a body of this kind."""
    if not isinstance(body, Triplets):
        return 1
    return 2 if body.keys is None else 3


def decode_segment(version: int, before: bytes, after: bytes, head: bytes, payload: bytes) -> Segment:
    """The segment of a header and a whole payload. Raises BadSegment, and nothing else.

    The hash comes first: what does not hang on the chain value that it states is not looked into.
    """
    if link(before, head, payload) != after:
        raise BadSegment(BAD_HASH, "the bytes of a segment do not give its chain value")
    fields = HeaderFields(head, MAX_HEAD_BYTES, "the header")
    at = fields.number("epoch"), fields.number("seq"), fields.number("run")
    place = ChainPosition(*at, fields.hex_digest("writer"))
    kind = fields.one_of("kind", KINDS[version])
    if kind in ("steps", "triplets"):
        body: Body = _taken(fields, payload, kind == "triplets", keyed=version == 3)
    elif kind == "base":
        which = fields.number("number"), fields.number("records")
        body = Base(*which, fields.hash("at"), fields.hex_digest("digest"), fields.hex_digest("by"))
    else:
        body = Break(fields.number("records"), fields.one_of("reason", BREAK_REASONS))
    fields.nothing_left()
    if payload and kind not in ("steps", "triplets"):
        raise BadSegment(OUT_OF_RANGE, f"a {kind} has no payload")
    return Segment(place, body, before, after)


def _describe(body: Body) -> dict[str, Any]:
    """The header's fields of a body, in the order of the format."""
    if isinstance(body, Base):
        at = {"number": body.number, "records": body.records, "at": body.chain}
        return {"kind": "base", **at, "digest": body.digest, "by": body.writer}
    if isinstance(body, Break):
        return {"kind": "break", "records": body.records, "reason": body.reason}
    triplets = isinstance(body, Triplets)
    layout, kind = numbers.layout_of(body), "triplets" if triplets else "steps"
    at = {"first": body.first, "last": body.last, "wm": body.watermark}
    fields = {"kind": kind, **at, "cut": body.cut}
    fields |= {"weights": bool(layout.scalar)} if triplets else {"project": body.project}
    fields |= {"events": layout.events, "steps": layout.steps, "form": layout.form, "dim": layout.dim}
    if layout.form == numbers.CSR:
        fields |= dict(zip(_stored_names(triplets), layout.stored, strict=True))
    return fields


def _stored_names(triplets: bool) -> tuple[str, ...]:
    return ("qn", "cn", "sn") if triplets else ("qn", "en")


def _taken(fields: HeaderFields, payload: bytes, triplets: bool, keyed: bool) -> Taken:
    first, last = fields.number("first"), fields.number("last")
    if last < first:
        raise BadSegment(OUT_OF_RANGE, f"the header's records go back from {first} to {last}")
    watermark, cut = fields.optional_number("wm"), fields.flag("cut")
    flag = fields.flag("weights" if triplets else "project")
    events, steps = fields.number("events", MAX_SEGMENT_BYTES), fields.number("steps", MAX_SEGMENT_BYTES)
    form, dim = fields.one_of("form", (numbers.CSR, numbers.DENSE)), fields.number("dim", MAX_DIM)
    names = _stored_names(triplets)
    stored = (0,) * len(names) if form == numbers.DENSE else tuple(fields.number(name) for name in names)
    if dim == 0:
        raise BadSegment(OUT_OF_RANGE, "the header's dim is 0")
    scalar = (numbers.WEIGHT if flag else "") if triplets else numbers.TAU
    found = numbers.unpack(numbers.PayloadLayout(events, steps, scalar, form, dim, stored, keyed), payload)
    counted = (first, last, watermark, found.timestamps)
    if triplets:
        event_numbers, keys = (None, None) if found.keyed is None else found.keyed
        query, clicked, skipped = found.blocks
        return Triplets(*counted, found.own, query, clicked, skipped, cut, event_numbers, keys)
    assert found.own is not None
    query, error = found.blocks
    return RankOneSteps(*counted, found.own, query, error, cut, flag)


class Joiner:
    """Holds the parts of at most one segment, of at most `MAX_SEGMENT_BYTES`.

    Part 0 begins a segment whatever was there before: a writer that could not know whether its records had
    arrived sends all of them again.
    """

    def __init__(self) -> None:
        self._parts: list[SegmentPart] = []
        self._size = 0

    def feed(self, value: bytes | None) -> Segment | None:
        """The next record; the segment that it completes, None while parts are still to come.

        Raises BadSegment, and nothing else, whatever the bytes; it continues with the next record then.
        """
        try:
            return self._join(decode_part(value))
        except BadSegment:
            self._forget()
            raise

    def _join(self, part: SegmentPart) -> Segment | None:
        if part.part == 0:
            self._forget()
        first = self._parts[0] if self._parts else part
        if part.part != len(self._parts) or first != replace(part, part=first.part, data=first.data):
            raise BadSegment(BAD_PARTS, f"part {part.part} of {part.parts} after {len(self._parts)} parts")
        self._parts.append(part)
        self._size += len(part.data)
        if self._size > MAX_SEGMENT_BYTES:
            raise BadSegment(TOO_LARGE, f"a segment of more than {MAX_SEGMENT_BYTES} bytes")
        if len(self._parts) < part.parts:
            return None
        payload = part.data if part.parts == 1 else b"".join([one.data for one in self._parts])
        self._forget()
        return decode_segment(part.version, part.before, part.after, part.head, payload)

    def _forget(self) -> None:
        self._parts, self._size = [], 0
