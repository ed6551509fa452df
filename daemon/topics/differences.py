"""Where a topic of a broker differs from the safe settings, and what that costs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from daemon.text import size, span
from streams.limits import MAX_POLL_BYTES


@dataclass(frozen=True, slots=True)
class SettingDifference:
    """One setting: found, wanted, and why.

    `unsafe`: records can be lost or fill the memory, or it is not what was asked for. `can_alter`:
    kafka-configs can change it while the topic is in use.
    """

    setting: str
    found: str
    wanted: str
    why: str
    unsafe: bool
    can_alter: bool = True


def setting_differences(
    found: Mapping[str, str], wanted: Mapping[str, str], client: str = "kafka-python"
) -> list[SettingDifference]:
    """Each wanted setting that is another one; settings that the broker does not know are passed over.

    client: what reads the topic, as stream.kafka.client names it.
    """
    return [
        SettingDifference(setting, found[setting], value, *_cost(setting, found[setting], value, client))
        for setting, value in wanted.items()
        if setting in found and found[setting] != value
    ]


def copy_differences(brokers: int, replicas: int, in_sync: int) -> list[SettingDifference]:
    """What is wrong with the copies of a topic's records; `brokers` of the whole cluster."""
    found = []
    if replicas < min(3, brokers):
        why = "records are lost with the one disk that holds them"
        if replicas > 1:
            why = "while one broker is away, a single disk holds the newest records"
        wanted = str(min(3, brokers))
        found.append(
            SettingDifference("replicas", str(replicas), wanted, why, replicas == 1, can_alter=False)
        )
    if in_sync < replicas:
        why = "a broker is away or behind; look at the cluster"
        found.append(
            SettingDifference("in-sync replicas", str(in_sync), str(replicas), why, False, can_alter=False)
        )
    return found


def altering(brokers: str, topic: str, differences: list[SettingDifference]) -> str:
    """The command that mends what can be mended in place; empty when nothing can."""
    changes = ",".join(f"{one.setting}={one.wanted}" for one in differences if one.can_alter)
    if not changes:
        return ""
    names = f"--entity-type topics --entity-name {topic}"
    return f"kafka-configs.sh --bootstrap-server {brokers} --alter {names} --add-config {changes}"


def shown(setting: str, value: str) -> str:
    """A value as people read it: retention.ms 604800000 is "7 d", max.message.bytes 2097152 is "2.0 MiB"."""
    if not value.lstrip("-").isdigit():
        return value
    number = int(value)
    if setting.startswith("retention.") and number < 0:
        return "no limit"
    if setting.endswith(".ms"):
        return "no limit" if number >= 2**62 else span(number / 1000)
    return size(number) if setting.endswith(".bytes") else value


_COSTS = {
    "unclean.leader.election.enable": (
        "a broker that lacks records may lead: they are lost, and offsets mean others",
        True,
    ),
    "message.timestamp.type": (
        "producers say when a record came, and the broker removes records by it: old clicks sent with their "
        "own time are gone unread, and a clock that is wrong goes past stream.max_future",
        False,
    ),
    **dict.fromkeys(
        ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"),
        ("records whose time is further from the broker's clock are refused", False),
    ),
}
"""Why a setting matters, and whether it is unsafe."""
_COSTS_OF_NUMBERS = {
    "max.message.bytes": (
        ("the largest records of the format are refused", False),
        ("larger batches are let in than a reader has room for", True),
    ),
    "min.insync.replicas": (
        ("a write is acknowledged that one disk alone holds", True),
        ("nothing can be written while one broker is away", False),
    ),
    **{
        setting: (
            (f"the broker removes records sooner than {key} says, learned or not", True),
            (f"the broker keeps records longer than {key} says", False),
        )
        for setting, key in (
            ("retention.ms", "stream.retention"),
            ("retention.bytes", "stream.retention_bytes"),
        )
    },
}
"""The same where less is found than wanted, and where more is."""


def _cost(setting: str, found: str, wanted: str, client: str) -> tuple[str, bool]:
    if setting == "compression.type":
        return _cost_of_compression(found, client)
    if setting == "cleanup.policy":
        if wanted == "compact":
            return "objects put long ago are gone when serve starts again", True
        return "records can be compacted away before they are learned", True
    if setting in _COSTS_OF_NUMBERS:
        return _COSTS_OF_NUMBERS[setting][_number(found) >= _number(wanted)]
    return _COSTS.get(setting, ("not as created by tripletd", False))


def _cost_of_compression(found: str, client: str) -> tuple[str, bool]:
    kept = "as producers compress them" if found == "producer" else f"in {found}"
    if client == "confluent":
        danger = f"a small batch can fill a reader's memory, since {client} inflates without a limit"
        return f"batches are kept {kept}: each codec is read, but {danger}", True
    limit = f"one that holds more than {size(MAX_POLL_BYTES)} becomes a dead letter"
    return f"batches are kept {kept}: gzip, snappy, lz4 and zstd are read, and {limit}", False


def _number(value: str) -> float:
    """A setting's number; -1 is no limit."""
    return float("inf") if value == "-1" else float(value)
