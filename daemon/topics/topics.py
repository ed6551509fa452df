"""The five topics of a stream: how each is, what it should be, creating those that are missing, and
what `tripletd check` says of a broker and of each of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Literal

from daemon.config import Config
from daemon.exits import EX_CONFIG, EX_USAGE, CheckFinding, Grade, UserError
from daemon.topics.differences import (
    SettingDifference,
    altering,
    copy_differences,
    setting_differences,
    shown,
)
from streams.errors import StreamRefused, TopicMissing
from streams.kafka.preflight import preflight
from streams.kafka.topics import cluster_of, copies_on, inspect_topic, safe_settings
from streams.open import create_topic, open_source
from streams.partitions import TopicLimits, behind_transactions
from streams.source import Address, HeldBack


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What a missing topic would be made with. On the embedded log no `replicas` and no `settings`."""

    partitions: int
    replicas: int | None = None
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicLook:
    """One topic; only its name where it is missing. An embedded log has no copies and no settings.

    `cluster`: id of the log or cluster. `bounds`: [earliest, end) by partition. `replicas`, `in_sync`: copies
    of the partition with the fewest. `settings`: None where the broker does not tell us. `remedy`: the
    command that mends the differences. `plan`: of a missing topic, in a dry run of creating it. `held_back`:
    by partition, what nobody can read before somebody's transaction ends.
    """

    topic: str
    exists: bool
    cluster: str = ""
    bounds: dict[int, tuple[int, int]] = field(default_factory=dict)
    brokers: int | None = None
    replicas: int | None = None
    in_sync: int | None = None
    settings: dict[str, str] | None = None
    differences: list[SettingDifference] = field(default_factory=list)
    remedy: str = ""
    plan: TopicPlan | None = None
    held_back: dict[int, HeldBack] = field(default_factory=dict)

    @property
    def partitions(self) -> int:
        """How many there are."""
        return len(self.bounds)

    @property
    def records(self) -> int:
        """Offsets between the earliest and the end of every partition."""
        return sum(end - earliest for earliest, end in self.bounds.values())

    @property
    def unsafe(self) -> bool:
        """Whether records can be lost or fill the memory, or the topic is not what was asked for."""
        return any(one.unsafe for one in self.differences)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A topic of the stream. `as_configured`: stream.partitions says how many partitions it has."""

    address: Address
    partitions: int
    limits: TopicLimits
    as_configured: bool = False


def topics_of(config: Config) -> list[Wanted]:
    """Training, holdout, dead letters, applied steps, items, and what comes over HTTP where that goes to a
    topic: as they are to be. UserError for `memory:`."""
    address = config.stream.to_address()
    if address.scheme == "memory":
        message = f"{address} lives inside one process: it has no topics to look at from outside"
        raise UserError(message, "give a log: or kafka:// address", EX_USAGE)
    partitions = config.stream.partitions
    kept = TopicLimits(config.stream.retention, config.stream.retention_bytes)
    steps = TopicLimits(config.steps.retention, config.steps.retention_bytes)
    wanted = [
        Wanted(address, partitions, kept, as_configured=True),
        Wanted(address.holdout, partitions, kept, as_configured=True),
        Wanted(address.dead, 1, kept),
        Wanted(address.steps, 1, steps),
        Wanted(address.items, 1, TopicLimits(compacted=True)),
    ]
    writes = config.serve.writes
    if writes.enabled and not writes.folder and address.scheme == "kafka":
        wanted.append(Wanted(address.raw, partitions, kept))
    return wanted


def look_at_topics(config: Config) -> list[TopicLook]:
    """Every topic of the stream; raises StreamRefused or StreamUnavailable."""
    wanted = topics_of(config)
    if wanted[0].address.scheme == "kafka":
        with suppress(TopicMissing):
            preflight(wanted[0].address)
    return [look_at(one, config) for one in wanted]


def look_at(wanted: Wanted, config: Config) -> TopicLook:
    """One topic of the stream; raises StreamRefused or StreamUnavailable."""
    address = wanted.address
    try:
        found = _on_broker(wanted) if address.scheme == "kafka" else _embedded(address)
    except TopicMissing:
        return TopicLook(address.topic, exists=False)
    has, asked = found.partitions, config.stream.partitions
    # a file's number is for topics to be created; on a broker any other one does as well
    fixed_by = ("cli",) if address.scheme == "kafka" else ("cli", "env", "file")
    was_asked = config.origin_of("stream.partitions") in fixed_by and wanted.as_configured
    if was_asked and has != asked:
        why = f"fixed once the topic is there; set stream.partitions = {has}, or use another topic"
        other = SettingDifference("partitions", str(has), str(asked), why, unsafe=True, can_alter=False)
        found.differences.insert(0, other)
    return replace(found, remedy=altering(address.path, address.topic, found.differences))


def _embedded(address: Address) -> TopicLook:
    with closing(open_source(address)) as source:
        identity, bounds = source.identity(), source.bounds()
    return TopicLook(address.topic, exists=True, cluster=identity.log_id, bounds=bounds)


def _on_broker(wanted: Wanted) -> TopicLook:
    address, state = wanted.address, inspect_topic(wanted.address)
    dead, partitions = address.topic.endswith(".dead"), state.identity.partitions
    settings = safe_settings(dead, state.replicas, wanted.limits, partitions)
    client = address.settings.client
    differences = copy_differences(state.brokers, state.replicas, state.in_sync)
    return TopicLook(
        address.topic,
        exists=True,
        cluster=state.identity.log_id,
        bounds=state.bounds,
        brokers=state.brokers,
        replicas=state.replicas,
        in_sync=state.in_sync,
        settings=None if state.settings is None else dict(state.settings),
        differences=differences + setting_differences(state.settings or {}, settings, client),
        held_back=dict(state.held_back),
    )


def create_missing(config: Config, replicas: int | None, dry_run: bool) -> tuple[list[str], list[TopicLook]]:
    """Names of the topics made now (in a dry run: that would be made), and all topics as they then are.

    `replicas` None is three, or as many as there are brokers. Raises UserError, StreamRefused or
    StreamUnavailable; topics made before that stay, and the next call makes the rest.
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
    address = wanted[0].address
    if address.scheme != "kafka":
        plans = {one.address.topic: TopicPlan(one.partitions) for one in wanted}
    else:
        copies = wanted[0].limits.replicas or copies_on(cluster_of(address)[1])
        plans = {one.address.topic: _plan(one, copies) for one in wanted}
    return [one if one.exists else replace(one, plan=plans[one.topic]) for one in before]


