"""A learner on a topic that takes whatever is sent: a small batch that would fill its memory is refused."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np

from daemon.exits import EX_OK
from streams.open import open_sink, open_source
from streams.poison import parse_dead_letter
from streams.source import OutRecord
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.compressed import Write, by_kafka_python, by_librdkafka, topic_of_anybody
from tests.harness.kafka.control import fresh_topic
from tests.harness.kafka.traffic import event
from tests.harness.kill.learners import CATCH_UP_SECONDS, Process
from tests.harness.kill.site import Site, make_site

MIB = 1 << 20
RECORDS = 100
"""Of 1 MiB each, more than a poll may hold: in one batch 5 MB to 10 KB on the wire."""
BOMBS: list[tuple[str, Write]] = [
    ("gzip", by_kafka_python),
    ("snappy", by_kafka_python),
    ("snappy", by_librdkafka),
    ("lz4", by_kafka_python),
    ("zstd", by_kafka_python),
]
"""By codec and writer; the two write snappy in different frames."""


def test_a_bomb_of_each_codec_is_one_dead_letter_and_learning_goes_on(kafka: Cluster, tmp_path: Path) -> None:
    topic = fresh_topic()
    topic_of_anybody(kafka, topic)
    site = make_site(tmp_path, kafka.address(topic))
    write(site, 0)
    for number, (codec, drop) in enumerate(BOMBS, 1):
        drop(kafka, topic, codec, [bytes(MIB)] * RECORDS)
        write(site, 100 * number)
    with Process(site, "--exit-when-caught-up") as learner:
        assert learner.wait(CATCH_UP_SECONDS) == EX_OK, learner.said()
        assert "Traceback" not in learner.said(), learner.said()
    newest, bombs = site.newest(), len(BOMBS)
    assert newest.positions[0].next_offset == 100 + bombs * (100 + RECORDS)
    assert newest.counters["updated"] + newest.counters["passive"] == 100 + bombs * 100
    assert [(letter.offset, letter.reason) for letter in dead_letters(site)] == [
        (number * (100 + RECORDS) - 1, "corrupt_batch") for number in range(1, bombs + 1)
    ]


def write(site: Site, first: int) -> None:
    """100 events."""
    rng = np.random.default_rng(first)
    with closing(open_sink(site.address)) as sink:
        sink.send([OutRecord(event(rng, number)) for number in range(first, first + 100)])


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
