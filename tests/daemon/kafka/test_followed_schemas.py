"""`tripletd feed --follow` on topics of Avro and Protobuf, with a schema registry that comes and goes."""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import sys
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import DESCRIPTOR as TIMESTAMP
from kafka import KafkaProducer

from daemon.exits import EX_OK
from tests.daemon.test_follow import TS, caught_up, fed, site
from tests.harness import forked
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.control import create_topic, fresh_topic
from tests.harness.log_lines import json_lines
from tests.harness.schema_registry import RegistryServer
from tests.harness.waiting import until

__all__ = ["site"]

Record = tuple[bytes, list[tuple[str, bytes]]]
EVENT = {"type": "enum", "name": "Kind", "symbols": ["impression", "click"]}
TIME = {"type": "long", "logicalType": "timestamp-millis"}
FIELDS: list[dict[str, Any]] = [
    {"name": "event", "type": EVENT},
    {"name": "impression", "type": "string"},
    {"name": "ts", "type": TIME},
    {"name": "query", "type": ["null", "string"], "default": None},
    {"name": "shown", "type": ["null", {"type": "array", "items": "string"}], "default": None},
    {"name": "object", "type": ["null", "string"], "default": None},
]
FIRST = {"type": "record", "name": "Event", "fields": FIELDS}
SESSION = {"name": "session", "type": ["null", "string"], "default": None}
SECOND = {"type": "record", "name": "Event", "fields": [SESSION, *reversed(FIELDS[1:]), FIELDS[0]]}


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    server = RegistryServer()
    yield server
    server.stop()


@pytest.fixture
def topic(kafka: Cluster, site: Path, registry: RegistryServer) -> str:
    """A topic of one partition that the site follows."""
    name = fresh_topic("raw")
    create_topic(kafka, name)
    file = site / "tripletd.toml"
    said = file.read_text().replace('"raw/*.jsonl"', f'"{kafka.address(name)}"')
    file.write_text(f'{said}[feed.follow.registry]\nurl = "{registry.url}"\n')
    return name


def write(kafka: Cluster, topic: str, records: Iterable[Record]) -> None:
    producer = KafkaProducer(bootstrap_servers=kafka.servers())
    for value, headers in records:
        producer.send(topic, value, headers=headers)
    producer.flush()
    producer.close()


def avro(number: int, schema: dict[str, Any], said: dict[str, Any]) -> Record:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), said)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue(), []


def pair(number: int) -> list[dict[str, Any]]:
    """A list and a click on its third place, ten seconds after that of the number before."""
    ts, shown = TS + 10_000 * number, [f"p{number + rank}" for rank in range(4)]
    view = {"event": "impression", "impression": f"i{number}", "ts": ts, "query": "q", "shown": shown}
    return [view, {"event": "click", "impression": f"i{number}", "ts": ts + 10, "object": shown[2]}]


def lists_of(site: Path) -> set[str]:
    """Lists that were fed; each of them once, with its click."""
    events, held = fed(site)
    trained = {event.split("/")[0] for event in events}
    assert len(events) == len(set(events)) == 2 * len(trained)
    assert len(held) == len(set(held))
    return trained | set(held)


def numbers(upto: int) -> set[str]:
    return {f"i{number}" for number in range(upto)}


def test_avro_whose_schema_changes_and_a_restart_while_the_registry_is_away(
    kafka: Cluster, topic: str, site: Path, registry: RegistryServer
) -> None:
    registry.add(1, "AVRO", json.dumps(FIRST))
    registry.add(7, "AVRO", json.dumps(SECOND))
    write(kafka, topic, [avro(1, FIRST, one) for number in range(5) for one in pair(number)])
    write(kafka, topic, [avro(7, SECOND, one) for number in range(5, 10) for one in pair(number)])
    write(kafka, topic, [(b"\0\0\0\0\1broken", []), (b"\0\0\0\0\x63of no schema", []), (b"{", [])])
    said = caught_up(site, "--set", "log.level=debug")
    assert lists_of(site) == numbers(9)
    dropped = [json.loads(line) for line in said.splitlines() if "malformed:" in line or "unknown_s" in line]
    places = {one["event"]: one["place"].rpartition(":")[2] for one in dropped}
    assert places == {"malformed:not_as_schema": "20", "unknown_schema": "21", "malformed:not_json": "22"}
    assert "schema 99" in said
    registry.stop()
    for number in range(10, 20):
        of, schema = ((1, FIRST), (7, SECOND))[number % 2]
        write(kafka, topic, [avro(of, schema, one) for one in pair(number)])
    caught_up(site)
    assert lists_of(site) == numbers(19)
    registry.start()
    assert not [path for path in registry.asked if path.endswith("/99")][1:]


MAPPING = """
rows = "events"
time = "at"
query = "search.term"
id = ["page_id"]
[impression]
where.kind = "SEEN"
shown = "rows[].sku"
[click]
where.kind = "TAPPED"
object = "sku"
"""


