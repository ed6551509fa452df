"""A small shop whose stream is a Kafka topic: its catalog, clicks, configuration and roles."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import TopicPartition

from daemon.cli import main
from daemon.config import Config, load_config
from daemon.exits import EX_OK
from daemon.learn.resume.origin import LearnOptions
from daemon.learn.start import run as run_learn
from daemon.validate.role import ValidateOptions
from daemon.validate.role import run as run_validate
from streams.open import open_source
from streams.source import parse_address
from tests.daemon.kept import Kept
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.control import fresh_topic
from tests.harness.kafka.transactions import until_ended

DIM, CLASSES, PER_CLASS = 8, 5, 12
OBJECTS = CLASSES * PER_CLASS
CONFIG = """
[stream]
address = "{address}"
[stream.kafka]
client_id = "shop"
[space.views.x]
dim = 8
map = "identity"
[catalog]
path = "catalog.jsonl"
[feed]
holdout_share = 0.3
[validate]
judgments = "labels:labels.tsv"
min_impressions = 20
[checkpoints]
every = "1h"
[http]
learn_port = 0
validate_port = 0
serve_port = 0
"""


class Shop(Kept):
    """Objects of five classes that only two of eight values tell apart; users click on the query's class."""

    def __init__(self, folder: Path, kafka: Cluster, topic: str, partitions: int = 1) -> None:
        self.folder, self.kafka, self.topic = folder, kafka, topic
        self.file = folder / "tripletd.toml"
        self.file.write_text(CONFIG.format(address=kafka.address(topic)))
        draw = np.random.default_rng(3)
        centres = np.zeros((CLASSES, DIM))
        centres[:, :2] = [[np.cos(a), np.sin(a)] for a in 2 * np.pi * np.arange(CLASSES) / CLASSES]
        rows = np.repeat(centres, PER_CLASS, axis=0) + draw.normal(0, 1, (OBJECTS, DIM)) * (
            [0.1] * 2 + [1] * 6
        )
        lines = [json.dumps({"id": f"o{n}", "x": row.tolist()}) for n, row in enumerate(rows)]
        (folder / "catalog.jsonl").write_text("\n".join(lines))
        labels = "".join(f"o{n}\tclass{n // PER_CLASS}\n" for n in range(OBJECTS))
        (folder / "labels.tsv").write_text(labels)
        if partitions:
            words = "topics", "create", "--partitions", str(partitions)  # a busy broker may answer late
            assert EX_OK in (self.tripletd(*words) for _ in range(3))

    def tripletd(self, *words: str) -> int:
        """One command with this shop's file; its exit code."""
        return main([*words, "--config", str(self.file)])

    def config(self, **changes: Any) -> Config:
        """The configuration; `stream__retention="1s"` changes a key."""
        return load_config(self.file, {key.replace("__", "."): value for key, value in changes.items()}, {})

    def clicks(self, count: int, seed: int = 0) -> list[str]:
        """Impressions as lines of a click log."""
        draw = np.random.default_rng(seed)
        lines = []
        for number in range(count):
            query = int(draw.integers(OBJECTS))
            shown = draw.choice([n for n in range(OBJECTS) if n != query], 8, replace=False)
            same = [place for place, n in enumerate(shown) if n // PER_CLASS == query // PER_CLASS]
            clicked = same[-1:] or [int(draw.integers(8))] * (draw.random() < 0.1)
            line = {"id": f"s{seed}-{number}", "ts": 1_700_000_000_000 + number, "q": {"id": f"o{query}"}}
            lines.append(json.dumps({**line, "shown": [{"id": f"o{n}"} for n in shown], "clicked": clicked}))
        return lines

    def feed(self, count: int, seed: int = 0, *words: str) -> int:
        """Feed impressions; the exit code."""
        source = self.folder / f"clicks{seed}.jsonl"
        source.write_text("\n".join(self.clicks(count, seed)))
        return self.tripletd("feed", str(source), *words)

    def produce(self, topic: str, values: Iterable[bytes | None]) -> list[tuple[int, int]]:
        """Write records as any other program would; their (partition, offset)."""
        producer = KafkaProducer(bootstrap_servers=self.kafka.servers())
        try:
            sent = [producer.send(topic, value, key=b"k").get(10) for value in values]
        finally:
            producer.close()
        return [(one.partition, one.offset) for one in sent]

    def produce_in_transaction(self, topic: str, values: Iterable[bytes], *, commit: bool) -> None:
        """The same in one transaction, which leaves an offset without a record behind."""
        producer = KafkaProducer(bootstrap_servers=self.kafka.servers(), transactional_id=fresh_topic("tx"))
        try:
            producer.init_transactions()
            producer.begin_transaction()
            for value in values:
                producer.send(topic, value, key=b"k")
            producer.flush()
            producer.commit_transaction() if commit else producer.abort_transaction()
        finally:
            producer.close()
        until_ended(parse_address(self.kafka.address(topic)))

    def learn(self, options: LearnOptions | None = None, **changes: Any) -> int:
        """Learn all there is; the exit code."""
        return run_learn(self.config(**changes), options or LearnOptions(exit_when_caught_up=True))

    def validate(self, **changes: Any) -> int:
        """Judge what there is; the exit code."""
        return run_validate(self.config(**changes), ValidateOptions(exit_when_caught_up=True))

    def end(self, topic: str) -> int:
        """How many records a topic was given."""
        with closing(open_source(parse_address(self.kafka.address(topic)))) as source:
            return sum(end for _, end in source.bounds().values())

    def records(self, topic: str) -> list[Any]:
        """Every record of a topic, as any other program reads it."""
        consumer = KafkaConsumer(bootstrap_servers=self.kafka.servers())
        try:
            places = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic) or ())]
            consumer.assign(places)
            consumer.seek_to_beginning(*places)
            ends: Mapping[TopicPartition, int] = consumer.end_offsets(places)
            found: list[Any] = []
            while any(consumer.position(place) < end for place, end in ends.items()):
                for batch in consumer.poll(500).values():
                    found += batch
        finally:
            consumer.close()
        return found
