"""Whether a topic is there and may be used as wanted, read from a broker's answers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from kafka.protocol.admin import CreateTopicsRequest
from kafka.protocol.metadata import MetadataRequest

from streams.errors import StreamError, StreamRefused, StreamUnavailable, TopicMissing
from streams.kafka.settings import KafkaSettings

Need = Literal["read", "write", "create"]
_BITS: dict[Need, int] = {"read": 3, "write": 4}  # of Kafka's AclOperation
_UNKNOWN_TOPIC, _TOPIC_DENIED, _CLUSTER_DENIED = 3, 29, 31  # Kafka's error codes
_METADATA, _METADATA_VERSION = 3, 8
_UNTOLD = 31  # the only bit set by a broker that does not tell what is permitted


def metadata_request(topic: str, versions: dict[int, int]) -> Any:
    """Asks for one topic and what we may do with it."""
    return MetadataRequest(
        version=min(_METADATA_VERSION, versions.get(_METADATA, _METADATA_VERSION)),
        topics=[MetadataRequest.MetadataRequestTopic(name=topic)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )


def trial_creation(topic: str) -> Any:
    """Asks whether the topic could be created, without creating it."""
    return CreateTopicsRequest(
        version=4,
        topics=[
            CreateTopicsRequest.CreatableTopic(
                name=topic, num_partitions=1, replication_factor=-1, assignments=[], configs=[]
            )
        ],
        timeout_ms=1000,
        validate_only=True,
    )


def topic_fault(
    metadata: Any, topic: str, settings: KafkaSettings, needs: Collection[Need]
) -> StreamError | None:
    """What stands against using the topic, or None. A missing topic is none where it is to be created."""
    found = metadata.topics[0]
    if found.error_code in (_UNKNOWN_TOPIC, _TOPIC_DENIED) and "create" in needs:
        return None
    if found.error_code == _UNKNOWN_TOPIC:
        return TopicMissing(
            f"there is no topic {topic!r}: create it with `tripletd topics create`, or correct the address"
        )
    if found.error_code == _TOPIC_DENIED:
        return _denied(settings, "DESCRIBE", topic)
    permitted: set[int] = found.authorized_operations or {_UNTOLD}
    for need in ("read", "write"):
        if need in needs and not permitted & {_BITS[need], _UNTOLD}:
            return _denied(settings, need.upper(), topic)
    return None


def creation_fault(answer: Any, topic: str, settings: KafkaSettings) -> StreamError | None:
    """What stands against creating the topic, or None; that it is there already does not."""
    code = answer.topics[0].error_code
    return _denied(settings, "CREATE", topic) if code in (_TOPIC_DENIED, _CLUSTER_DENIED) else None


def advertised(metadata: Any) -> list[tuple[str, int]]:
    """Where the cluster tells its clients to go; raises StreamUnavailable when it has no broker."""
    places = [(broker.host, broker.port) for broker in metadata.brokers]
    if not places:
        raise StreamUnavailable("the cluster has no broker that serves: wait, or look at its logs")
    return places


def _denied(settings: KafkaSettings, operation: str, topic: str) -> StreamRefused:
    who = f"the user {settings.sasl_username!r}" if settings.sasl_username else "this client"
    principal = f"User:{settings.sasl_username}" if settings.sasl_username else "User:<its name>"
    return StreamRefused(
        f"{who} may not {operation} the topic {topic!r}: permit it, as with kafka-acls --add "
        f"--allow-principal {principal} --operation {operation.capitalize()} --topic {topic}"
    )
