"""A topic on three nodes with a writer and its onlookers, and what a fault did to them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import msgpack
from kafka import KafkaConsumer, TopicPartition

from streams.source import Address
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.faults import Fault
from tests.harness.kafka.onlookers import Onlooker
from tests.harness.kafka.traffic import Writer

HANG_SECONDS = 240.0
AFTERWARDS = 20
"""So many new records must have passed before a fault counts as survived."""


@dataclass(frozen=True)
class Row:
    """What one fault did to one onlooker, over all runs."""

    fault: str
    onlooker: str
    runs: int
    lost: int
    repeated: int
    longest_silence_s: float


class Scene:
    """A context manager: the writer and the onlookers run inside it."""

    def __init__(self, cluster: Cluster, address: Address, onlookers: Sequence[Onlooker], seed: int) -> None:
        self._cluster, self._address, self._onlookers = cluster, address, onlookers
        self._strikes: dict[str, list[tuple[float, float]]] = {}
        self.writer = Writer(address, seed)

    def __enter__(self) -> Scene:
        self.writer.start()
        for onlooker in self._onlookers:
            onlooker.start()
        self._await_flow()
        return self

    def __exit__(self, *exc: object) -> None:
        self.writer.stop()
        for onlooker in self._onlookers:
            onlooker.stop()

    def strike(self, name: str, fault: Fault, runs: int = 1) -> None:
        """Let a fault happen `runs` times; each is over when records flow again and the cluster is whole."""
        for _ in range(runs):
            begin = time.monotonic()
            with fault(self._cluster, self._address.topic):
                self._await_flow()
                self._strikes.setdefault(name, []).append((begin, time.monotonic()))
            self._await_flow()

    def rows(self) -> list[Row]:
        """The balance of everybody, after the scene: what the topic holds against what was read of it."""
        ids = everything(self._cluster, self._address.topic)
        assert set(ids) == {str(number) for number in range(self.writer.written)}, "the topic lacks events"
        again = {event for event, count in Counter(ids).items() if count > 1}
        assert again <= {str(number) for number in self.writer.in_doubt}, "written twice without a doubt"
        found = []
        for onlooker in self._onlookers:
            lost, repeated = onlooker.account(ids)
            for fault, strikes in self._strikes.items():
                longest = max(onlooker.silence(begin, end) for begin, end in strikes)
                found.append(Row(fault, onlooker.name, len(strikes), lost, repeated, longest))
        return found

    def _await_flow(self) -> None:
        """Wait until new records were written, and everybody has read past them."""
        wanted = self.writer.end + AFTERWARDS
        deadline = time.monotonic() + HANG_SECONDS
        while True:
            self.writer.check()
            for onlooker in self._onlookers:
                onlooker.check()
            behind = [one.name for one in self._onlookers if one.reached() < wanted]
            if self.writer.end < wanted:
                behind.append("the writer")
            if not behind:
                return
            assert time.monotonic() < deadline, f"no new records since {HANG_SECONDS} s: {behind}"
            time.sleep(0.02)


def everything(cluster: Cluster, topic: str) -> list[str]:
    """The event ids that a topic of one partition holds, read by a client of its own, without our source."""
    place = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=cluster.servers().split(","))
    try:
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        end = consumer.end_offsets([place])[place]
        ids: list[str] = []
        while consumer.position(place) < end:
            for record in consumer.poll(1000).get(place, []):
                assert record.offset == len(ids), "the offsets of this topic have a gap"
                ids.append(msgpack.unpackb(record.value)["id"])
        return ids
    finally:
        consumer.close()
