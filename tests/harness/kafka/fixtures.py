"""Fixtures for tests on a real Kafka; `tests/conftest.py` makes them visible to all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.control import fresh_topic
from tests.harness.kafka.missing import KafkaMissing
from tests.harness.kafka.secured import Secured

ONE_AT_A_TIME = pytest.mark.xdist_group("kafka-cluster")
"""For modules that start clusters of their own: one worker runs them, one after the other."""
OWN_NODE = pytest.mark.xdist_group("kafka-node")
"""For modules that start one node to freeze or kill it, which is mostly waiting: another worker runs them."""

_LARGE = {"kafka_three", "kafka_secured"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on a larger cluster run one at a time, wherever they are."""
    for item in items:
        if _LARGE & set(getattr(item, "fixturenames", ())):
            item.add_marker(ONE_AT_A_TIME)


def start_or_skip(cluster: Cluster) -> Cluster:
    """Start it; where no broker can run, skip with what to install (in CI the skip is a failure)."""
    try:
        return cluster.start()
    except KafkaMissing as problem:
        pytest.skip(f"no Kafka: {problem}")


@pytest.fixture(scope="session")
def kafka() -> Iterator[Cluster]:
    """One node, shared by the tests of a worker: never stop it, and use topics of your own."""
    cluster = start_or_skip(Cluster())
    yield cluster
    cluster.stop()


@pytest.fixture
def topic() -> str:
    """A topic name that nobody else has; nothing is created."""
    return fresh_topic()


@pytest.fixture(scope="module")
def kafka_three() -> Iterator[Cluster]:
    """Three nodes of this module's own, to be killed and frozen."""
    cluster = start_or_skip(Cluster(3))
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def kafka_secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """One node behind TLS, SCRAM and permissions: use topics of your own, and permit nothing on others."""
    secured = Secured(tmp_path_factory.mktemp("secured"))
    start_or_skip(secured.cluster)
    yield secured
    secured.cluster.stop()
