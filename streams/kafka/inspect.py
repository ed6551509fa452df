"""What a cluster says of a topic, beside the safe settings: for people, not for the reading and writing."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import AuthorizationError

from streams.address import Address
from streams.errors import TopicMissing
from streams.kafka.admin import Admin
from streams.kafka.preflight import preflight
from streams.kafka.topics import safe_settings
from streams.placing import Bounds
from streams.source import TopicIdentity

WATCHED = (
    "cleanup.policy",
    "compression.type",
    "max.message.bytes",
    "message.timestamp.type",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    "min.insync.replicas",
    "retention.bytes",
    "retention.ms",
    "unclean.leader.election.enable",
)


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as its cluster knows it. `replicas` and `in_sync`: of the partition with the fewest.

    `settings`: those of WATCHED that are in force, wherever they were set; None where we may not ask.
    """

    identity: TopicIdentity
    bounds: Bounds
    brokers: int
    replicas: int
    in_sync: int
    settings: Mapping[str, str] | None


def inspect_topic(address: Address) -> TopicState:
    """Ask for it; raises TopicMissing, StreamRefused or StreamUnavailable."""
    with closing(Admin(address)) as admin:
        identity = admin.identity()
        bounds = admin.bounds(identity.partitions)
        brokers, replicas, in_sync = admin.call(lambda client: _copies(client, address.topic))
        settings = admin.call(lambda client: _settings(client, address.topic))
    return TopicState(identity, bounds, brokers, replicas, in_sync, settings)


def cluster_of(address: Address) -> tuple[str, int]:
    """Id of the cluster and how many brokers it has; raises StreamRefused or StreamUnavailable."""
    with suppress(TopicMissing):
        preflight(address)
    with closing(Admin(address)) as admin:
        found = admin.call(lambda client: client.describe_cluster())
    return found["cluster_id"], len(found["brokers"])


def wanted_settings(
    state: TopicState, dead: bool, max_age_s: float | None, max_bytes: int | None, compacted: bool = False
) -> dict[str, str]:
    """The safe settings for a topic with as many partitions and replicas as this one."""
    partitions = state.identity.partitions
    return safe_settings(dead, state.replicas, max_age_s, max_bytes, partitions, compacted=compacted)


def _copies(client: Any, topic: str) -> tuple[int, int, int]:
    """Brokers of the cluster; replicas and in-sync replicas of the partition with the fewest."""
    brokers = len(client.describe_cluster()["brokers"])
    (described,) = client.describe_topics([topic])
    partitions = described["partitions"]
    replicas = min(len(one["replica_nodes"]) for one in partitions)
    return brokers, replicas, min(len(one["isr_nodes"]) for one in partitions)


def _settings(client: Any, topic: str) -> dict[str, str] | None:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    try:
        found = client.describe_configs([resource], config_filter="all")["topic"][topic]
    except AuthorizationError:
        return None
    # without permission the answer is empty
    return {name: found[name]["value"] for name in WATCHED if name in found} or None
