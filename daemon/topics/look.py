"""Each topic of a stream as it is, with what is wrong with it."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

from daemon.config import Config
from daemon.exits import EX_USAGE, UserError
from daemon.topics.differences import Difference, altering, copy_differences, setting_differences
from streams.address import Address
from streams.errors import TopicMissing
from streams.open import open_source


@dataclass(frozen=True, slots=True)
class TopicLook:
    """One topic; only its name where it is missing. An embedded log has no copies and no settings.

    `cluster`: id of the log or cluster. `replicas`, `in_sync`: copies of the partition with the fewest.
    `settings`: None where the broker does not tell us. `remedy`: the command that mends the differences.
    """

    topic: str
    exists: bool
    cluster: str = ""
    partitions: int = 0
    records: int = 0
    brokers: int | None = None
    replicas: int | None = None
    in_sync: int | None = None
    settings: dict[str, str] | None = None
    differences: list[Difference] = field(default_factory=list)
    remedy: str = ""

    @property
    def unsafe(self) -> bool:
        """Whether records can be lost, or fill the memory."""
        return any(one.unsafe for one in self.differences)


def topics_of(config: Config) -> list[tuple[Address, int]]:
    """Training, holdout and dead letters, each with the partitions it is to have. UserError for `memory:`."""
    address = config.stream.to_address()
    if address.scheme == "memory":
        message = f"{address} lives inside one process: it has no topics to look at from outside"
        raise UserError(message, "give a log: or kafka:// address", EX_USAGE)
    partitions = config.stream.partitions
    return [(address, partitions), (address.holdout, partitions), (address.dead, 1)]


def look_at_topics(config: Config) -> list[TopicLook]:
    """Every topic of the stream; raises StreamRefused or StreamUnavailable."""
    wanted = topics_of(config)
    if wanted[0][0].scheme == "kafka":
        from streams.kafka.preflight import preflight

        with suppress(TopicMissing):
            preflight(wanted[0][0])
    return [_look(address, partitions, config) for address, partitions in wanted]


def _look(address: Address, partitions: int, config: Config) -> TopicLook:
    try:
        found = _on_broker(address, config) if address.scheme == "kafka" else _embedded(address)
    except TopicMissing:
        return TopicLook(address.topic, exists=False)
    is_dead = address == config.stream.to_address().dead
    differences = list(found["differences"])
    asked_for = config.origin_of("stream.partitions") != "default" and not is_dead
    if asked_for and found["partitions"] != partitions:
        differences.insert(0, _other_partitions(found["partitions"], partitions))
    remedy = altering(address.path, address.topic, differences)
    return TopicLook(address.topic, **{**found, "differences": differences}, exists=True, remedy=remedy)


def _other_partitions(found: int, wanted: int) -> Difference:
    why = f"fixed once the topic is there; set stream.partitions = {found}, or use another topic"
    return Difference("partitions", str(found), str(wanted), why, unsafe=True, can_alter=False)


def _embedded(address: Address) -> dict[str, Any]:
    with closing(open_source(address)) as source:
        identity, bounds = source.identity(), source.bounds()
    records = sum(end - earliest for earliest, end in bounds.values())
    return {
        "cluster": identity.log_id,
        "partitions": identity.partitions,
        "records": records,
        "differences": [],
    }


def _on_broker(address: Address, config: Config) -> dict[str, Any]:
    from streams.kafka.inspect import inspect_topic, wanted_settings

    state = inspect_topic(address)
    limits = (config.stream.retention_s, config.stream.retention_size)
    wanted = wanted_settings(state, address == config.stream.to_address().dead, *limits)
    differences = copy_differences(state.brokers, state.replicas, state.in_sync)
    return {
        "cluster": state.identity.log_id,
        "partitions": state.identity.partitions,
        "records": sum(end - earliest for earliest, end in state.bounds.values()),
        "brokers": state.brokers,
        "replicas": state.replicas,
        "in_sync": state.in_sync,
        "settings": None if state.settings is None else dict(state.settings),
        "differences": differences + setting_differences(state.settings or {}, wanted),
    }
