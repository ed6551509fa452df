"""What can happen to brokers: each fault strikes on entering its context and is healed on leaving it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.control import await_in_sync, leader_of, move_leader

Fault = Callable[[Cluster, str], AbstractContextManager[None]]


@contextmanager
def killed_leader(cluster: Cluster, topic: str) -> Iterator[None]:
    """The leader crashes, and comes back later."""
    node = cluster.nodes[leader_of(cluster, topic)]
    node.kill()
    yield
    node.start()
    _whole(cluster, topic)


@contextmanager
def frozen_leader(cluster: Cluster, topic: str) -> Iterator[None]:
    """The leader hangs with all its connections open, and goes on later."""
    node = cluster.nodes[leader_of(cluster, topic)]
    node.freeze()
    yield
    node.thaw()
    _whole(cluster, topic)


@contextmanager
def moved_leader(cluster: Cluster, topic: str) -> Iterator[None]:
    """Another node takes over in order."""
    now = leader_of(cluster, topic)
    move_leader(cluster, topic, next(number for number in cluster.nodes if number != now))
    yield


@contextmanager
def restarted_leader(cluster: Cluster, topic: str) -> Iterator[None]:
    """The leader leaves in order, and comes back."""
    node = cluster.nodes[leader_of(cluster, topic)]
    node.stop()
    node.start()
    _whole(cluster, topic)
    yield


@contextmanager
def rolling_restart(cluster: Cluster, topic: str) -> Iterator[None]:
    """Every node leaves in order and comes back, one after the other."""
    for node in cluster.nodes.values():
        node.stop()
        node.start()
        _whole(cluster, topic)
    yield


def silence(seconds: float) -> Fault:
    """Every node hangs for that long, and not a byte comes."""

    @contextmanager
    def all_silent(cluster: Cluster, topic: str) -> Iterator[None]:
        for node in cluster.nodes.values():
            node.freeze()
        time.sleep(seconds)
        for node in cluster.nodes.values():
            node.thaw()
        _whole(cluster, topic)
        yield

    return all_silent


def _whole(cluster: Cluster, topic: str) -> None:
    cluster.wait_ready()
    await_in_sync(cluster, topic, set(cluster.nodes))
