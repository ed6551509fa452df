"""Events and impressions to bytes and back, one at a time (see FORMAT.md), and checks of their numbers."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np

from streams import limits, poison, wire
from streams.event import Draft, DraftModel, Event, Impression, ObjectRef, SparseVector, Vector
from streams.limits import MAX_MAGNITUDE
from streams.poison import Poison


def check_vector(vector: Vector, where: str = "vector") -> None:
    """Raise Poison unless values are finite and small enough, and sparse indices strictly increase."""
    if isinstance(vector, SparseVector):
        if len(vector.indices) != len(vector.values):
            raise Poison(poison.BAD_VECTOR, f"{where}: indices and values differ in number")
        if len(vector.indices):
            if vector.indices[0] < 0:
                raise Poison(poison.INDEX_OUT_OF_RANGE, f"{where}: a negative index")
            if not np.all(vector.indices[1:] > vector.indices[:-1]):
                raise Poison(poison.INDICES_NOT_INCREASING, where)
        values = vector.values
    else:
        values = vector
    largest = np.abs(values).max(initial=0.0)  # NaN where any value is NaN, so one pass sees every fault
    if not largest <= MAX_MAGNITUDE:
        if not np.isfinite(largest):
            raise Poison(poison.NOT_FINITE, where)
        raise Poison(poison.MAGNITUDE, f"{where}: a value above {MAX_MAGNITUDE:g}")


def check_object(ref: ObjectRef, where: str = "object") -> None:
    """Raise Poison unless every inline vector of the object passes `check_vector`."""
    for vector in (ref.features() or {}).values():
        check_vector(vector, where)


_SURELY_FITS = limits.MAX_TEXT_BYTES // 4
"""Characters that fit the limit on a text whatever they are: UTF-8 has at most 4 bytes for each."""


def encode_event(event: Event) -> bytes:
    """The one canonical encoding of an event; raises Poison for whatever `decode_event` would refuse."""
    wire.check_ts(event.ts)
    fields: dict[str, Any] = {
        "v": limits.PAIRED_VERSION if event.pair else _version_of(event.key),
        "id": _text(event.id, "id"),
        "ts": event.ts,
        "q": object_fields(event.query, "q"),
        "c": object_fields(event.clicked, "c"),
        "s": object_fields(event.skipped, "s"),
    }
    if event.weight != 1.0:
        fields["w"] = _number(event.weight, "w", limits.MAX_WEIGHT)
    _add_text(fields, "src", event.source)
    _add_text(fields, "imp", event.impression)
    if event.propensity is not None:
        fields["prop"] = _number(event.propensity, "prop", 1.0)
    _add_text(fields, "sp", event.space)
    _add_key(fields, event.key)
    if event.pair:
        wire.check_whole(event.pair, "pair", limits.PAIR_KINDS)
        fields["pair"] = event.pair
    return pack(fields)


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
        key=fields.get("key"),
        pair=fields.get("pair", 0),
    )
    if check_values:
        for where, ref in (("q", event.query), ("c", event.clicked), ("s", event.skipped)):
            check_object(ref, where)
    return event


def encode_impression(impression: Impression) -> bytes:
    """The one canonical encoding of an impression; raises Poison for what decoding would refuse."""
    shown, clicked = len(impression.shown), list(impression.clicked)
    if not shown:
        raise Poison(poison.WRONG_TYPE, "shown is not a list of at least one object")
    if shown > limits.MAX_SHOWN:
        raise Poison(poison.TOO_LARGE, f"{shown} objects shown, the limit is {limits.MAX_SHOWN}")
    wire.check_ts(impression.ts)
    wire.check_clicked(clicked, shown)
    fields: dict[str, Any] = {
        "v": _version_of_list(impression),
        "id": _text(impression.id, "id"),
        "ts": impression.ts,
        "q": object_fields(impression.query, "q"),
        "shown": [
            _fields_of_id(ref) or object_fields(ref, f"shown[{rank}]")
            for rank, ref in enumerate(impression.shown)
        ],
        "clicked": clicked,
    }
    if impression.propensity is not None:
        fields["prop"] = [_number(number, "prop", 1.0) for number in impression.propensity]
        wire.check_propensity(fields["prop"], shown)
    _add_text(fields, "src", impression.source)
    _add_text(fields, "sp", impression.space)
    _add_key(fields, impression.key)
    if impression.draft is not None:
        fields["draft"] = _draft_fields(impression.draft, shown)
    _add_text(fields, "kind", impression.kind)
    if impression.is_learned:
        if impression.kind is not None or (impression.trained and impression.for_arms):
            raise Poison(poison.UNKNOWN_FIELD, "a list is of a kind, trained, or for arms")
        fields["trained" if impression.trained else "arms"] = True
    return pack(fields)


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
        key=fields.get("key"),
        draft=_draft(fields["draft"]) if "draft" in fields else None,
        kind=fields.get("kind"),
        trained=fields.get("trained", False),
        for_arms=fields.get("arms", False),
    )


def _draft_fields(draft: Draft, shown: int) -> dict[str, Any]:
    """A draft as it is written; raises Poison for all that `wire.read_draft` refuses."""
    models = [[_text(one.name, "draft.models"), one.version, one.records] for one in draft.models]
    fields: dict[str, Any] = {"models": models, "teams": list(draft.teams)}
    wire.check_draft(models, fields["teams"], shown)
    if draft.explored is not None:
        fields["explored"] = [draft.explored, draft.chance]
        wire.check_explored(fields["explored"], shown)
    return fields


def draft_of_fields(fields: dict[str, Any], shown: int) -> Draft:
    """A draft of fields as they are written, which are checked; raises Poison."""
    wire.check_draft(fields["models"], fields["teams"], shown)
    if "explored" in fields:
        wire.check_explored(fields["explored"], shown)
    return _draft(fields)


def _draft(fields: dict[str, Any]) -> Draft:
    explored, chance = fields.get("explored", (None, None))
    models = tuple(DraftModel(*model) for model in fields["models"])
    return Draft(models, tuple(fields["teams"]), explored, None if chance is None else float(chance))


def raw_vector(vector: Vector) -> wire.RawVector:
    """A vector's bytes on the wire: float32, or [int32, float32], little-endian; nothing is checked."""
    if isinstance(vector, SparseVector):
        return [np.asarray(vector.indices, "<i4").tobytes(), np.asarray(vector.values, "<f4").tobytes()]
    return np.asarray(vector, "<f4").tobytes()


