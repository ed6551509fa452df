"""Creating the topics that are missing, and only those."""

from __future__ import annotations

from daemon.config import Config
from daemon.exits import EX_CONFIG, EX_USAGE, UserError
from daemon.topics.look import TopicLook, look_at_topics, topics_of
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
    if dry_run or not missing:
        return missing, before
    limits = TopicLimits(config.stream.retention_s, config.stream.retention_size, replicas)
    created = [
        topic.topic
        for topic, partitions in wanted
        if topic.topic in missing and create_topic(topic, partitions, limits).created
    ]
    return created, look_at_topics(config)


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
