"""What an operator does to a cluster: topics, leaders, records, permissions."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

from tests.harness.kafka.cluster import Cluster
from tests.harness.waiting import until

SETTLE_SECONDS = 60.0
_numbers = itertools.count()


def fresh_topic(prefix: str = "clicks") -> str:
    """A topic name that nobody else has."""
    return f"{prefix}-{os.getpid()}-{next(_numbers)}-{os.urandom(3).hex()}"


def create_topic(
    cluster: Cluster,
    topic: str,
    partitions: int = 1,
    *,
    replicas: Sequence[int] | None = None,
    configs: Mapping[str, str] | None = None,
) -> None:
    """Create a topic and wait until every partition has a leader; `replicas` name its nodes, leader first."""
    wanted: dict[str, object] = {"configs": dict(configs or {})}
    if replicas is None:
        wanted |= {"num_partitions": partitions, "replication_factor": min(3, len(cluster.nodes))}
    else:
        wanted["assignments"] = {partition: list(replicas) for partition in range(partitions)}
    with cluster.admin() as admin:
        admin.create_topics({topic: wanted}, wait_for_metadata=True)


def add_partitions(cluster: Cluster, topic: str, count: int) -> None:
    """Let a topic have `count` partitions from now on, each with a leader."""
    with cluster.admin() as admin:
        admin.create_partitions({topic: count})

    def led() -> bool:
        with cluster.admin() as admin:
            found = admin.describe_topics([topic])[0]["partitions"]
        return len(found) == count and all(one["leader_id"] >= 0 for one in found)

    _settle(led, f"{topic} to have {count} partitions")


def set_topic(cluster: Cluster, topic: str, **configs: str) -> None:
    """Change settings of a topic (`_` for `.` in their names) and wait until its log goes by them.

    A broker shows a setting a moment before its log hears of it; by the time that it shows one which was
    changed afterwards, the log has heard.
    """
    wanted = {name.replace("_", "."): value for name, value in configs.items()}
    afterwards = {"delete.retention.ms": str(86_400_000 + next(_numbers))}  # of topics that are compacted
    with cluster.admin() as admin:
        for change in (wanted, afterwards):
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=change)])
            _settle(
                lambda change=change: change.items() <= _settings(admin, topic).items(),
                f"{topic} to be set to {change}",
            )


def _settings(admin: KafkaAdminClient, topic: str) -> dict[str, str]:
    asked = [ConfigResource(ConfigResourceType.TOPIC, topic)]
    found = admin.describe_configs(asked, config_filter="all")["topic"][topic]
    return {name: one["value"] for name, one in found.items()}


def delete_topic(cluster: Cluster, topic: str) -> None:
    """Delete a topic and wait until no node shows it."""
    with cluster.admin() as admin:
        admin.delete_topics([topic])
        _settle(lambda: topic not in admin.list_topics(), f"{topic} to be gone")


def delete_records(cluster: Cluster, topic: str, before: int, partition: int = 0) -> None:
    """Remove the records below an offset, as retention does."""
    with cluster.admin() as admin:
        admin.delete_records({TopicPartition(topic, partition): before})


def leader_of(cluster: Cluster, topic: str, partition: int = 0) -> int:
    """The node that leads a partition now; -1 when none does."""
    return int(_partition(cluster, topic, partition)["leader_id"])


def in_sync(cluster: Cluster, topic: str, partition: int = 0) -> set[int]:
    """The nodes that have everything of a partition."""
    return set(_partition(cluster, topic, partition)["isr_nodes"])


def await_leader(cluster: Cluster, topic: str, wanted: int, partition: int = 0) -> None:
    """Wait until that node leads the partition."""
    _settle(lambda: leader_of(cluster, topic, partition) == wanted, f"node {wanted} to lead {topic}")


def await_in_sync(cluster: Cluster, topic: str, wanted: set[int], partition: int = 0) -> None:
    """Wait until exactly these nodes are in sync."""
    _settle(lambda: in_sync(cluster, topic, partition) == wanted, f"{wanted} to be in sync for {topic}")


def move_leader(cluster: Cluster, topic: str, to: int, partition: int = 0) -> None:
    """Give the leadership of a partition to another of its replicas."""
    others = [node for node in _partition(cluster, topic, partition)["replica_nodes"] if node != to]
    with cluster.admin() as admin:
        place = TopicPartition(topic, partition)
        assert admin.alter_partition_reassignments({place: [to, *others]})[place] is None
        admin.elect_leaders(0, {topic: [partition]})
    await_leader(cluster, topic, to, partition)


def elect_unclean(cluster: Cluster, topic: str, partition: int = 0) -> None:
    """Let a replica lead that may lack records: the operator's last resort."""
    with cluster.admin() as admin:
        admin.elect_leaders(1, {topic: [partition]})
    _settle(lambda: leader_of(cluster, topic, partition) >= 0, f"{topic} to have a leader")


def _partition(cluster: Cluster, topic: str, partition: int) -> dict[str, object]:
    with cluster.admin() as admin:
        found = admin.describe_topics([topic])[0]["partitions"]
    return next(one for one in found if one["partition_index"] == partition)


def _settle(what: Callable[[], bool], name: str) -> None:
    """Wait for a condition while nodes come and go; the deadline only keeps a broken test from hanging."""

    def settled() -> bool:
        try:
            return what()
        except KafkaError:
            return False

    until(settled, name, SETTLE_SECONDS)