def object_fields(ref: ObjectRef, where: str) -> dict[str, Any]:
    """An object as it is written. Raises Poison for all that `wire.read_object` and `check_object` refuse."""
    by_id = _fields_of_id(ref)
    if by_id is not None:
        return by_id
    fields = {} if ref.id is None else {"id": _text(ref.id, where)}
    if ref.x is None and ref.views is None:
        if not fields:
            raise Poison(poison.BAD_OBJECT, f"{where} needs an id, or exactly one of x and views")
        return fields
    if ref.views is None:
        return {**fields, "x": _checked_vector(ref.x, where)}
    if ref.x is not None or not ref.views:
        raise Poison(poison.BAD_OBJECT, f"{where} has both x and views, or no view")
    if len(ref.views) > limits.MAX_MAP_ENTRIES:
        raise Poison(poison.TOO_LARGE, f"{where}: more than {limits.MAX_MAP_ENTRIES} views")
    views = {_text(name, where): _checked_vector(vector, where) for name, vector in ref.views.items()}
    return {**fields, "views": views}


def _fields_of_id(ref: ObjectRef) -> dict[str, Any] | None:
    """An object that is an id of usual length and nothing else, as most are; None: look closer."""
    name = ref.id
    if ref.x is None and ref.views is None and type(name) is str and 0 < len(name) <= _SURELY_FITS:
        return {"id": name}
    return None


