"""What comes over HTTP lies on a real broker before it is confirmed, where `feed` finds it."""

from __future__ import annotations

import json
from contextlib import closing

from prometheus_client import CollectorRegistry

from daemon.runtime.doors import Gate
from daemon.serve.http import Writes
from daemon.serve.writes.queue import WriteMetrics, WriteQueue
from daemon.serve.writes.spool import SpoolTopic
from streams.open import open_source
from streams.source import parse_address
from tests.daemon.serve.http.toy import running
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.control import create_topic

LISTS = [{"impression": f"l{n}", "query": "lamp", "shown": ["o1", "o2"], "ts": 1000 + n} for n in range(8)]
CLICKS = [{"impression": f"l{n}", "object": "o2", "ts": 2000 + n} for n in range(8)]


def test_impressions_and_clicks_are_on_the_broker_when_they_are_confirmed(kafka: Cluster, topic: str) -> None:
    address = parse_address(kafka.address(topic)).raw
    metrics = WriteMetrics(CollectorRegistry())
    queue = WriteQueue(SpoolTopic(address, 3), 100, metrics)
    try:
        with running(writes=Writes(queue, metrics, [], 30), gate=Gate()) as served:
            status, said, _ = served.ask("POST", "/v1/impressions", LISTS)
            assert (status, said["error"]["code"]) == (503, "writes_unavailable")
            create_topic(kafka, address.topic, 3)
            assert served.ask("POST", "/v1/impressions", LISTS)[0] == 202
            assert served.ask("POST", "/v1/clicks", CLICKS)[0] == 202
    finally:
        queue.stop()
        assert queue.ended(30)
    found: dict[str, list[tuple[int, str]]] = {}
    with closing(open_source(address)) as source:
        ends = {partition: end for partition, (_, end) in source.bounds().items()}
        source.assign(dict.fromkeys(ends, 0))
        for _ in range(100):
            if source.reached() == ends:
                break
            if (batch := source.poll(100, 1.0)) is not None:
                for key, value in zip(batch.keys, batch.values, strict=True):
                    record = json.loads(value or b"")
                    assert (key or b"").decode() == record["impression"]
                    found.setdefault(record["impression"], []).append((batch.partition, record["event"]))
    assert len({rows[0][0] for rows in found.values()}) > 1, "all of them in one partition"
    for rows in found.values():
        (before, shown), (after, clicked) = rows
        assert (before, shown, clicked) == (after, "impression", "click")
    assert len(found) == len(LISTS)
