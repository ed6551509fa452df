"""Topics of a Kafka cluster: creating with safe settings, finding, removing."""

from __future__ import annotations

from streams.address import Address
from streams.source import TopicIdentity


def ensure_topic(
    address: Address, partitions: int, max_age_s: float | None = None, max_bytes: int | None = None
) -> tuple[TopicIdentity, bool]:
    """The topic, created unless it exists, and whether it was; another partition count is LogMismatch."""
    raise NotImplementedError


def find_topic(address: Address) -> TopicIdentity:
    """The topic of that name; raises TopicMissing naming the command that creates it."""
    raise NotImplementedError


def delete_topic(address: Address) -> None:
    """Remove a topic and all its records; raises TopicMissing when there is none."""
    raise NotImplementedError
