"""`tripletd items put|remove|list|show` on a real embedded log, and on a broker."""

import json
import uuid
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from daemon.cli import main
from daemon.config import load_config
from daemon.exits import EX_USAGE
from daemon.serve.items.catalog import build_catalog
from streams.catalog import Catalog
from streams.errors import TopicMissing
from streams.event import DenseColumn
from streams.items import ItemRemove, item_record
from streams.log import source
from streams.open import open_sink, open_source
from streams.source import Address, OutRecord
from tests.daemon.serve.items.objects import DENSE, contents, identity
from tests.daemon.serve.items.test_catalog import numbers
from tests.harness.catalog_files import save_catalog
from tests.harness.topics import delete_topic
from tests.harness.waiting import until

CONFIG = """
[stream]
address = "{address}"
[space]
id = "shop"
[space.views.x]
dim = 4
map = "identity"
"""
LINES = [
    {"id": "a", "x": [1, 2, 3, 4], "title": "A chair", "tags": ["new", "wood"]},
    {"id": "b", "views": {"x": [5, 6, 7, 8]}, "text": "plain", "image": "b.jpg"},
    {"id": "ä b", "x": [0.5, 0, 0, 0]},
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tripletd.toml").write_text(CONFIG.format(address="log:shop.log"))
    (tmp_path / "new.jsonl").write_text("".join(json.dumps(one) + "\n" for one in LINES))
    return tmp_path


def served():
    """What a server makes of the topic."""
    catalog = build_catalog(load_config(Path("tripletd.toml")), identity(DENSE))
    catalog.start()
    until(lambda: catalog.status().ready)
    catalog.close()
    assert not catalog.status().dead
    return catalog


def run(capsys, *words):
    """(exit code, stdout as JSON where it is, stderr)."""
    code = main(["items", *words])
    out, err = capsys.readouterr()
    return code, json.loads(out) if "--json" in words and code == 0 else out, err


def test_put_remove_list_and_show(folder, capsys):
    code, told, _ = run(capsys, "put", "new.jsonl", "--json")
    assert (code, told) == (0, {"put": 3, "to": f"log:{folder}/shop.log#triplets.items", "dry_run": False})
    catalog = served()
    assert numbers(catalog) == {"a": 1.0, "b": 5.0, "ä b": 0.5}
    assert catalog.current.display("b").image == "b.jpg"

    code, told, _ = run(capsys, "remove", "a", "nobody")
    assert (code, told) == (0, f"2 items removed from log:{folder}/shop.log#triplets.items\n")
    assert set(contents(served().current)) == {"b", "ä b"}

    code, told, _ = run(capsys, "list", "--json", "--last", "3")
    assert (told["records"], told["put"], told["removed"], told["refused"]) == (5, 2, 2, {})
    assert [(one["id"], one["op"]) for one in told["items"]] == [
        ("ä b", "put"),
        ("a", "remove"),
        ("nobody", "remove"),
    ]
    code, told, _ = run(capsys, "list")
    assert "b  plain" in told
    assert "2 put, 2 removed, by 5 records" in told

    code, told, _ = run(capsys, "show", "b", "--json")
    assert (told["id"], told["op"], told["text"], told["views"]) == (
        "b",
        "put",
        "plain",
        {"x": "dense, 4 numbers"},
    )
    code, told, _ = run(capsys, "show", "a")
    assert "remove" in told
    code, _, err = run(capsys, "show", "c")
    assert code == 64
    assert "no record of 'c'" in err


def test_a_record_of_a_time_that_is_none_is_listed_all_the_same(folder, capsys, monkeypatch):
    run(capsys, "put", "new.jsonl")
    monkeypatch.setattr(source, "now_ms", lambda: 2**62)  # the clock of whoever wrote it
    with closing(open_sink(Address("log", path="shop.log", topic="triplets.items"))) as sink:
        sink.send([replace(item_record(ItemRemove("b")), timestamp=2**62)])
    code, told, _ = run(capsys, "list")
    assert (code, f"{2**62} ms  remove  b" in told) == (0, True)


def test_a_catalog_file_is_put_whole(folder, capsys):
    values = np.arange(24, dtype=np.float32).reshape(6, 4)
    save_catalog(
        Catalog([f"item {n}" for n in range(6)], {"x": DenseColumn(values)}, DENSE), "more.safetensors"
    )
    assert run(capsys, "put", "more.safetensors")[0] == 0
    assert numbers(served()) == {f"item {n}": float(4 * n) for n in range(6)}


def test_a_dry_run_checks_and_writes_nothing(folder, capsys):
    code, told, _ = run(capsys, "put", "new.jsonl", "--dry-run")
    assert (code, told) == (0, f"3 items would be put into log:{folder}/shop.log#triplets.items\n")
    assert run(capsys, "remove", "a", "--dry-run")[0] == 0
    assert not (folder / "shop.log").exists()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("[1, 2]", 'needs an "id"'),
        ("{", "not JSON"),
        ('{"id": "c"}', 'exactly one of "x" and "views"'),
        ('{"id": "c", "x": [1], "views": {}}', 'exactly one of "x" and "views"'),
        ('{"id": "c", "x": [1, 2, 3]}', "view x has 4 coordinates"),
        ('{"id": "c", "x": {"indices": [1], "values": [1]}}', "view x is dense"),
        ('{"id": "c", "views": {"y": [1, 2, 3, 4]}}', "lacks view x"),
        ('{"id": "c", "views": [1]}', '"views" is not an object'),
        ('{"id": "c", "x": [1, 2, 3, "4"]}', "not a list of numbers"),
        ('{"id": "c", "x": [1, 2, 3, NaN]}', "not finite"),
        ('{"id": "c", "x": [1, 2, 3, 1e20]}', "1e+18"),
        ('{"id": "c", "x": [1, 2, 3, 4], "price": 3}', "unknown key 'price'"),
        ('{"id": "c", "x": [1, 2, 3, 4], "title": 3}', "title is not a text"),
        ('{"id": "c", "x": [1, 2, 3, 4], "tags": "new"}', "tag"),
        ('{"id": "c", "x": [1, 2, 3, 4], "tags": ["a", "a"]}', "a tag is given twice"),
        ('{"id": "\\ud800", "x": [1, 2, 3, 4]}', "UTF-8"),
        (json.dumps({"id": "i" * 600, "x": [1, 2, 3, 4]}), "512"),
    ],
    ids=range(17),
)
def test_a_line_that_is_no_item_is_named_and_what_came_before_is_kept(folder, capsys, line, problem):
    with (folder / "new.jsonl").open("a") as file:
        file.write(line + "\n")
    code, _, err = run(capsys, "put", "new.jsonl")
    assert code == 65
    assert "new.jsonl, line 4: " in err
    assert problem in err
    assert "3 items were written before" in err
    assert len(numbers(served())) == 3


