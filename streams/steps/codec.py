"""Segments to records and back, one record at a time (see FORMAT.md, "Steps")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgpack

from streams.steps import payload as numbers
from streams.steps.chain import link
from streams.steps.errors import BAD_HASH, OUT_OF_RANGE, TOO_LARGE, UNSUPPORTED_VERSION, BadSegment
from streams.steps.fields import Fields
from streams.steps.segment import BREAK_REASONS, Base, Body, Break, Place, Segment, Steps

FORMAT_VERSION = 1
MAX_SEGMENT_BYTES = 64 << 20
MAX_PARTS = 4096
MAX_HEAD_BYTES = 4096
MAX_DIM = 2**31 - 1
ROOM = 512  # more than the fields of a part take beside its header and data, and what a broker adds
KINDS = ("steps", "base", "break")


@dataclass(frozen=True, slots=True)
class Encoded:
    """A segment as the values of consecutive records, and the chain's value after it."""

    records: list[bytes]
    after: bytes


@dataclass(frozen=True, slots=True)
class Part:
    """One record: part `part` of `parts`, the segment's header bytes, its share of the payload."""

    part: int
    parts: int
    before: bytes
    after: bytes
    head: bytes
    data: bytes


def encode_segment(place: Place, body: Body, before: bytes, max_record_bytes: int) -> Encoded:
    """Records of at most `max_record_bytes` each; equal segments give equal bytes.

    Raises BadSegment (too_large) when the payload is over `MAX_SEGMENT_BYTES` or the parts are over
    `MAX_PARTS`: make smaller segments.
    """
    where = {"epoch": place.epoch, "seq": place.seq, "run": place.run, "writer": place.writer}
    head = msgpack.packb({**where, **_describe(body)})
    payload = numbers.pack(body) if isinstance(body, Steps) else b""
    room = max_record_bytes - len(head) - ROOM
    parts = max(1, -(-len(payload) // max(1, room)))
    if len(payload) > MAX_SEGMENT_BYTES or parts > MAX_PARTS or room < 1:
        raise BadSegment(
            TOO_LARGE, f"{len(payload)} bytes of steps do not fit {MAX_PARTS} records of {max_record_bytes}"
        )
    after = link(before, head, payload)
    records = []
    for part in range(parts):
        record = {"v": FORMAT_VERSION, "part": part, "parts": parts, "chain": before, "next": after}
        data = payload[part * room : (part + 1) * room]
        records.append(msgpack.packb({**record, "head": head, "data": data}))
    return Encoded(records, after)


def decode_part(value: bytes | None) -> Part:
    """One record, its structure checked; raises BadSegment, and nothing else, whatever the bytes."""
    fields = Fields(value, MAX_SEGMENT_BYTES + MAX_HEAD_BYTES + ROOM, "the record")
    version = fields.number("v")
    if version != FORMAT_VERSION:
        raise BadSegment(UNSUPPORTED_VERSION, f"version {version}; this release reads {FORMAT_VERSION}")
    part, parts = fields.number("part", MAX_PARTS - 1), fields.number("parts", MAX_PARTS)
    if part >= parts:
        raise BadSegment(OUT_OF_RANGE, f"part {part} of {parts}")
    before, after = fields.hash("chain"), fields.hash("next")
    head, data = fields.data("head"), fields.data("data")
    fields.nothing_left()
    return Part(part, parts, before, after, head, data)


def decode_segment(before: bytes, after: bytes, head: bytes, payload: bytes) -> Segment:
    """The segment of a header and a whole payload. Raises BadSegment, and nothing else.

    The hash comes first: what does not hang on the chain value that it states is not looked into.
    """
    if link(before, head, payload) != after:
        raise BadSegment(BAD_HASH, "the bytes of a segment do not give its chain value")
    fields = Fields(head, MAX_HEAD_BYTES, "the header")
    at = fields.number("epoch"), fields.number("seq"), fields.number("run")
    place = Place(*at, fields.hex_digest("writer"))
    kind = fields.one_of("kind", KINDS)
    if kind == "steps":
        body: Body = _steps(fields, payload)
    elif kind == "base":
        which = fields.number("number"), fields.number("records")
        body = Base(*which, fields.hash("at"), fields.hex_digest("digest"), fields.hex_digest("by"))
    else:
        body = Break(fields.number("records"), fields.one_of("reason", BREAK_REASONS))
    fields.nothing_left()
    if payload and kind != "steps":
        raise BadSegment(OUT_OF_RANGE, f"a {kind} has no payload")
    return Segment(place, body, before, after)


def _describe(body: Body) -> dict[str, Any]:
    """The header's fields of a body, in the order of the format."""
    if isinstance(body, Base):
        at = {"number": body.number, "records": body.records, "at": body.chain}
        return {"kind": "base", **at, "digest": body.digest, "by": body.writer}
    if isinstance(body, Break):
        return {"kind": "break", "records": body.records, "reason": body.reason}
    layout = numbers.layout_of(body)
    fields = {"kind": "steps", "first": body.first, "last": body.last, "wm": body.watermark}
    fields |= {"cut": body.cut, "project": body.project, "events": layout.events, "steps": layout.steps}
    fields |= {"form": layout.form, "dim": layout.dim}
    return fields if layout.form == numbers.DENSE else {**fields, "qn": layout.query, "en": layout.error}


def _steps(fields: Fields, payload: bytes) -> Steps:
    first, last = fields.number("first"), fields.number("last")
    if last < first:
        raise BadSegment(OUT_OF_RANGE, f"the header's records go back from {first} to {last}")
    watermark, cut, project = fields.optional_number("wm"), fields.flag("cut"), fields.flag("project")
    events, steps = fields.number("events", MAX_SEGMENT_BYTES), fields.number("steps", MAX_SEGMENT_BYTES)
    form, dim = fields.one_of("form", (numbers.CSR, numbers.DENSE)), fields.number("dim", MAX_DIM)
    stored = (0, 0) if form == numbers.DENSE else (fields.number("qn"), fields.number("en"))
    if dim == 0:
        raise BadSegment(OUT_OF_RANGE, "the header's dim is 0")
    layout = numbers.Layout(events, steps, form, dim, *stored)
    timestamps, tau, query, error = numbers.unpack(layout, payload)
    return Steps(first, last, watermark, timestamps, tau, query, error, cut, project)
