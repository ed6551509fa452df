"""What differs from the safe settings, and what that costs."""

from __future__ import annotations

import pytest

from daemon.topics.differences import (
    SettingDifference,
    altering,
    copy_differences,
    setting_differences,
    shown,
)
from streams.kafka.topics import WATCHED, safe_settings
from streams.partitions import TopicLimits

SAFE = safe_settings(False, 3, TopicLimits(86400.0, 1 << 30), 2)


def one_difference(setting: str, value: str) -> SettingDifference:
    (found,) = setting_differences({**SAFE, setting: value}, SAFE)
    assert (found.setting, found.found, found.wanted) == (setting, value, SAFE[setting])
    return found


def test_safe_settings_do_not_differ_from_themselves() -> None:
    assert setting_differences(SAFE, SAFE) == []
    assert setting_differences({}, SAFE) == []


def test_a_topic_of_items_that_forgets_is_unsafe() -> None:
    compacted = safe_settings(False, 3, TopicLimits(86400.0, 1 << 30, compacted=True), 1)
    assert (compacted["retention.ms"], compacted["retention.bytes"]) == ("-1", "-1")
    (found,) = setting_differences({**compacted, "cleanup.policy": "delete"}, compacted)
    assert (found.unsafe, found.wanted) == (True, "compact")
    assert "objects put long ago are gone" in found.why


def test_every_safe_setting_is_watched() -> None:
    assert sorted(SAFE) == sorted(WATCHED)


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("cleanup.policy", "compact", "compacted"),
        ("cleanup.policy", "compact,delete", "compacted"),
        ("unclean.leader.election.enable", "true", "lost"),
        ("max.message.bytes", "104857600", "larger batches"),
        ("min.insync.replicas", "1", "one disk alone"),
        ("retention.ms", "86399999", "sooner than stream.retention says"),
        ("retention.bytes", "1000", "sooner than stream.retention_bytes says"),
    ],
)
def test_unsafe(setting: str, value: str, told: str) -> None:
    found = one_difference(setting, value)
    assert found.unsafe
    assert told in found.why


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("max.message.bytes", "1048588", "refused"),
        ("min.insync.replicas", "3", "while one broker is away"),
        ("retention.ms", "-1", "longer than stream.retention says"),
        ("retention.bytes", "-1", "longer than stream.retention_bytes says"),
        ("message.timestamp.type", "CreateTime", "old clicks sent with their own time are gone"),
        ("message.timestamp.after.max.ms", "3600000", "refused"),
    ],
)
def test_worth_knowing(setting: str, value: str, told: str) -> None:
    found = one_difference(setting, value)
    assert not found.unsafe
    assert told in found.why


@pytest.mark.parametrize(
    ("value", "kept"), [("producer", "kept as producers compress them"), ("zstd", "kept in zstd")]
)
def test_what_compressed_batches_mean_to_each_client(value: str, kept: str) -> None:
    found = one_difference("compression.type", value)
    assert not found.unsafe
    assert f"{kept}: gzip, snappy, lz4 and zstd are read" in found.why
    assert "more than 64.0 MiB becomes a dead letter" in found.why
    (other,) = setting_differences({**SAFE, "compression.type": value}, SAFE, "confluent")
    assert other.unsafe
    assert kept in other.why
    assert "can fill a reader's memory" in other.why


def test_no_limit_wanted_and_one_found_is_unsafe() -> None:
    unlimited = safe_settings(False, 3, TopicLimits(), 2)
    found = setting_differences({**unlimited, "retention.ms": "604800000"}, unlimited)
    assert [one.unsafe for one in found] == [True]


@pytest.mark.parametrize(
    ("brokers", "replicas", "in_sync", "unsafe"),
    [
        (1, 1, 1, []),
        (3, 3, 3, []),
        (2, 2, 2, []),
        (5, 3, 3, []),
        (3, 1, 1, [True]),
        (2, 1, 1, [True]),
        (3, 2, 2, [False]),
        (3, 3, 2, [False]),
        (3, 2, 1, [False, False]),
    ],
)
def test_copies(brokers: int, replicas: int, in_sync: int, unsafe: list[bool]) -> None:
    assert [one.unsafe for one in copy_differences(brokers, replicas, in_sync)] == unsafe


def test_the_command_mends_what_can_be_mended_in_place() -> None:
    differences = [*copy_differences(3, 1, 1), one_difference("retention.ms", "1")]
    command = altering("a:1,b:2", "clicks", [*differences, one_difference("cleanup.policy", "compact")])
    assert "--bootstrap-server a:1,b:2" in command
    assert "--entity-name clicks" in command
    assert command.endswith("--add-config retention.ms=86400000,cleanup.policy=delete")
    assert altering("a:1", "clicks", copy_differences(3, 1, 1)) == ""


def test_values_as_people_read_them() -> None:
    assert shown("retention.ms", "604800000") == "7 d"
    assert (
        shown("retention.ms", "-1") == shown("message.timestamp.after.max.ms", str(2**63 - 1)) == "no limit"
    )
    assert shown("max.message.bytes", "2097152") == "2.0 MiB"
    assert shown("compression.type", "gzip") == "gzip"
    assert shown("min.insync.replicas", "2") == "2"