def test_other_mistakes_are_told(folder, capsys):
    assert run(capsys, "put", "none.jsonl")[0] == 65
    (folder / "some.txt").write_text("a")
    assert run(capsys, "put", "some.txt")[0] == 64
    assert run(capsys, "remove", "")[0] == 64
    assert run(capsys, "put", "new.jsonl", "--to", "memory:shop")[0] == 64
    assert run(capsys, "list")[0] == 69
    assert run(capsys, "list", "--to", "nonsense")[0] == 78


def test_an_id_that_is_not_utf8_is_one_that_nothing_has(folder, capsys):
    run(capsys, "put", "new.jsonl")
    code, _, err = run(capsys, "show", "a\udcff")
    assert (code, "no record of 'a\\udcff'" in err) == (EX_USAGE, True)


def test_records_that_are_no_items_are_counted(folder, capsys):
    assert run(capsys, "put", "new.jsonl")[0] == 0
    with closing(open_sink(Address("log", "shop.log").items)) as sink:
        sink.send([OutRecord(b"x", b"y")])
    _, told, _ = run(capsys, "list", "--json")
    assert told["refused"] == {"wrong_type": 1}
    assert "1 refused as wrong_type" in run(capsys, "list")[1]


def test_without_the_topic_an_embedded_log_has_no_items(folder, capsys):
    from streams.open import ensure_topic

    ensure_topic(Address("log", "shop.log"), 1)
    code, told, _ = run(capsys, "list")
    assert (code, told) == (0, "0 put, 0 removed, by 0 records\n")


def test_on_a_broker_the_topic_is_created_first_and_compacted(folder, capsys, kafka):
    address = Address("kafka", kafka.servers(), f"shop-{uuid.uuid4().hex}")
    try:
        code, _, err = run(capsys, "put", "new.jsonl", "--to", str(address))
        assert code == 69
        assert "topics create" in err
        assert main(["topics", "create", "--to", str(address)]) == 0
        capsys.readouterr()
        assert run(capsys, "put", "new.jsonl", "--to", str(address))[0] == 0
        assert run(capsys, "remove", "a", "--to", str(address))[0] == 0
        _, told, _ = run(capsys, "list", "--json", "--to", str(address))
        assert (told["put"], told["removed"]) == (2, 1)
        assert main(["topics", "describe", "--json", "--to", str(address)]) == 0
        topics = {one["topic"]: one for one in json.loads(capsys.readouterr().out)["topics"]}
        assert topics[address.items.topic]["settings"]["cleanup.policy"] == "compact"
        with closing(open_source(address.items)) as source:
            assert source.identity().partitions == 1
    finally:
        for topic in (address, address.holdout, address.dead, address.steps, address.items):
            with suppress(TopicMissing):
                delete_topic(topic)