def event_file() -> FileDescriptorProto:
    """shop.proto: enum Kind; message Shop { message Row; message Search; message Event } ."""
    file = FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append(TIMESTAMP.name)
    kind = file.enum_type.add(name="Kind")
    for number, name in enumerate(("NONE", "SEEN", "TAPPED")):
        kind.value.add(name=name, number=number)
    file.message_type.add(name="Before")
    outer = file.message_type.add(name="Shop")
    for name, field in (("Row", "sku"), ("Search", "term")):
        outer.nested_type.add(name=name).field.add(name=field, number=1, type=9, label=1)
    event = outer.nested_type.add(name="Event")
    event.field.add(name="kind", number=1, type=14, type_name=".shop.Kind", label=1)
    event.field.add(name="at", number=2, type=11, type_name=".google.protobuf.Timestamp", label=1)
    event.field.add(name="page_id", number=3, type=9, label=1)
    event.field.add(name="search", number=4, type=11, type_name=".shop.Shop.Search", label=1)
    event.field.add(name="rows", number=5, type=11, type_name=".shop.Shop.Row", label=3)
    event.field.add(name="sku", number=6, type=9, label=1)
    return file


def protobuf(file: FileDescriptorProto) -> Callable[[dict[str, Any]], bytes]:
    """What `pair` says as a message of a schema, in bytes."""
    pool = DescriptorPool()
    pool.AddSerializedFile(TIMESTAMP.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    event = GetMessageClass(pool.FindMessageTypeByName("shop.Shop.Event"))

    def made(said: dict[str, Any]) -> bytes:
        message = event(kind="SEEN" if "shown" in said else "TAPPED", page_id=said["impression"])
        message.at.FromMilliseconds(said["ts"])
        if "shown" in said:
            message.search.term = said["query"]
            for sku in said["shown"]:
                message.rows.add().sku = sku
        else:
            message.sku = said["object"]
        data: bytes = message.SerializeToString()
        return data

    return made


INDEXES = b"\x04\x02\x04"
"""Two indexes: the second message of the file, and in it the third."""


def test_protobuf_through_a_mapping_waits_for_a_registry_that_is_away(
    kafka: Cluster, topic: str, site: Path, registry: RegistryServer
) -> None:
    first, second = event_file(), event_file()
    second.message_type[1].nested_type[2].field.add(name="more", number=9, type=5, label=1)
    for number, file in ((1, first), (2, second)):
        serialized = base64.b64encode(file.SerializeToString()).decode()
        guid = registry.add(number, "PROTOBUF", f"source {number}", serialized=serialized)
    made, later = protobuf(first), protobuf(second)
    (site / "shop.toml").write_text(MAPPING)
    file = site / "tripletd.toml"
    file.write_text(file.read_text().replace('window = "5s"', f'window = "5s"\nmapping = "{site}/shop.toml"'))
    head = b"\x01" + bytes.fromhex(guid.replace("-", "")) + INDEXES
    by_id = [(b"\0\0\0\0\1" + INDEXES + made(one), []) for number in range(5) for one in pair(number)]
    by_head = [(later(one), [("__value_schema_id", head)]) for number in range(5, 10) for one in pair(number)]
    write(kafka, topic, by_id)
    registry.stop()
    command = [sys.executable, "-m", "daemon", "feed", "--follow", "--config", str(file)]
    log = site / "said"
    with log.open("wb") as stderr:
        process = forked.Popen(command, stderr=stderr)

    def lines(text: str) -> list[dict[str, Any]]:
        return [line for line in json_lines(log.read_text()) if text in line["event"]]

    try:
        (waits,) = until(lambda: lines("not ready"), log.read_text, 120)
        assert f"the schema registry {registry.url}" in waits["reason"]
        registry.start()
        until(lambda: lists_of(site) == numbers(4), log.read_text, 120)
        registry.failing = 500
        write(kafka, topic, by_head)
        until(lambda: len(lines("not ready")) == 2, log.read_text, 120)
        assert lists_of(site) <= numbers(5), "the clock may close the last, and nothing else was read"
        registry.failing = 0
        until(lambda: lists_of(site) >= numbers(9), log.read_text, 120)
        url = next(line["url"] for line in lines("") if "url" in line)
        with urllib.request.urlopen(f"{url}/metrics") as page:
            told = page.read().decode()
        failures = next(line for line in told.splitlines() if line.startswith("tripletd_feed_registry_fail"))
        assert float(failures.split()[1]) >= 2
        assert "tripletd_feed_dropped_total{" not in told
    finally:
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(60) == EX_OK
    registry.failing = 500
    write(kafka, topic, [(b"\0\0\0\0\2" + INDEXES + later(one), []) for one in pair(10)])
    registry.failing = 0
    caught_up(site)
    assert lists_of(site) >= numbers(10)
