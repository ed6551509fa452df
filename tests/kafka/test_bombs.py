"""A learner on a topic that takes whatever is sent: a small batch that would fill its memory is refused."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
from kafka import KafkaProducer

from daemon.exits import EX_OK
from streams.open import open_sink, open_source
from streams.poison import parse_dead_letter
from streams.source import OutRecord
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.control import create_topic, fresh_topic
from tests.harness.kafka.traffic import event
from tests.harness.kill.learners import Process
from tests.harness.kill.site import Site, make_site

MIB = 1 << 20
RECORDS = 100
"""Of 1 MiB each, more than a poll may hold: in one batch about 100 KB on the wire."""


def test_a_compressed_bomb_is_one_dead_letter_and_learning_goes_on(kafka: Cluster, tmp_path: Path) -> None:
    topic = fresh_topic()
    create_topic(kafka, topic, configs={"compression.type": "producer"})
    site = make_site(tmp_path, kafka.address(topic))
    write(site, 0)
    drop_bomb(kafka, topic)
    write(site, 100)
    with Process(site, "--exit-when-caught-up") as learner:
        assert learner.wait() == EX_OK, learner.said()
        assert "Traceback" not in learner.said()
    newest = site.newest()
    assert newest.positions[0].next_offset == 200 + RECORDS
    assert newest.counters["updated"] + newest.counters["passive"] == 200
    assert [(letter.offset, letter.reason) for letter in dead_letters(site)] == [
        (99 + RECORDS, "corrupt_batch")
    ]


def write(site: Site, first: int) -> None:
    """100 events."""
    rng = np.random.default_rng(first)
    with closing(open_sink(site.address)) as sink:
        sink.send([OutRecord(event(rng, number)) for number in range(first, first + 100)])


def drop_bomb(kafka: Cluster, topic: str) -> None:
    """Zeros in one batch, a thousandth of them on the wire."""
    room = 2 * RECORDS * MIB
    producer = KafkaProducer(
        bootstrap_servers=kafka.servers(),
        compression_type="gzip",
        batch_size=room,
        max_request_size=room,
        linger_ms=60_000,
    )
    sent = [producer.send(topic, bytes(MIB), partition=0) for _ in range(RECORDS)]
    producer.flush()
    for future in sent:
        future.get(60)
    producer.close()


def dead_letters(site: Site):  # type: ignore[no-untyped-def]
    """Every dead letter of the site."""
    with closing(open_source(site.address.dead)) as source:
        source.assign({0: 0})
        end, found = source.bounds()[0][1], []
        while source.reached()[0] < end:
            batch = source.poll(100, 5.0)
            if batch is not None:
                found += map(parse_dead_letter, batch.values, batch.headers)
    return found
