"""Item records: what is put into the serving catalog, or removed from it (see FORMAT.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgpack

from streams import limits, poison, wire
from streams.codec import check_object, object_fields, pack, vector_of
from streams.event import UNNAMED_VIEW, ObjectRef
from streams.limits import MAX_SHOWN_TEXT_BYTES, MAX_TAGS
from streams.poison import Poison
from streams.source import OutRecord
from streams.wire import RawVector

_HEAD = frozenset(("v", "op", "id"))
_SHOWN = ("title", "text", "image")
_PUT_FIELDS = _HEAD | {"x", "views", "sp", "tags", *_SHOWN}


@dataclass(frozen=True, slots=True)
class Display:
    """What people see of an object; None or () for what it does not have.

    `image` is a path or a URL: nothing here opens it.
    """

    title: str | None = None
    text: str | None = None
    image: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ItemPut:
    """Adds an object, or replaces the one of this id: id and features, what people see, the space's id."""

    item: ObjectRef
    display: Display = Display()
    space: str | None = None


@dataclass(frozen=True, slots=True)
class ItemRemove:
    """Removes the object of this id, also one that came from a file."""

    id: str


@dataclass(frozen=True, slots=True)
class RawItem:
    """An item record with its vectors still as bytes; `vectors` is None for a removal.

    Structure and limits are checked; the numbers in the vectors, and whether they fit a space, are not.
    """

    op: Literal["put", "remove"]
    id: str
    vectors: Mapping[str, RawVector] | None
    display: Display = Display()
    space: str | None = None
    by_x: bool = False
    """The one vector came as `x`, not in `views`."""


def encode_item(item: ItemPut | ItemRemove) -> bytes:
    """The one canonical encoding; raises Poison for whatever `decode_item` would refuse."""
    if isinstance(item, ItemRemove):
        _check_short(item.id, "id")
        return pack({"v": limits.FORMAT_VERSION, "op": "remove", "id": item.id})
    if item.item.id is None or item.item.features() is None:
        raise Poison(poison.BAD_OBJECT, "an item has an id, and exactly one of x and views")
    found = object_fields(item.item, "the item")
    fields = {"v": limits.FORMAT_VERSION, "op": "put", "id": found.pop("id"), **found}
    if item.space is not None:
        _check_short(item.space, "sp")
        fields["sp"] = item.space
    return pack({**fields, **_display_fields(item.display)})


def item_record(item: ItemPut | ItemRemove) -> OutRecord:
    """The record to send: the id is its key, so that one id's records stay in order and can be compacted."""
    object_id = item.id if isinstance(item, ItemRemove) else item.item.id
    return OutRecord(encode_item(item), (object_id or "").encode())


def decode_item(value: bytes | None, key: bytes | None) -> ItemPut | ItemRemove:
    """An item from its record, numbers checked; raises Poison, and nothing else, whatever the bytes."""
    raw = read_item(value, key)
    if raw.vectors is None:
        return ItemRemove(raw.id)
    views = {name: vector_of(vector) for name, vector in raw.vectors.items()}
    ref = ObjectRef(raw.id, x=views[UNNAMED_VIEW]) if raw.by_x else ObjectRef(raw.id, views=views)
    check_object(ref, "the item")
    return ItemPut(ref, raw.display, raw.space)


def read_item(value: bytes | None, key: bytes | None, max_bytes: int = limits.MAX_VALUE_BYTES) -> RawItem:
    """The structure of an item record; raises Poison, and nothing else, whatever the bytes."""
    fields = wire.open_map(
        wire.unpack(value, max_bytes, max_list=MAX_TAGS, max_text=MAX_SHOWN_TEXT_BYTES), "the item"
    )
    wire.check_version(fields)
    if missing := _HEAD - fields.keys():
        raise Poison(poison.MISSING_FIELD, f"{', '.join(sorted(missing))} missing")
    if fields["op"] not in ("put", "remove"):
        reason = poison.OUT_OF_RANGE if type(fields["op"]) is str else poison.WRONG_TYPE
        raise Poison(reason, "op is neither put nor remove")
    _check_short(fields["id"], "id")
    if key != fields["id"].encode():
        raise Poison(poison.WRONG_KEY, "the record's key is not the item's id in UTF-8")
    if fields["op"] == "remove":
        if len(fields) > len(_HEAD):
            raise Poison(poison.UNKNOWN_FIELD, "a removal has v, op and id")
        return RawItem("remove", fields["id"], None)
    if not _PUT_FIELDS.issuperset(fields):
        raise Poison(poison.UNKNOWN_FIELD, f"known are {', '.join(sorted(_PUT_FIELDS))}")
    space = fields.get("sp")
    if "sp" in fields:
        _check_short(space, "sp")
    features = tuple((name, fields[name]) for name in ("x", "views") if name in fields)
    _, vectors = wire.read_object(features, "the item")
    for name in vectors or ():
        _check_short(name, "a view name")
    return RawItem("put", fields["id"], vectors, _display(fields), space, "x" in fields)


def pack_display(display: Display) -> bytes:
    """Display data as kept with vectors; b"" for none."""
    fields = _display_fields(display)
    packed: bytes = msgpack.packb(fields) if fields else b""
    return packed


def unpack_display(packed: bytes) -> Display:
    """Display data as `pack_display` wrote it."""
    fields = msgpack.unpackb(packed) if packed else {}
    return _of_fields(fields)


def check_display(display: Display) -> None:
    """Raise Poison naming the field that is over its limit, empty or no text."""
    for name in _SHOWN:
        text = getattr(display, name)
        if text is not None:
            wire.check_text(text, name)
            _check_bytes(text, name, MAX_SHOWN_TEXT_BYTES)
    if len(display.tags) > MAX_TAGS:
        raise Poison(poison.TOO_LARGE, f"more than {MAX_TAGS} tags")
    for tag in display.tags:
        _check_short(tag, "a tag")
    if len(set(display.tags)) != len(display.tags):
        raise Poison(poison.DUPLICATE_KEY, "a tag is given twice")


def _display(fields: Mapping[str, Any]) -> Display:
    if fields.keys().isdisjoint(("tags", *_SHOWN)):
        return Display()
    tags = fields.get("tags", [])
    if type(tags) is not list:
        raise Poison(poison.WRONG_TYPE, "tags is not a list of texts")
    for name in _SHOWN:
        if name in fields:
            wire.check_text(fields[name], name)
    if any(type(tag) is not str for tag in tags):
        raise Poison(poison.WRONG_TYPE, "tags holds something other than a text")
    display = _of_fields(fields)
    check_display(display)
    return display


def _of_fields(fields: Mapping[str, Any]) -> Display:
    tags = tuple(fields.get("tags", ()))
    return Display(fields.get("title"), fields.get("text"), fields.get("image"), tags)


def _display_fields(display: Display) -> dict[str, Any]:
    check_display(display)
    fields: dict[str, Any] = {
        name: getattr(display, name) for name in _SHOWN if getattr(display, name) is not None
    }
    return {**fields, "tags": list(display.tags)} if display.tags else fields


def _check_short(text: Any, where: str) -> None:
    wire.check_text(text, where)
    _check_bytes(text, where, limits.MAX_TEXT_BYTES)


def _check_bytes(text: str, where: str, most: int) -> None:
    if 4 * len(text) > most and len(text.encode("utf-8", "surrogatepass")) > most:
        raise Poison(poison.TOO_LARGE, f"{where}: a text of more than {most} bytes")
