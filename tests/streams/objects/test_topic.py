"""Objects of a topic: the last record of every key, read again only where the topic went on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streams.catalog import Catalog, CatalogError
from streams.catalog_cache import CatalogSource, open_catalog
from streams.event import DenseColumn, SpaceSpec, ViewSpec
from streams.items import unpack_display
from streams.objects import from_topic
from streams.objects.columns import ObjectColumns
from streams.objects.from_topic import TopicPlace, current, id_of
from streams.open import ensure_topic, open_sink
from streams.source import Address, OutRecord, parse_address
from tests.harness.kafka.control import fresh_topic
from tests.harness.topics import delete_topic

DIM = 3
SPACE = SpaceSpec("shop", (ViewSpec("x", "dense", DIM),))
Values = dict[str, Any]


@pytest.fixture(params=["log", "kafka"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Address:
    """A topic of two partitions."""
    if request.param == "kafka":
        made = parse_address(request.getfixturevalue("kafka").address(fresh_topic()))
    else:
        made = parse_address(f"log:{tmp_path}/shop.log#objects")
    ensure_topic(made, 2)
    return made


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each reading of the topic went through."""
    read: list[int] = []
    whole = from_topic.whole_topic

    def noted(*given: Any) -> Iterator:
        read.append(0)
        for batch in whole(*given):
            read[-1] += len(batch)
            yield batch

    monkeypatch.setattr(from_topic, "whole_topic", noted)
    return read


def send(address: Address, *records: tuple[str | bytes | None, Any]) -> None:
    """Keys and values, these as JSON; None sends no value."""
    made = []
    for key, value in records:
        raw = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        made.append(OutRecord(raw, key.encode() if isinstance(key, str) else key))
    with closing(open_sink(address)) as sink:
        sink.send(made)


def opened(address: Address, folder: Path, columns: ObjectColumns | None = None, pinned: str = "") -> Catalog:
    source = CatalogSource(TopicPlace(address), None, columns or ObjectColumns(), SPACE, pinned)
    return open_catalog(source, [folder], lambda told: None)


def vector(number: float) -> list[float]:
    return [number, 1.0, 2.0]


def test_the_last_value_of_a_key_wins_and_none_removes_it(
    address: Address, tmp_path: Path, readings: list[int]
) -> None:
    rows = 3000  # more than a batch has
    send(address, *((f"o{row:04}", {"x": vector(row)}) for row in range(rows)))
    send(address, ("o0002", {"x": vector(-2), "title": "Two"}), ("o0003", None), ("gone", None))
    found = opened(address, tmp_path / "kept")
    ids = [f"o{row:04}" for row in range(rows) if row != 3]
    values = np.array([vector(-2 if row == 2 else row) for row in range(rows) if row != 3], np.float32)
    assert found.digest == Catalog(ids, {"x": DenseColumn(values)}, SPACE).digest
    assert found.shown is not None
    assert unpack_display(found.shown[2]).title == "Two"
    assert opened(address, tmp_path / "kept").digest == found.digest
    assert readings == [rows + 3], "the same ends are the same objects"
    send(address, ("o0003", {"x": vector(3)}))
    assert opened(address, tmp_path / "kept", pinned="checkpoints").ids == sorted([*ids, "o0003"])
    send(address, ("o0000", None))
    assert len(opened(address, tmp_path / "kept")) == rows - 1
    assert len(opened(address, tmp_path / "kept", pinned="checkpoints")) == rows
    assert len(readings) == 3


def test_a_topic_that_was_made_anew_is_read_again(address: Address, tmp_path: Path) -> None:
    send(address, ("a", {"x": vector(1)}))
    assert opened(address, tmp_path).ids == ["a"]
    delete_topic(address)
    ensure_topic(address, 2)
    send(address, ("b", {"x": vector(1)}))
    assert opened(address, tmp_path).ids == ["b"]


def change(op: str, row: Values | None, *, schema: bool) -> Values:
    """As Debezium tells it."""
    told = {"op": op, "before": None, "after": row, "source": {"table": "items"}, "ts_ms": 1}
    if op == "d":
        told |= {"before": row, "after": None}
    return {"schema": {"type": "struct"}, "payload": told} if schema else told


