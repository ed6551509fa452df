"""confluent-kafka without a broker: it says so, and the process ends whatever became of the broker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streams.errors import StreamUnavailable
from streams.kafka.clients.confluent import ConfluentProducer
from streams.kafka.clients.confluent_consumer import ConfluentConsumer
from streams.source import Address, KafkaSettings, OutRecord, parse_address
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.control import create_topic
from tests.harness.kafka.fixtures import OWN_NODE


def test_without_a_broker_it_says_so() -> None:
    address = parse_address("kafka://127.0.0.1:1/clicks")
    client = ConfluentConsumer(address)
    client.assign({0: 0})
    with pytest.raises(StreamUnavailable, match="no broker can be reached"):
        all(client.poll(10, 0.2) == [] for _ in range(100))
    client.close()
    producer = ConfluentProducer(Address("kafka", address.path, "clicks", KafkaSettings(timeout_s=1.0)))
    with pytest.raises(StreamUnavailable):
        producer.send([(0, OutRecord(b"x"))])
    producer.close()


_CHILD = """
import sys
from streams.source import parse_address
from streams.kafka.clients.confluent_consumer import ConfluentConsumer
from streams.kafka.clients.confluent import ConfluentProducer
from streams.errors import LogMismatch, StreamUnavailable
from streams.kafka.admin import Admin
from streams.source import OutRecord
address, how = parse_address(sys.argv[1]), sys.argv[2]
consumer, producer = ConfluentConsumer(address), ConfluentProducer(address)
consumer.assign({0: 0})
producer.send([(0, OutRecord(b"x"))])
while not consumer.poll(10, 0.2):
    pass
print("ready", flush=True)
sys.stdin.readline()
producer._timeout_s = 0.5
try:
    producer.send([(0, OutRecord(b"y"))])
except StreamUnavailable:
    print("in doubt")
if how == "close":
    consumer.close()
    producer.close()
"""


@OWN_NODE
@pytest.mark.parametrize("fault", ["freeze", "kill"])
def test_a_process_ends_whatever_became_of_its_broker(fault: str, kafka_node: Cluster, topic: str) -> None:
    create_topic(kafka_node, topic)
    children = [
        subprocess.Popen(
            [sys.executable, "-c", _CHILD, kafka_node.address(topic), how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        )
        for how in ("close", "leave")
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        getattr(kafka_node.nodes[1], fault)()
        for child in children:
            said, complaints = child.communicate("\n", timeout=60)
            assert (child.returncode, said, complaints) == (0, "in doubt\n", "")
    finally:
        for child in children:
            child.kill()
