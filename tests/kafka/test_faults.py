"""Whatever happens to the brokers, nothing is lost, nothing is read twice, and reading goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from streams.address import parse_address
from streams.kafka.settings import KafkaSettings
from streams.kafka.topics import ensure_topic
from tests.kafka import faults
from tests.kafka.cluster import Cluster
from tests.kafka.fixtures import ONE_AT_A_TIME
from tests.kafka.onlookers import Reader
from tests.kafka.scene import Scene

pytestmark = ONE_AT_A_TIME

FAULTS = {
    "killed": faults.killed_leader,
    "frozen": faults.frozen_leader,
    "moved": faults.moved_leader,
    "restarted": faults.rolling_restart,
    "silent": faults.silence(8.0),
}


@pytest.mark.parametrize("name", FAULTS)
def test_nothing_is_lost_or_read_twice(
    kafka_three: Cluster, topic: str, name: str, record_property: Callable[[str, object], None]
) -> None:
    address = parse_address(kafka_three.address(topic))
    ensure_topic(address, 1)
    readers = [
        Reader(replace(address, kafka=KafkaSettings(client="kafka-python")), "kafka-python"),
        Reader(replace(address, kafka=KafkaSettings(client="confluent")), "confluent"),
    ]
    with Scene(kafka_three, address, readers, seed=1) as scene:
        scene.strike(name, FAULTS[name])
    for row in scene.rows():
        print(row)
        assert (row.lost, row.repeated) == (0, 0), row
