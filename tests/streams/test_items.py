"""Item records: the golden files byte for byte, and whatever else a stream may hold."""

import json
from pathlib import Path

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.event import ObjectRef
from streams.items import (
    Display,
    ItemPut,
    ItemRemove,
    decode_item,
    encode_item,
    item_record,
    pack_display,
    unpack_display,
)
from streams.poison import REASONS, Poison
from tests.streams.test_format_vectors import plain_ref, ref

FOLDER = Path(__file__).parent / "vectors"
VALID = json.loads((FOLDER / "items_valid.json").read_text())
POISON = json.loads((FOLDER / "items_poison.json").read_text())


def plain(item):
    """A decoded item as the golden file writes it."""
    if isinstance(item, ItemRemove):
        return {"op": "remove", "id": item.id}
    shown = {name: value for name in ("title", "text", "image") if (value := getattr(item.display, name))}
    fields = {"op": "put", **plain_ref(item.item), **shown}
    if item.display.tags:
        fields["tags"] = list(item.display.tags)
    return fields if item.space is None else {**fields, "space": item.space}


def built(value):
    if value["op"] == "remove":
        return ItemRemove(value["id"])
    shown = Display(value.get("title"), value.get("text"), value.get("image"), tuple(value.get("tags", ())))
    return ItemPut(ref(value), shown, value.get("space"))


@pytest.mark.parametrize("case", VALID, ids=lambda case: case["name"])
def test_valid(case):
    data, key = bytes.fromhex(case["hex"]), case["value"]["id"].encode()
    assert plain(decode_item(data, key)) == case["value"]
    record = item_record(built(case["value"]))
    assert record.key == key
    assert (record.value == data) == case["canonical"]
    assert plain(decode_item(record.value, key)) == case["value"]


@pytest.mark.parametrize("case", POISON, ids=lambda case: case["name"])
def test_poison(case):
    with pytest.raises(Poison) as refused:
        decode_item(bytes.fromhex(case["hex"]), None if case["key"] is None else bytes.fromhex(case["key"]))
    assert refused.value.reason == case["reason"]
    assert len(refused.value.detail) < 200


def test_no_value_and_too_large_a_value():
    for value, reason in ((None, "null_value"), (bytes(1024 * 1024 + 1), "too_large")):
        with pytest.raises(Poison) as refused:
            decode_item(value, b"a")
        assert refused.value.reason == reason


def test_the_specification_names_every_field_and_limit():
    text = (Path(__file__).parents[2] / "streams" / "FORMAT.md").read_text()
    section = text[text.index("## Item") : text.index("## Object")]
    for name in ("v", "op", "id", "x", "views", "sp", "title", "text", "image", "tags"):
        assert f"`{name}`" in section
    assert "4,096" in text
    assert [reason for reason in REASONS if f"`{reason}`" not in text] == []


@pytest.mark.parametrize(
    "item",
    [
        ItemRemove(""),
        ItemRemove("i" * 513),
        ItemRemove("\ud800"),
        ItemPut(ObjectRef(None, x=np.ones(2, np.float32))),
        ItemPut(ObjectRef("a")),
        ItemPut(ObjectRef("a", x=np.array([np.nan], np.float32))),
        ItemPut(ObjectRef("a", x=np.ones(2, np.float32)), Display(text="")),
        ItemPut(ObjectRef("a", x=np.ones(2, np.float32)), Display(text="x" * 4097)),
        ItemPut(ObjectRef("a", x=np.ones(2, np.float32)), Display(tags=("t", "t"))),
        ItemPut(ObjectRef("a", x=np.ones(2, np.float32)), space=""),
        ItemPut(ObjectRef("a", x=np.ones(2, np.float32)), space="s" * 513),
        ItemPut(ObjectRef("a", x=np.ones(300_000, np.float32))),
    ],
)
def test_what_decoding_would_refuse_is_not_encoded(item):
    with pytest.raises(Poison):
        encode_item(item)


texts = st.text(min_size=1, max_size=40).filter(lambda text: text.isprintable())
displays = st.builds(
    Display,
    title=st.none() | texts,
    text=st.none() | texts,
    image=st.none() | texts,
    tags=st.lists(texts, unique=True, max_size=4).map(tuple),
)
vectors = st.lists(st.floats(-(2.0**59), 2.0**59, width=32), min_size=1, max_size=5).map(
    lambda numbers: np.array(numbers, np.float32)
)


@settings(max_examples=150, deadline=None)
@given(object_id=texts, vector=vectors, shown=displays, space=st.none() | texts)
def test_what_is_encoded_is_decoded(object_id, vector, shown, space):
    item = ItemPut(ObjectRef(object_id, x=vector), shown, space)
    record = item_record(item)
    found = decode_item(record.value, record.key)
    assert isinstance(found, ItemPut)
    assert found.display == shown
    assert found.space == space
    assert found.item.id == object_id
    assert found.item.x.tolist() == vector.tolist()
    assert unpack_display(pack_display(shown)) == shown


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=12)
)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
)
FIELDS = ("v", "op", "id", "x", "views", "sp", "title", "text", "image", "tags")
near = st.dictionaries(
    st.sampled_from(FIELDS),
    trees | st.sampled_from([1, "put", "remove", "a", b"1234", [b"", b""]]),
    max_size=10,
)


@settings(max_examples=150, deadline=None)
@given(value=near | trees, key=st.none() | st.just(b"a"))
def test_any_msgpack_is_an_item_or_poison(value, key):
    outcome(msgpack.packb(value, strict_types=False), key)


@settings(max_examples=150, deadline=None)
@given(
    value=st.binary(max_size=60), case=st.sampled_from(VALID), cut=st.integers(0, 60), at=st.integers(0, 200)
)
def test_any_bytes_are_an_item_or_poison(value, case, cut, at):
    outcome(value, b"a")
    data = bytes.fromhex(case["hex"])
    outcome(data[:cut], b"a")
    at %= len(data)
    outcome(data[:at] + value[:1] + data[at + 1 :], b"a")


def outcome(value, key):
    try:
        item = decode_item(value, key)
    except Poison:  # whose reason is one of the list: it cannot be made with another
        return
    again = item_record(item)
    assert plain(decode_item(again.value, again.key)) == plain(item)
