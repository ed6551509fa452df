"""Fixtures for tests on a real Kafka; `tests/conftest.py` makes them visible to all tests.

A broker that nobody uses takes two or three hundredths of a core: the one that all tests of a worker share is
frozen until a module asks for it, and those of a group of tests are stopped when the group is over.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.control import fresh_topic
from tests.harness.kafka.missing import KafkaMissing
from tests.harness.kafka.secured import Secured

ONE_AT_A_TIME = pytest.mark.xdist_group("kafka-cluster")
"""For modules that start clusters of their own: one worker runs them, one after the other."""
OWN_NODE = pytest.mark.xdist_group("kafka-node")
"""For tests with `kafka_node`, which is mostly waiting: another worker runs them."""

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


_of_the_group: list[Cluster] = []
"""Those that the group of tests that is running has started."""


def of_the_group(cluster: Cluster) -> Cluster:
    """Start it unless it runs; it is stopped when the tests of this group are over."""
    if not cluster.nodes:
        start_or_skip(cluster)
        _of_the_group.append(cluster)
    return cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Stop what the group has started after its last test."""
    yield
    if nextitem is None or _group(nextitem) != _group(item):
        while _of_the_group:
            _of_the_group.pop().stop()


def _group(item: pytest.Item) -> object:
    found = item.get_closest_marker("xdist_group")
    return found.args[0] if found is not None else None


SETTLED_SECONDS = 3.0
"""After a thaw, until the controller has seen who was silent for too long: it looks every 1.1 s, and for a
moment the brokers that it finds serve nobody."""


def mend(cluster: Cluster, settled_seconds: float = SETTLED_SECONDS) -> None:
    """Thaw or start every node, and wait until all serve, and go on serving."""
    for node in cluster.nodes.values():
        if node.running:
            node.thaw()
        else:
            node.start()
    cluster.wait_ready()
    last = max(node.thawed_at for node in cluster.nodes.values())
    time.sleep(max(0.0, last + settled_seconds - time.monotonic()))
    cluster.wait_ready()


@pytest.fixture(scope="session")
def shared_node() -> Iterator[Cluster]:
    """The node behind `kafka`. Its controller does not take it for dead while it is frozen."""
    cluster = start_or_skip(Cluster(extra={"broker.session.timeout.ms": str(24 * 3600 * 1000)}))
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def kafka(shared_node: Cluster) -> Iterator[Cluster]:
    """One node, shared by the tests of a worker: never stop it, and use topics of your own."""
    mend(shared_node, settled_seconds=0)
    yield shared_node
    shared_node.nodes[1].freeze()


@pytest.fixture
def topic() -> str:
    """A topic name that nobody else has; nothing is created."""
    return fresh_topic()


@pytest.fixture(scope="session")
def node_to_break() -> Cluster:
    """The node behind `kafka_node`, not started."""
    return Cluster()


@pytest.fixture
def kafka_node(node_to_break: Cluster) -> Iterator[Cluster]:
    """One node, to be killed and frozen, for tests marked OWN_NODE: use topics of your own. It serves again
    after each.
    """
    yield of_the_group(node_to_break)
    mend(node_to_break)


@pytest.fixture(scope="session")
def nodes_to_break() -> Cluster:
    """The nodes behind `kafka_three`, not started."""
    return Cluster(3)


@pytest.fixture(scope="module")
def kafka_three(nodes_to_break: Cluster) -> Iterator[Cluster]:
    """Three nodes, to be killed and frozen: use topics of your own. All serve again after the module."""
    yield of_the_group(nodes_to_break)
    mend(nodes_to_break)


@pytest.fixture(scope="session")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    """What is behind `kafka_secured`, not started."""
    return Secured(tmp_path_factory.mktemp("secured"))


@pytest.fixture(scope="module")
def kafka_secured(doors: Secured) -> Secured:
    """One node behind TLS, SCRAM and permissions: use topics of your own, and permit nothing on others."""
    of_the_group(doors.cluster)
    return doors