def _plan(one: Wanted, copies: int) -> TopicPlan:
    dead = one.address.topic.endswith(".dead")
    return TopicPlan(one.partitions, copies, safe_settings(dead, copies, one.limits, one.partitions))


def _look_ahead(config: Config, replicas: int | None) -> None:
    address = config.stream.to_address()
    preflight(address, "create")
    if replicas is not None and replicas > (brokers := cluster_of(address)[1]):
        remedy = f"each copy needs a broker of its own: use --replication {brokers}, or add brokers"
        raise UserError(f"{address}: {replicas} replicas on {brokers} broker(s)", remedy, EX_CONFIG)


_MOST_PARTITIONS = 8
"""More are not listed one by one."""
_NEEDS: tuple[tuple[Literal["read", "write"], str], ...] = (
    ("read", ""),
    ("read", ""),
    ("write", ""),
    ("write", "serve follows whole versions, not steps"),
    ("read", "serve answers with the objects of its files alone"),
)
"""For each topic, in their order: what the roles do with it, and what still works without it."""


def check_broker(config: Config) -> Iterator[CheckFinding]:
    """Findings about a Kafka address; raises StreamRefused or StreamUnavailable when we are not let in."""
    address = config.stream.to_address()
    cluster, brokers = cluster_of(address)
    yield CheckFinding(
        "stream.address", "ok", f"{address}: cluster {cluster}, {brokers} broker(s){_who(config)}"
    )
    for one, (need, without) in zip(topics_of(config), _NEEDS, strict=True):
        yield from _topic(one, config, need, without)
    yield from _may_feed(address)
    yield from _may_use_group(config)


def _who(config: Config) -> str:
    kafka = config.stream.kafka
    user = f", as {kafka.sasl_username} by {kafka.sasl_mechanism}" if kafka.sasl_mechanism else ""
    return f", {kafka.security_protocol}{user}, client {kafka.client}"


def _topic(
    wanted: Wanted, config: Config, need: Literal["read", "write"], without: str
) -> Iterator[CheckFinding]:
    """One topic as the roles need it. `without`: what still works when it is missing; "" when nothing
    does."""
    address = wanted.address
    key = f"topic {address.topic}"
    try:
        preflight(address, need)
    except TopicMissing:
        message = f"there is no such topic{without and ': '}{without}"
        yield CheckFinding(
            key, "note" if without else "error", message, "create it with `tripletd topics create`"
        )
        return
    except StreamRefused as refused:
        yield CheckFinding(key, "note" if without else "error", f"{refused}{without and ': '}{without}")
        return
    look = look_at(wanted, config)
    yield CheckFinding(key, "ok", f"{look.records:,} records; {_bounds(look)}")
    for message in behind_transactions(address.topic, look.held_back):
        yield CheckFinding(key, "note", message)
    for one in look.differences:
        grade: Grade = "error" if one.unsafe else "note"
        found, asked = shown(one.setting, one.found), shown(one.setting, one.wanted)
        yield CheckFinding(key, grade, f"{one.setting} is {found}, should be {asked}: {one.why}")
    if look.remedy:
        yield CheckFinding(key, "note", "this can be fixed in place", "`tripletd topics describe` says how")
    if look.settings is None:
        text = "its settings may not be read, so whether they are safe is not known"
        yield CheckFinding(key, "note", text, "grant DESCRIBE_CONFIGS on the topic")


def _bounds(look: TopicLook) -> str:
    if len(look.bounds) > _MOST_PARTITIONS:
        return f"{len(look.bounds)} partitions"
    return ", ".join(
        f"partition {number}: [{earliest}, {end})" for number, (earliest, end) in sorted(look.bounds.items())
    )


def _may_feed(address: Address) -> Iterator[CheckFinding]:
    for topic in (address, address.holdout):
        try:
            preflight(topic, "write")
        except TopicMissing:
            continue  # reported already
        except StreamRefused as refused:
            yield CheckFinding(f"topic {topic.topic}", "note", f"feed cannot run here: {refused}")


def _may_use_group(config: Config) -> Iterator[CheckFinding]:
    """The group in which positions are noted for lag dashboards; confluent reads nothing without."""
    needed = config.stream.kafka.client == "confluent"
    try:
        with closing(open_source(config.stream.to_address())) as source:
            source.committed()
    except TopicMissing:
        return
    except StreamRefused as refused:
        loss = "confluent will read nothing" if needed else "lag dashboards will show nothing"
        yield CheckFinding("stream.kafka.client_id", "error" if needed else "note", f"{loss}: {refused}")
