"""Topics that anybody made, with what anybody has compressed in them: no batch ends a role."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from daemon.exits import EX_OK
from streams.event import ObjectRef
from streams.items import ItemPut, encode_item
from tests.daemon.kafka.shop import DIM, Shop
from tests.daemon.serve.test_role import Role
from tests.harness import forked
from tests.harness.kafka.compressed import CODECS, WRITERS, topic_of_anybody
from tests.harness.waiting import until
from tests.streams.kafka.segments import batches, recompress

ROOT = Path(__file__).parents[3]
TOPICS = ("", ".holdout", ".dead", ".steps", ".items")
UNKNOWN = 6
ITEMS = 120
DAMAGED = 2
"""Batches of each topic that nobody can read: one has an unknown codec, one is noise."""


class Compressed:
    """A shop in whose topics each codec of each client has a batch, and two more cannot be read."""

    def __init__(self, shop: Shop, fed: Shop) -> None:
        self.shop = shop
        for ending in TOPICS:
            topic_of_anybody(shop.kafka, shop.topic + ending)
        self.records = self._write("", [record.value for record in fed.records(fed.topic)])
        self._write(".holdout", [record.value for record in fed.records(f"{fed.topic}.holdout")])
        self._write(".steps", [f"of somebody else {n} ".encode() * 20 for n in range(30)])
        draw = np.random.default_rng(5)
        items = [
            encode_item(ItemPut(ObjectRef(f"new{n}", x=draw.normal(0, 1, DIM).astype(np.float32))))
            for n in range(ITEMS)
        ]
        self.items = self._write(".items", items, [f"new{n}".encode() for n in range(ITEMS)])

    def _write(self, ending: str, values: list[bytes], keys: list[bytes] | None = None) -> list[int]:
        """A part of them by each writer in each codec; the offsets of those that can be read."""
        topic, kafka = self.shop.topic + ending, self.shop.kafka
        writing = [(write, codec) for write in WRITERS.values() for codec in CODECS]
        for part, (write, codec) in zip(np.array_split(np.arange(len(values)), 12), writing, strict=True):
            write(
                kafka, topic, codec, *([given[place] for place in part] for given in (values, keys) if given)
            )
        found = batches(kafka, topic)
        assert [batch.codec for batch in found] == 3 * list(CODECS.values())
        recompress(kafka, topic, found[3].first, UNKNOWN)
        recompress(kafka, topic, found[9].first)
        lost = {n for batch in (found[3], found[9]) for n in range(batch.first, batch.last + 1)}
        return [offset for offset in range(len(values)) if offset not in lost]

    def damaged(self) -> list[tuple[str, str]]:
        """(topic, reason) of each dead letter."""
        letters = [dict(record.headers) for record in self.shop.records(f"{self.shop.topic}.dead")]
        return [(one["topic"].decode(), one["reason"].decode()) for one in letters]

    @contextmanager
    def running(self, *words: str) -> Iterator[Role]:
        log = self.shop.folder / f"{words[0]}.log"
        command = [sys.executable, "-m", "daemon", *words, "--config", str(self.shop.file)]
        with log.open("wb") as stderr:
            process = forked.Popen(command, stderr=stderr, cwd=ROOT, env=dict(os.environ))
        try:
            yield Role(process, log)
        finally:
            process.kill()
            process.wait()


@pytest.fixture
def compressed(make_shop: Callable[[int], Shop]) -> Compressed:
    fed = make_shop(1)
    assert fed.feed(400) == EX_OK
    return Compressed(make_shop(0), fed)


def test_every_role_reads_on_and_what_cannot_be_read_is_a_dead_letter(compressed: Compressed) -> None:
    shop, topic = compressed.shop, compressed.shop.topic
    assert (shop.learn(), shop.validate()) == (EX_OK, EX_OK)
    counters = shop.newest().counters
    assert sum(counters[name] for name in ("updated", "passive")) == len(compressed.records)
    assert "KEEP" in {one.kind for one in shop.ledger.entries()}
    letters = compressed.damaged()
    assert letters == [(topic, "corrupt_batch")] * DAMAGED + [(f"{topic}.holdout", "corrupt_batch")] * DAMAGED
    with compressed.running("serve") as serve:
        until(lambda: serve.get("/readyz")[0] == 200, serve.said, 240.0)
        for offset in compressed.items:
            assert serve.get(f"/v1/similar?id=new{offset}")[0] == 200
        assert serve.get("/v1/similar?id=o1")[0] == 200
        until(lambda: len(compressed.damaged()) == 3 * DAMAGED, serve.said)
        assert compressed.damaged()[2 * DAMAGED :] == [(f"{topic}.items", "corrupt_batch")] * DAMAGED
        assert serve.stop(signal.SIGTERM) == EX_OK
        assert "Traceback" not in serve.said(), serve.said()
        assert not re.search(r"this is a bug", serve.said())
