"""Times on a real broker: it says when a record came, and one that is wrong harms nothing."""

from __future__ import annotations

import time
from contextlib import closing

import numpy as np
import pytest
from kafka import KafkaProducer

from daemon.exits import EX_OK
from daemon.learn.replay.replay import replay
from streams.codec import encode_event
from streams.event import Event, ObjectRef
from streams.open import open_source
from streams.source import parse_address
from tests.daemon.kafka.shop import DIM, Shop
from tests.harness.kafka.control import set_topic

CLOCKS_MS = 60_000
CLIENTS = ("kafka-python", "confluent")


def now_ms() -> int:
    return int(time.time() * 1000)


def event(name: str, ts: int) -> bytes:
    rows = np.random.default_rng(len(name)).standard_normal((3, DIM)).astype(np.float32)
    return encode_event(Event(name, ts, *(ObjectRef(x=row) for row in rows)))


def replays(shop: Shop) -> bool:
    with closing(open_source(parse_address(shop.kafka.address(shop.topic)))) as source:
        found = replay(shop.versions, source, None, 0, shop.newest().number)
    return found.equal and found.difference is None


@pytest.mark.parametrize("client", CLIENTS)
def test_old_clicks_come_to_the_broker_as_new_records(shop: Shop, client: str) -> None:
    before = now_ms()
    assert shop.feed(200, 0, "--set", f"stream.kafka.client={client}") == EX_OK  # clicks of the year 2023
    for topic in (shop.topic, f"{shop.topic}.holdout"):
        records = shop.records(topic)
        assert records
        assert all(before - CLOCKS_MS <= one.timestamp <= now_ms() + CLOCKS_MS for one in records)
    assert shop.learn(stream__kafka__client=client) == EX_OK
    assert shop.newest().counters.get("poison", 0) == 0


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("times", ["LogAppendTime", "CreateTime"])
def test_a_click_in_microseconds_is_a_dead_letter_whoever_says_when_it_came(
    shop: Shop, client: str, times: str
) -> None:
    shop.file.write_text(shop.file.read_text().replace('[catalog]\npath = "catalog.jsonl"\n', ""))
    if times == "CreateTime":
        set_topic(shop.kafka, shop.topic, message_timestamp_type="CreateTime")
    now = now_ms()
    sent = [
        ("a", now - 5000, None),
        ("b", now * 1000, None),
        ("c", now * 1000, now * 1000),
        ("d", now - 10, None),
    ]
    producer = KafkaProducer(bootstrap_servers=shop.kafka.servers())
    for name, ts, stamp in sent:
        producer.send(shop.topic, event(name, ts), timestamp_ms=stamp).get(20)
    producer.close()
    assert shop.learn(stream__kafka__client=client) == EX_OK
    newest = shop.newest()
    assert newest.counters["poison.in_the_future"] == 2
    assert newest.counters["records"] == 4
    assert now - 10 - CLOCKS_MS <= newest.watermark <= now_ms() + CLOCKS_MS
    assert replays(shop)
