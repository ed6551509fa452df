"""A broker that crash tests kill."""

from __future__ import annotations

from tests.harness.kafka.cluster import Cluster


class OneNode:
    """The only node of a cluster of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._node = cluster.nodes[1]

    def kill(self) -> None:
        """SIGKILL; its data stay."""
        self._node.kill()

    def revive(self) -> None:
        """Start it again on its data and wait until it serves."""
        self._node.start()
        self._cluster.wait_ready()
