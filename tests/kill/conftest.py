"""What the crash tests share: streams of both kinds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.control import fresh_topic
from tests.harness.kill.site import embedded

StreamIn = Callable[[Path], str]
"""Gives the address of a new stream for a test's folder."""


@pytest.fixture
def kafka_in(kafka: Cluster) -> StreamIn:
    """New topics on a real Kafka."""
    return lambda _: kafka.address(fresh_topic())


@pytest.fixture(params=["log", "kafka"])
def stream_in(request: pytest.FixtureRequest) -> StreamIn:
    """The embedded log, and a real Kafka."""
    return embedded if request.param == "log" else request.getfixturevalue("kafka_in")
