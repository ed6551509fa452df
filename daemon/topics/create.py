"""Creating the topics that are missing, and only those."""

from __future__ import annotations

from dataclasses import replace

from daemon.config import Config
from daemon.exits import EX_CONFIG, EX_USAGE, UserError
from daemon.topics.look import TopicLook, TopicPlan, Wanted, look_at_topics, topics_of
from streams.open import create_topic


def create_missing(config: Config, replicas: int | None, dry_run: bool) -> tuple[list[str], list[TopicLook]]:
    """Names of the topics made now (in a dry run: that would be made), and all topics as they then are.

    `replicas` None is three, or as many as there are brokers. Raises UserError, StreamRefused or
    StreamUnavailable; topics made before that stay, and the next call goes on.
    """
    wanted = topics_of(config)
    address = wanted[0].address
    if replicas is not None and address.scheme != "kafka":
        raise UserError(f"{address} has no replicas", "leave --replication out", EX_USAGE)
    if address.scheme == "kafka":
        _look_ahead(config, replicas)
    before = look_at_topics(config)
    missing = [one.topic for one in before if not one.exists]
    wanted = [replace(one, limits=replace(one.limits, replicas=replicas)) for one in wanted]
    if dry_run and missing:
        return missing, _planned(before, wanted)
    if not missing:
        return [], before
    created = [
        one.address.topic
        for one in wanted
        if one.address.topic in missing and create_topic(one.address, one.partitions, one.limits).created
    ]
    return created, look_at_topics(config)


def _planned(before: list[TopicLook], wanted: list[Wanted]) -> list[TopicLook]:
    """The topics as they are, the missing ones with what they would be made with."""
    address = wanted[0].address
    if address.scheme != "kafka":
        plans = {one.address.topic: TopicPlan(one.partitions) for one in wanted}
    else:
        from streams.kafka.topics import cluster_of, copies_on

        copies = wanted[0].limits.replicas or copies_on(cluster_of(address)[1])
        plans = {one.address.topic: _plan(one, copies) for one in wanted}
    return [one if one.exists else replace(one, plan=plans[one.topic]) for one in before]


def _plan(one: Wanted, copies: int) -> TopicPlan:
    from streams.kafka.topics import safe_settings

    limits, dead = one.limits, one.address.topic.endswith(".dead")
    kept = (limits.max_age_s, limits.max_bytes, one.partitions)
    return TopicPlan(one.partitions, copies, safe_settings(dead, copies, *kept, compacted=limits.compacted))


def _look_ahead(config: Config, replicas: int | None) -> None:
    from streams.kafka.preflight import preflight
    from streams.kafka.topics import cluster_of

    address = config.stream.to_address()
    preflight(address, "create")
    if replicas is not None and replicas > (brokers := cluster_of(address)[1]):
        raise UserError(
            f"{address}: {replicas} replicas on {brokers} broker(s)",
            f"each copy needs a broker of its own: use --replication {brokers}, or add brokers",
            EX_CONFIG,
        )
