"""The serving catalog on every kind of log: files, then the topic, kept current whatever happens."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, suppress

import numpy as np
import pytest

from daemon.config import load_config
from daemon.serve.items import catalog as catalog_module
from daemon.serve.items import topic as topic_module
from daemon.serve.items.catalog import ServingCatalog, build_catalog
from daemon.serve.items.index import ItemIndex, Sizes
from daemon.serve.items.snapshot import resolve
from daemon.serve.query import Query, QueryError
from streams.errors import TopicMissing
from streams.open import create_topic, ensure_topic, open_sink, open_source
from streams.partitions import TopicLimits
from streams.poison import parse_dead_letter
from streams.source import Address, OutRecord, parse_address
from tests.daemon.serve.items.objects import DENSE, contents, dense, identity, put, remove
from tests.harness.kafka.control import create_topic as create_kafka_topic
from tests.harness.topics import delete_topic
from tests.harness.waiting import until

CATALOG = """\
{"id": "file 1", "x": [1, 1, 2, 3]}
{"id": "file 2", "x": [2, 1, 2, 3]}
{"id": "file 3", "x": [3, 1, 2, 3]}
"""
DISPLAY = """\
{"id": "file 1", "title": "One", "tags": ["new"]}
{"id": "file 2", "image": "2.jpg"}
"""
PATIENCE = 30.0


class Shop:
    """One stream of one kind, a configuration for it, and what was opened on it."""

    def __init__(self, address: Address, folder) -> None:
        self.address = address
        (folder / "objects.jsonl").write_text(CATALOG)
        (folder / "display.jsonl").write_text(DISPLAY)
        self.overrides = {
            "stream.address": str(address),
            "space.id": DENSE.id,
            "space.views": {"x": {"kind": "dense", "dim": 4, "map": "identity"}},
            "serve.catalog": str(folder / "objects.jsonl"),
            "serve.display": str(folder / "display.jsonl"),
        }
        self.opened: list[ServingCatalog] = []

    def create(self) -> None:
        create_topic(self.address, 1, TopicLimits())
        create_topic(self.address.items, 1, TopicLimits(compacted=True))
        create_topic(self.address.dead, 1, TopicLimits())

    def send(self, *records: OutRecord) -> None:
        with closing(open_sink(self.address.items)) as sink:
            sink.send(records)

    def catalog(self, start: bool = True, **overrides) -> ServingCatalog:
        config = load_config(None, self.overrides | overrides, {})
        catalog = build_catalog(config, identity(DENSE), Sizes(part=1 << 16, small=1 << 10, piece=1 << 10))
        self.opened.append(catalog)
        if start:
            catalog.start()
        return catalog

    def letters(self) -> list[tuple[int, str]]:
        """(offset, reason) of all dead letters."""
        found = []
        with closing(open_source(self.address.dead)) as source:
            ((start, end),) = source.bounds().values()
            source.assign({0: start})
            while source.reached()[0] < end:
                batch = source.poll(100, PATIENCE)
                for value, headers in zip(batch.values, batch.headers, strict=True):
                    letter = parse_dead_letter(value, headers)
                    assert letter.topic == self.address.items.topic
                    found.append((letter.offset, letter.reason))
        return found


def numbers(catalog: ServingCatalog) -> dict[str, float]:
    """The first coordinate of every living object."""
    return {one: row[0] for one, row in contents(catalog.current).items()}


FILE = {"file 1": 1.0, "file 2": 2.0, "file 3": 3.0}


@pytest.fixture(params=["log", "kafka"])
def shop(request: pytest.FixtureRequest, tmp_path) -> Iterator[Shop]:
    yield from _shop(request.param, request, tmp_path)


@pytest.fixture
def embedded(request: pytest.FixtureRequest, tmp_path) -> Iterator[Shop]:
    yield from _shop("log", request, tmp_path)


def _shop(kind: str, request: pytest.FixtureRequest, tmp_path) -> Iterator[Shop]:
    if kind == "kafka":
        name = f"shop-{uuid.uuid4().hex}"
        address = Address("kafka", request.getfixturevalue("kafka").servers(), name)
    else:
        address = parse_address(f"log:{tmp_path / 'shop.log'}#shop")
    found = Shop(address, tmp_path)
    found.create()
    yield found
    for one in found.opened:
        one.close()
        assert not one._thread.is_alive()
    if kind == "kafka":
        for topic in (address, address.items, address.dead):
            with suppress(TopicMissing):
                delete_topic(topic)


def test_files_then_the_whole_topic_then_what_comes(shop):
    shop.send(
        put("new", dense(10), title="New"), put("file 2", dense(20)), remove("file 3"), remove("nobody")
    )
    catalog = shop.catalog(start=False)
    assert numbers(catalog) == FILE
    assert not catalog.status().ready
    catalog.start()
    until(lambda: catalog.status().ready)
    assert numbers(catalog) == {"file 1": 1.0, "file 2": 20.0, "new": 10.0}
    shop.send(put("late", dense(30)), remove("new"))
    until(lambda: numbers(catalog) == {"file 1": 1.0, "file 2": 20.0, "late": 30.0})
    status = catalog.status()
    assert (status.puts, status.removes, status.items, status.trouble) == (3, 3, 3, None)
    assert status.positions == {0: 6}
    assert status.map_id == identity(DENSE).id
    assert catalog.current.display("file 1").title == "One"
    (found, missing) = resolve(
        [Query(id="late"), Query(id="new")], catalog.current, {}, space=catalog.space, fitted=catalog.fitted
    )
    assert found.values[0][0] == 30
    assert isinstance(missing, QueryError)


def test_bad_records_are_dead_letters_and_never_a_stop(shop):
    shop.send(
        put("a", dense(1)),
        OutRecord(b"\xc1", b"a"),
        OutRecord(put("b", dense(1)).value, b"another key"),
        put("c", dense(1), space="elsewhere"),
        put("d", np.ones(5, np.float32)),
        put("e", dense(2)),
    )
    catalog = shop.catalog(**{"serve.catalog": ""})
    until(lambda: catalog.status().ready)
    assert numbers(catalog) == {"a": 1.0, "e": 2.0}
    reasons = {"not_msgpack": 1, "wrong_key": 1, "wrong_space": 1, "wrong_dim": 1}
    assert catalog.status().dead == reasons
    expected = [(1, "not_msgpack"), (2, "wrong_key"), (3, "wrong_space"), (4, "wrong_dim")]
    until(lambda: shop.letters() == expected)
    until(lambda: _committed(shop) == {0: 6})
    catalog.close()

    again = shop.catalog()
    until(lambda: again.status().ready)
    shop.send(OutRecord(b"", b"f"))
    until(lambda: len(shop.letters()) > 4)
    assert shop.letters() == [*expected, (6, "not_msgpack")], "no letter twice"
    assert again.status().dead == reasons | {"not_msgpack": 2}, "but all are counted"


def _committed(shop):
    with closing(open_source(shop.address.items)) as source:
        return source.committed()


def test_a_topic_that_comes_later(embedded):
    delete_topic(embedded.address.items)
    catalog = embedded.catalog()
    until(lambda: catalog.status().ready)
    assert numbers(catalog) == FILE
    assert "topic" in catalog.status().trouble
    ensure_topic(embedded.address.items, 1)
    embedded.send(put("new", dense(10)))
    until(lambda: numbers(catalog) == FILE | {"new": 10.0})
    assert catalog.status().trouble is None


def test_a_topic_made_anew_is_another_catalog(embedded):
    embedded.send(put("old", dense(10)), remove("file 1"))
    catalog = embedded.catalog()
    until(lambda: numbers(catalog) == {"file 2": 2.0, "file 3": 3.0, "old": 10.0})
    delete_topic(embedded.address.items)
    until(lambda: catalog.status().trouble)
    assert set(numbers(catalog)) == {"file 2", "file 3", "old"}, "what is served stays served"
    ensure_topic(embedded.address.items, 1)
    embedded.send(put("new", dense(11)))
    until(lambda: numbers(catalog) == FILE | {"new": 11.0})
    assert catalog.status().ready


def test_a_topic_made_anew_is_served_once_it_is_read_whole(embedded, monkeypatch):
    monkeypatch.setattr(topic_module, "BACKGROUND_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(catalog_module, "POLL_RECORDS", 2)
    embedded.send(put("old", dense(10)))
    catalog = embedded.catalog(start=False)  # its thread's turns are taken here, one by one
    until(lambda: catalog._turn() or "old" in numbers(catalog))
    delete_topic(embedded.address.items)
    ensure_topic(embedded.address.items, 1)
    embedded.send(*(put(f"new {n}", dense(n)) for n in range(9)))
    seen = []
    until(lambda: catalog._turn() or seen.append(set(numbers(catalog))) or "new 8" in seen[-1])
    new = {f"new {n}" for n in range(9)}
    assert [one for one in seen if one & new not in (set(), new)] == []
    assert seen[-1] == FILE.keys() | new
    catalog._following.topic.close()


def test_a_topic_made_anew_while_the_file_cannot_be_read_loses_nothing(embedded, tmp_path):
    embedded.send(put("old", dense(10)))
    catalog = embedded.catalog()
    until(lambda: "old" in numbers(catalog))
    (tmp_path / "objects.jsonl").write_text("half a line of a file that is being writ")
    delete_topic(embedded.address.items)
    ensure_topic(embedded.address.items, 1)
    embedded.send(put("new", dense(11)))
    until(lambda: "CatalogError" in (catalog.status().trouble or ""))
    assert numbers(catalog) == FILE | {"old": 10.0}
    (tmp_path / "objects.jsonl").write_text(CATALOG)
    until(lambda: numbers(catalog) == FILE | {"new": 11.0})


def test_a_dead_letter_topic_that_is_missing_stops_nothing(embedded):
    delete_topic(embedded.address.dead)
    embedded.send(OutRecord(None, b"a"), put("b", dense(2)))
    catalog = embedded.catalog()
    until(lambda: "b" in numbers(catalog))
    assert catalog.status().dead == {"null_value": 1}


def test_listeners_hear_every_snapshot_and_may_fail(embedded):
    heard = []

    def broken(_):
        raise RuntimeError("no")

    catalog = embedded.catalog(start=False)
    catalog.listen(broken)
    catalog.listen(lambda snapshot: heard.append((snapshot, catalog.current)))
    catalog.start()
    embedded.send(put("a", dense(1)))
    until(lambda: heard and "a" in contents(heard[-1][0]))  # perhaps twice: parts are merged as well
    embedded.send(remove("a"))
    until(lambda: "a" not in contents(heard[-1][0]))
    assert all(told is published for told, published in heard)
    serials = [told.serial for told, _ in heard]
    assert serials == sorted(set(serials))


def test_readers_see_whole_snapshots_while_two_write(embedded, monkeypatch):
    """A writer sends 20 objects at once, all with one number: no snapshot has some of them and not others."""
    monkeypatch.setattr(catalog_module, "GATHER_SECONDS", 0.001)
    catalog = embedded.catalog(**{"serve.catalog": ""})
    until(lambda: catalog.status().ready)
    done, faults, looks = threading.Event(), [], [0]
    turns = 40

    def read():
        begun = set()
        while not done.is_set():
            found = numbers(catalog)
            looks[0] += 1
            for writer in (0, 1):
                held = {n: v for n, v in found.items() if n.startswith(f"{writer} ")}
                begun |= {writer} if held else set()
                if writer in begun and (len(held) != 20 or len(set(held.values())) != 1):
                    faults.append(held)

    def write(writer):
        with closing(open_sink(embedded.address.items)) as sink:
            for turn in range(turns):
                sink.send([put(f"{writer} {n}", dense(turn)) for n in range(20)])

    # a batch of one writer may be cut by a poll: then one snapshot would have half of it
    monkeypatch.setattr(catalog_module, "POLL_RECORDS", 1_000_000)
    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=write, args=(n,)) for n in (0, 1)]
    reader.start()
    for one in writers:
        one.start()
    for one in writers:
        one.join(PATIENCE)
    last = {f"{writer} {n}": float(turns - 1) for writer in (0, 1) for n in range(20)}
    until(lambda: numbers(catalog) == last)
    done.set()
    reader.join(PATIENCE)
    assert looks[0] > 10
    assert faults == []


@pytest.mark.parametrize("seed", [1, 2])
def test_random_changes_make_what_a_dict_would(embedded, seed):
    chance = random.Random(seed)
    catalog = embedded.catalog()
    model = dict(FILE)
    ids = [*FILE, *(f"item {n}" for n in range(30))]
    for turn in range(60):
        records = []
        for _ in range(chance.randrange(1, 8)):
            one = chance.choice(ids)
            if chance.random() < 0.6:
                number = chance.randrange(1_000)
                records.append(put(one, dense(number)))
                model[one] = float(number)
            else:
                records.append(remove(one))
                model.pop(one, None)
        embedded.send(*records)
        if turn % 15 == 14:
            until(lambda: numbers(catalog) == model)
    again = embedded.catalog()
    until(lambda: again.status().ready)
    assert numbers(again) == model
    assert catalog.status().merges > 0


def test_the_topic_is_compacted_in_time(tmp_path, monkeypatch):
    monkeypatch.setattr(topic_module, "COMPACT_SECONDS", 0.0)
    monkeypatch.setattr(catalog_module, "LOOK_SECONDS", 0.0)
    shop = Shop(parse_address(f"log:{tmp_path}/shop.log#shop"), tmp_path)
    shop.create()
    for turn in range(6):
        shop.send(*(put(f"{n % 100}", dense(turn)) for n in range(2000)))
    catalog = shop.catalog()
    until(lambda: catalog.status().ready)

    def records():
        with closing(open_source(shop.address.items)) as source:
            source.assign({0: 0})
            return len(source.poll(100_000, 0))

    until(lambda: records() < 3000)
    catalog.close()
    again = shop.catalog()
    until(lambda: again.status().ready)
    assert numbers(again) == numbers(catalog)
    again.close()


def test_a_topic_that_a_broker_has_compacted_says_the_same(kafka, tmp_path):
    shop = Shop(Address("kafka", kafka.servers(), f"shop-{uuid.uuid4().hex}"), tmp_path)
    shop.create()
    try:
        delete_topic(shop.address.items)
        often = {"segment.ms": "50", "min.cleanable.dirty.ratio": "0.01", "cleanup.policy": "compact"}
        create_kafka_topic(kafka, shop.address.items.topic, configs=often)
        for turn in range(4):
            shop.send(put(f"only {turn}", dense(turn)), *(put(f"{n}", dense(turn)) for n in range(10)))
            time.sleep(0.1)  # the next record begins a segment, and only whole segments are cleaned

        def offsets():
            with closing(open_source(shop.address.items)) as source:
                ((start, end),) = source.bounds().values()
                source.assign({0: start})
                found = []
                while source.reached()[0] < end:
                    batch = source.poll(1000, 1.0)
                    found += [] if batch is None else batch.offsets
                return found

        until(lambda: len(offsets()) < 44)
        left = offsets()
        assert left != list(range(left[0], left[-1] + 1)), "there are gaps"
        catalog = shop.catalog()
        until(lambda: catalog.status().ready)
        expected = FILE | {str(n): 3.0 for n in range(10)} | {f"only {n}": float(n) for n in range(4)}
        assert numbers(catalog) == expected
        shop.send(put("late", dense(5)))
        until(lambda: numbers(catalog) == expected | {"late": 5.0})
        catalog.close()
    finally:
        for topic in (shop.address, shop.address.items, shop.address.dead):
            delete_topic(topic)


def test_a_failure_of_ours_leaves_the_last_snapshot_and_goes_on(embedded, monkeypatch):
    monkeypatch.setattr(catalog_module, "AFTER_A_BUG_SECONDS", 0.01)
    catalog = embedded.catalog()
    until(lambda: catalog.status().ready)
    real, failures = ItemIndex.apply, [3]

    def failing(index, changes):
        if failures[0]:
            failures[0] -= 1
            raise RuntimeError("a bug")
        return real(index, changes)

    monkeypatch.setattr(ItemIndex, "apply", failing)
    embedded.send(put("a", dense(1)))
    until(lambda: catalog.status().trouble == "RuntimeError: a bug" or failures[0] == 0)
    assert set(FILE) <= set(numbers(catalog))
    until(lambda: numbers(catalog) == FILE | {"a": 1.0})
