"""Events and impressions to bytes and back, one at a time (see FORMAT.md)."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np

from streams import poison, wire
from streams.check import check_object
from streams.event import Event, ObjectRef
from streams.impression import Impression
from streams.poison import Poison
from streams.vectors import SparseVector, Vector


def encode_event(event: Event) -> bytes:
    """The one canonical encoding of an event; raises Poison for whatever `decode_event` would refuse."""
    fields: dict[str, Any] = {
        "v": wire.FORMAT_VERSION,
        "id": event.id,
        "ts": event.ts,
        "q": _object_fields(event.query, "q"),
        "c": _object_fields(event.clicked, "c"),
        "s": _object_fields(event.skipped, "s"),
    }
    if event.weight != 1.0:
        fields["w"] = float(event.weight)
    _add_optional(fields, src=event.source, imp=event.impression, prop=event.propensity, sp=event.space)
    value = _pack(fields)
    decode_event(value)
    return value


def decode_event(value: bytes | None, *, check_values: bool = True) -> Event:
    """An event from its bytes; raises Poison, and nothing else, whatever the bytes.

    With `check_values=False` only the structure is checked, as `BatchDecoder` does; the numbers in
    the vectors are then unchecked. Arrays are read-only views of `value`.
    """
    fields = wire.read_event(value)
    event = Event(
        id=fields["id"],
        ts=fields["ts"],
        query=_object(fields["q"], "q"),
        clicked=_object(fields["c"], "c"),
        skipped=_object(fields["s"], "s"),
        weight=float(fields.get("w", 1.0)),
        source=fields.get("src"),
        impression=fields.get("imp"),
        propensity=fields.get("prop"),
        space=fields.get("sp"),
    )
    if check_values:
        for where, ref in (("q", event.query), ("c", event.clicked), ("s", event.skipped)):
            check_object(ref, where)
    return event


def encode_impression(impression: Impression) -> bytes:
    """The one canonical encoding of an impression; raises Poison for what decoding would refuse."""
    fields: dict[str, Any] = {
        "v": wire.FORMAT_VERSION,
        "id": impression.id,
        "ts": impression.ts,
        "q": _object_fields(impression.query, "q"),
        "shown": [_object_fields(ref, "shown") for ref in impression.shown],
        "clicked": list(impression.clicked),
    }
    if impression.propensity is not None:
        fields["prop"] = [float(number) for number in impression.propensity]
    _add_optional(fields, src=impression.source, sp=impression.space)
    value = _pack(fields)
    decode_impression(value)
    return value


def decode_impression(value: bytes | None) -> Impression:
    """An impression from its bytes, numbers checked; raises Poison, and nothing else."""
    fields = wire.read_impression(value)
    query = _object(fields["q"], "q")
    shown = tuple(_object(raw, f"shown[{rank}]") for rank, raw in enumerate(fields["shown"]))
    check_object(query, "q")
    for rank, ref in enumerate(shown):
        check_object(ref, f"shown[{rank}]")
    return Impression(
        id=fields["id"],
        ts=fields["ts"],
        query=query,
        shown=shown,
        clicked=tuple(fields["clicked"]),
        propensity=tuple(map(float, fields["prop"])) if "prop" in fields else None,
        source=fields.get("src"),
        space=fields.get("sp"),
    )


def raw_vector(vector: Vector) -> wire.RawVector:
    """A vector's bytes on the wire: float32, or [int32, float32], little-endian."""
    if isinstance(vector, SparseVector):
        return [np.asarray(vector.indices, "<i4").tobytes(), np.asarray(vector.values, "<f4").tobytes()]
    return np.asarray(vector, "<f4").tobytes()


def _object_fields(ref: ObjectRef, where: str) -> dict[str, Any]:
    if ref.x is not None and ref.views is not None:
        raise Poison(poison.BAD_OBJECT, f"{where} has both x and views")
    fields: dict[str, Any] = {}
    if ref.id is not None:
        fields["id"] = ref.id
    if ref.x is not None:
        fields["x"] = raw_vector(ref.x)
    if ref.views is not None:
        fields["views"] = {name: raw_vector(vector) for name, vector in ref.views.items()}
    return fields


def _object(raw: Any, where: str) -> ObjectRef:
    object_id, vectors = wire.read_object(raw, where)
    if vectors is None:
        return ObjectRef(object_id)
    if type(raw) is tuple and "x" in dict(raw):
        return ObjectRef(object_id, x=_vector(vectors["x"]))
    return ObjectRef(object_id, views={name: _vector(vector) for name, vector in vectors.items()})


def _vector(raw: wire.RawVector) -> Vector:
    if isinstance(raw, bytes):
        return np.frombuffer(raw, "<f4")
    return SparseVector(np.frombuffer(raw[0], "<i4"), np.frombuffer(raw[1], "<f4"))


def _add_optional(fields: dict[str, Any], **optional: str | float | None) -> None:
    fields.update((name, value) for name, value in optional.items() if value is not None)


def _pack(fields: dict[str, Any]) -> bytes:
    try:
        packed: bytes = msgpack.packb(fields)
    except UnicodeEncodeError:
        raise Poison(poison.BAD_TEXT) from None
    except OverflowError:
        raise Poison(poison.OUT_OF_RANGE, "a whole number does not fit 64 bits") from None
    except (TypeError, ValueError):
        raise Poison(poison.WRONG_TYPE, "a field has a type the format does not know") from None
    return packed