def _checked_vector(vector: Any, where: str) -> wire.RawVector:
    """A vector's bytes, its numbers checked as the reader will see them: after the change of type."""
    try:
        if not isinstance(vector, SparseVector):
            values = np.asarray(vector, "<f4")
            if values.ndim != 1 or not values.size:
                raise Poison(poison.BAD_VECTOR, f"{where}: a dense vector is a row of at least one number")
            check_vector(values, where)
            return values.tobytes()
        given, values = np.asarray(vector.indices), np.asarray(vector.values, "<f4")
        indices = given.astype("<i4", copy=False)
    except (TypeError, ValueError, OverflowError):
        raise Poison(poison.WRONG_TYPE, f"{where}: a vector holds something other than numbers") from None
    if indices.ndim != 1 or values.ndim != 1:
        raise Poison(poison.BAD_VECTOR, f"{where}: indices and values are not two rows of numbers")
    if indices is not given and not np.array_equal(indices, given):
        raise Poison(poison.INDEX_OUT_OF_RANGE, f"{where}: an index is not a whole number of 32 bits")
    check_vector(SparseVector(indices, values), where)
    return [indices.tobytes(), values.tobytes()]


def _object(raw: Any, where: str) -> ObjectRef:
    object_id, vectors = wire.read_object(raw, where)
    if vectors is None:
        return ObjectRef(object_id)
    if type(raw) is tuple and "x" in dict(raw):
        return ObjectRef(object_id, x=vector_of(vectors["x"]))
    return ObjectRef(object_id, views={name: vector_of(vector) for name, vector in vectors.items()})


def vector_of(raw: wire.RawVector) -> Vector:
    """A vector from bytes that `wire.read_object` has checked: read-only views, numbers unchecked."""
    if isinstance(raw, bytes):
        return np.frombuffer(raw, "<f4")
    return SparseVector(np.frombuffer(raw[0], "<i4"), np.frombuffer(raw[1], "<f4"))


def _text(raw: Any, where: str) -> str:
    """A text that can be read again: not empty, at most 512 bytes (`pack` sees to valid UTF-8)."""
    if type(raw) is str and 0 < len(raw) <= _SURELY_FITS:
        return raw
    wire.check_text(raw, where)
    if len(raw.encode("utf-8", "surrogatepass")) > limits.MAX_TEXT_BYTES:
        raise Poison(poison.TOO_LARGE, f"{where}: a text of more than {limits.MAX_TEXT_BYTES} bytes")
    return str(raw)


def _number(raw: Any, where: str, high: float) -> float:
    """A number in (0, high] as the 64-bit float that is written; NumPy's scalars are numbers too."""
    number = float(raw) if isinstance(raw, np.floating | np.integer) else raw
    wire.check_number(number, where, high)
    return float(number)


def _add_text(fields: dict[str, Any], name: str, text: str | None) -> None:
    if text is not None:
        fields[name] = _text(text, name)


def _version_of(key: str | None) -> int:
    return limits.FORMAT_VERSION if key is None else limits.KEYED_VERSION


def _version_of_list(impression: Impression) -> int:
    if impression.is_learned:
        return limits.TRAINED_VERSION if impression.trained else limits.ARMS_VERSION
    if impression.kind is not None:
        return limits.KIND_VERSION
    return limits.DRAFTED_VERSION if impression.draft else _version_of(impression.key)


def _add_key(fields: dict[str, Any], key: str | None) -> None:
    if key is not None:
        wire.check_key(key)
        fields["key"] = key


def pack(fields: dict[str, Any]) -> bytes:
    """The bytes of checked fields, within the limits on the whole record."""
    try:
        packed: bytes = msgpack.packb(fields)
    except UnicodeEncodeError:
        raise Poison(poison.BAD_TEXT) from None
    if len(packed) > limits.MAX_VALUE_BYTES:
        raise Poison(poison.TOO_LARGE, f"{len(packed)} bytes, the limit is {limits.MAX_VALUE_BYTES}")
    return packed
