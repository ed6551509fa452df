"""Creating the topics that are missing, and only those."""

from __future__ import annotations

from dataclasses import replace

from daemon.config import Config
from daemon.exits import EX_CONFIG, EX_USAGE, UserError
from daemon.topics.look import TopicLook, TopicPlan, look_at_topics, topics_of
from streams.address import Address
from streams.open import TopicLimits, create_topic


def create_missing(config: Config, replicas: int | None, dry_run: bool) -> tuple[list[str], list[TopicLook]]:
    """Names of the topics made now (in a dry run: that would be made), and all topics as they then are.

    `replicas` None is three, or as many as there are brokers. Raises UserError, StreamRefused or
    StreamUnavailable; topics made before that stay, and the next call goes on.
    """
    wanted = topics_of(config)
    address = wanted[0][0]
    if replicas is not None and address.scheme != "kafka":
        raise UserError(f"{address} has no replicas", "leave --replication out", EX_USAGE)
    if address.scheme == "kafka":
        _look_ahead(config, replicas)
    before = look_at_topics(config)
    missing = [one.topic for one in before if not one.exists]
    limits = TopicLimits(config.stream.retention_s, config.stream.retention_size, replicas)
    if dry_run and missing:
        return missing, _planned(before, wanted, limits)
    if not missing:
        return [], before
    created = [
        topic.topic
        for topic, partitions in wanted
        if topic.topic in missing and create_topic(topic, partitions, limits).created
    ]
    return created, look_at_topics(config)


def _planned(
    before: list[TopicLook], wanted: list[tuple[Address, int]], limits: TopicLimits
) -> list[TopicLook]:
    """The topics as they are, the missing ones with what they would be made with."""
    address = wanted[0][0]
    if address.scheme != "kafka":
        plans = {topic.topic: TopicPlan(partitions) for topic, partitions in wanted}
    else:
        from streams.kafka.inspect import cluster_of
        from streams.kafka.topics import copies_on, safe_settings

        copies = limits.replicas or copies_on(cluster_of(address)[1])
        kept = (limits.max_age_s, limits.max_bytes)
        plans = {
            topic.topic: TopicPlan(
                partitions, copies, safe_settings(topic == address.dead, copies, *kept, partitions)
            )
            for topic, partitions in wanted
        }
    return [one if one.exists else replace(one, plan=plans[one.topic]) for one in before]


def _look_ahead(config: Config, replicas: int | None) -> None:
    from streams.kafka.inspect import cluster_of
    from streams.kafka.preflight import preflight

    address = config.stream.to_address()
    preflight(address, "create")
    if replicas is not None and replicas > (brokers := cluster_of(address)[1]):
        raise UserError(
            f"{address}: {replicas} replicas on {brokers} broker(s)",
            f"each copy needs a broker of its own: use --replication {brokers}, or add brokers",
            EX_CONFIG,
        )