@pytest.mark.parametrize("schema", [False, True])
def test_changes_of_debezium(address: Address, tmp_path: Path, schema: bool) -> None:
    columns = ObjectColumns(id="sku", x="embedding", title="name", tags=("colour",))

    def told(op: str, sku: int, name: str) -> tuple[bytes, Values]:
        key: Values = {"sku": sku}
        row = {"sku": sku, "name": name, "embedding": vector(sku), "colour": "red", "stock": 5}
        keyed = {"schema": {}, "payload": key} if schema else key
        return json.dumps(keyed).encode(), change(op, row, schema=schema)

    send(address, told("r", 1, "read"), told("c", 2, "made"), told("c", 3, "gone"), told("c", 4, "gone"))
    send(address, told("u", 2, "changed"), told("d", 3, "gone"), told("d", 4, "gone"))
    send(address, (told("d", 4, "gone")[0], None))
    found = opened(address, tmp_path, columns)
    assert found.ids == ["1", "2"]
    assert found.views["x"].values.tolist() == [vector(1), vector(2)]
    assert found.shown is not None
    seen = [unpack_display(one) for one in found.shown]
    assert [(one.title, one.tags) for one in seen] == [("read", ("red",)), ("changed", ("red",))]


BAD = [
    (("a", b"{"), "partition 1, offset 0: not JSON"),
    (("a", {"x": [1.0]}), "view 'x' is dense with 1 coordinates, dense with 3 in the space"),
    (("a", {"x": vector(1), "price": 3}), "unknown key 'price'"),
    (("a", {"op": "x", "before": {}, "after": {}}), r"op 'x' with what is after it: known are c, u, r and d"),
    ((None, {"x": vector(1)}), "partition 0, offset 0: has no key"),
    ((b'{"a": 1, "b": 2}', {"x": vector(1)}), "its key is no single id"),
    (("a", None), "no objects; there must be one at least"),
]


@pytest.mark.parametrize(("record", "told"), BAD)
def test_what_cannot_be_used_is_named_with_partition_and_offset(
    tmp_path: Path, record: tuple[str | bytes | None, Any], told: str
) -> None:
    address = parse_address(f"log:{tmp_path}/shop.log#objects")
    ensure_topic(address, 2)
    send(address, record)
    with pytest.raises(CatalogError, match=told) as found:
        opened(address, tmp_path / "kept")
    assert str(found.value).startswith(str(address))
    assert not list((tmp_path / "kept").glob("*.safetensors"))


def test_what_is_wrong_and_was_corrected_since_is_no_matter(tmp_path: Path) -> None:
    address = parse_address(f"log:{tmp_path}/shop.log#objects")
    ensure_topic(address, 1)
    send(address, ("a", b"{"), ("a", {"x": vector(1)}))
    assert opened(address, tmp_path / "kept").ids == ["a"]


def test_a_key_in_two_partitions_is_that_of_the_later_time(tmp_path: Path) -> None:
    """Partitions were added, and what was written since lies elsewhere."""
    address = parse_address(f"log:{tmp_path}/shop.log#objects")
    ensure_topic(address, 2)
    with closing(open_sink(address)) as sink:
        for partition, time in ((0, 1000), (1, 2000)):
            for key, sooner in ((b"a", 0), (b"b", 3000 - 2 * time)):
                value = json.dumps({"x": vector(time + sooner)}).encode()
                sink.send([OutRecord(value, key, partition, time + sooner)])
    assert opened(address, tmp_path / "kept").views["x"].values[:, 0].tolist() == [2000, 2000]


@pytest.mark.parametrize(
    ("key", "name"),
    [(b"007", "007"), (b'"a"', "a"), (b'{"id": 7}', "7"), (b'{"schema": {}, "payload": {"id": "a"}}', "a")],
)
def test_the_id_that_a_key_is(key: bytes, name: str) -> None:
    assert id_of(key) == name


def test_a_value_that_is_no_change_is_itself() -> None:
    assert current({"id": "a", "payload": 3, "op": "c"}) == {"id": "a", "payload": 3, "op": "c"}
    assert current({"schema": {}, "payload": {"id": "a"}}) == {"id": "a"}
    assert current({"schema": {}, "payload": None}) is None
