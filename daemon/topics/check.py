"""What `tripletd check` says of a broker: whether we are let in, and each topic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Literal

from daemon.config import Config
from daemon.exits import CheckFinding, Grade
from daemon.topics.differences import shown
from daemon.topics.topics import TopicLook, Wanted, look_at, topics_of
from streams.address import Address
from streams.errors import StreamRefused, TopicMissing
from streams.kafka.preflight import preflight
from streams.kafka.topics import cluster_of
from streams.open import open_source
from streams.partitions import behind_transactions

_MOST_PARTITIONS = 8
"""More are not listed one by one."""
_NEEDS: tuple[tuple[Literal["read", "write"], str], ...] = (
    ("read", ""),
    ("read", ""),
    ("write", ""),
    ("write", "serve follows whole versions, not steps"),
    ("read", "serve answers with the objects of its files alone"),
)
"""Of the topics in their order: what the roles do with it, and what goes on without it."""


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
    """One topic as the roles need it. `without`: what goes on when it is missing; "" when nothing does."""
    address = wanted.address
    key = f"topic {address.topic}"
    try:
        preflight(address, need)
    except TopicMissing:
        told = f"there is no such topic{without and ': '}{without}"
        yield CheckFinding(
            key, "note" if without else "error", told, "create it with `tripletd topics create`"
        )
        return
    except StreamRefused as refused:
        yield CheckFinding(key, "note" if without else "error", f"{refused}{without and ': '}{without}")
        return
    look = look_at(wanted, config)
    yield CheckFinding(key, "ok", f"{look.records:,} records; {_bounds(look)}")
    for told in behind_transactions(address.topic, look.held_back):
        yield CheckFinding(key, "note", told)
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
    """The offsets of each partition, as [earliest, end)."""
    if len(look.bounds) > _MOST_PARTITIONS:
        return f"{len(look.bounds)} partitions"
    return ", ".join(
        f"partition {number}: [{earliest}, {end})" for number, (earliest, end) in sorted(look.bounds.items())
    )


def _may_feed(address: Address) -> Iterator[CheckFinding]:
    """Only a host that runs feed needs to write events and impressions."""
    for topic in (address, address.holdout):
        try:
            preflight(topic, "write")
        except TopicMissing:
            continue  # told already
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
