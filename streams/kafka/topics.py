"""Topics of a Kafka cluster: creating with safe settings, finding, and what the cluster says of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import AuthorizationError, TopicAlreadyExistsError, UnknownTopicOrPartitionError

from streams.errors import LogMismatch, StreamUnavailable, TopicMissing
from streams.kafka.admin import Admin
from streams.kafka.connect import milliseconds
from streams.kafka.preflight import preflight
from streams.partitions import Bounds, TopicLimits
from streams.source import Address, HeldBack, TopicIdentity

MAX_MESSAGE_BYTES = 2 * 1024 * 1024
"""The largest batch that the training and holdout topics take: a record of 1 MiB, with room to spare."""

DEAD_MESSAGE_BYTES = 2 * MAX_MESSAGE_BYTES
"""A dead letter holds the whole record it is about."""

_REPLICAS = 3
_ANY_TIME = str(2**63 - 1)
_SETTLE_S = 0.05


def safe_settings(dead: bool, replicas: int, limits: TopicLimits, partitions: int) -> dict[str, str]:
    """The settings of a new topic with so many replicas; `max_bytes` is for all partitions together.

    A compacted topic has no limit of age or size: it keeps the newest record of every key.

    Uncompressed with a limit on size: the broker refuses a small compressed batch that would fill a reader's
    memory. No replica that lacks records may lead. The broker says when a record came, whatever the clock of
    its producer: its retention goes by that, and so does the bound on event times.
    """
    max_age_s, max_bytes = (None, None) if limits.compacted else (limits.max_age_s, limits.max_bytes)
    per_partition = -1 if max_bytes is None else max(1, max_bytes // partitions)
    return {
        "cleanup.policy": "compact" if limits.compacted else "delete",
        "compression.type": "uncompressed",
        "max.message.bytes": str(DEAD_MESSAGE_BYTES if dead else MAX_MESSAGE_BYTES),
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.before.max.ms": _ANY_TIME,
        "message.timestamp.after.max.ms": _ANY_TIME,
        "min.insync.replicas": str(max(1, replicas - 1)),
        "retention.bytes": str(per_partition),
        "retention.ms": str(-1 if max_age_s is None else milliseconds(max_age_s)),
        "unclean.leader.election.enable": "false",
    }


def copies_on(brokers: int) -> int:
    """Replicas of a new topic where none are asked for: three, or one per broker."""
    return min(_REPLICAS, brokers)


def ensure_topic(address: Address, partitions: int, limits: TopicLimits) -> tuple[TopicIdentity, bool]:
    """The topic, created unless it exists, and whether it was; another partition count is LogMismatch."""
    with closing(Admin(address)) as admin:
        created = False
        try:
            found = admin.identity()
        except TopicMissing:
            created = _create(admin, address, partitions, limits)
            found = _await_topic(admin, address)
    if found.partitions != partitions:
        raise LogMismatch(
            f"{address}: the topic has {found.partitions} partitions, not {partitions}; change the setting, "
            "or use another topic"
        )
    return found, created


def find_topic(address: Address) -> TopicIdentity:
    """The topic of that name; raises TopicMissing naming the command that creates it."""
    with closing(Admin(address)) as admin:
        return admin.identity()


def _create(admin: Admin, address: Address, partitions: int, limits: TopicLimits) -> bool:
    """Create it, with the settings for as many copies; False when somebody else was faster."""

    def create(client: Any) -> bool:
        copies = limits.replicas or copies_on(len(client.describe_cluster()["brokers"]))
        settings = safe_settings(address.topic.endswith(".dead"), copies, limits, partitions)
        wanted = {"num_partitions": partitions, "replication_factor": copies, "configs": settings}
        try:
            client.create_topics({address.topic: wanted}, timeout_ms=milliseconds(address.settings.timeout_s))
        except TopicAlreadyExistsError:
            return False
        return True

    return admin.call(create)


def _await_topic(admin: Admin, address: Address) -> TopicIdentity:
    deadline = time.monotonic() + address.settings.timeout_s
    while True:
        try:
            found = admin.identity()
            admin.bounds(found.partitions)
            return found
        except (TopicMissing, UnknownTopicOrPartitionError):
            _pause(deadline, f"{address}: created, but no broker leads it yet; ask again a little later")


def _pause(deadline: float, otherwise: str) -> None:
    if time.monotonic() + _SETTLE_S >= deadline:
        raise StreamUnavailable(otherwise)
    time.sleep(_SETTLE_S)


WATCHED = tuple(safe_settings(False, 1, TopicLimits(), 1))


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
    held_back: Mapping[int, HeldBack]


def inspect_topic(address: Address) -> TopicState:
    """Ask for it; raises TopicMissing, StreamRefused or StreamUnavailable."""
    with closing(Admin(address)) as admin:
        identity = admin.identity()
        bounds, held_back = admin.bounds(identity.partitions), admin.held_back(identity.partitions)
        brokers, replicas, in_sync = admin.call(lambda client: _copies(client, address.topic))
        settings = admin.call(lambda client: _settings(client, address.topic))
    return TopicState(identity, bounds, brokers, replicas, in_sync, settings, held_back)


def cluster_of(address: Address) -> tuple[str, int]:
    """Id of the cluster and how many brokers it has; raises StreamRefused or StreamUnavailable."""
    with suppress(TopicMissing):
        preflight(address)
    with closing(Admin(address)) as admin:
        found = admin.call(lambda client: client.describe_cluster())
    return found["cluster_id"], len(found["brokers"])


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
