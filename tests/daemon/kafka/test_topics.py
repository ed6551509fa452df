"""`tripletd topics create` and `describe` on a real broker and on the embedded log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from daemon.cli import main
from daemon.exits import EX_CONFIG, EX_OK, EX_UNAVAILABLE, EX_USAGE
from streams.kafka.topics import inspect_topic, safe_settings
from streams.partitions import TopicLimits
from streams.source import parse_address
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.control import create_topic

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def ask(capsys: Capture, *words: str) -> tuple[int, dict[str, Any]]:
    code = main(["topics", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def address(kafka: Cluster, topic: str) -> str:
    return kafka.address(topic)


def test_five_topics_are_made_once(kafka: Cluster, topic: str, capsys: Capture) -> None:
    to = ("--to", address(kafka, topic))
    code, said = ask(capsys, "describe", *to)
    assert (code, said["ok"], [one["exists"] for one in said["topics"]]) == (
        EX_UNAVAILABLE,
        False,
        [False] * 5,
    )
    code, said = ask(capsys, "create", *to, "--partitions", "3")
    assert (code, said["ok"]) == (EX_OK, True)
    found = [(one["topic"], one["partitions"], one["created"]) for one in said["topics"]]
    counts = {"": 3, ".holdout": 3, ".dead": 1, ".steps": 1, ".items": 1}
    assert found == [(topic + ending, count, True) for ending, count in counts.items()]
    code, again = ask(capsys, "create", *to)
    assert (code, again["ok"], [one["created"] for one in again["topics"]]) == (EX_OK, True, [False] * 5)
    assert [one["cluster"] for one in again["topics"]] == [one["cluster"] for one in said["topics"]]
    assert ask(capsys, "describe", *to)[0] == EX_OK


def test_topics_have_the_safe_settings_and_the_retention(kafka: Cluster, topic: str, capsys: Capture) -> None:
    limits = ("--set", "stream.retention=1d", "--set", "stream.retention_bytes=2MiB")
    to = ("--to", address(kafka, topic))
    assert ask(capsys, "create", *to, "--partitions", "2", *limits)[0] == EX_OK
    for name, partitions in ((topic, 2), (f"{topic}.holdout", 2), (f"{topic}.dead", 1)):
        state = inspect_topic(parse_address(address(kafka, name)))
        safe = safe_settings(name.endswith(".dead"), 1, TopicLimits(86400.0, 2 << 20), partitions)
        assert state.settings == safe
        assert (safe["retention.ms"], safe["retention.bytes"]) == ("86400000", str((2 << 20) // partitions))
    steps = inspect_topic(parse_address(address(kafka, f"{topic}.steps"))).settings or {}
    assert (steps["retention.ms"], steps["retention.bytes"]) == ("3600000", str(1 << 30))
    items = inspect_topic(parse_address(address(kafka, f"{topic}.items"))).settings or {}
    assert (items["cleanup.policy"], items["retention.ms"], items["retention.bytes"]) == (
        "compact",
        "-1",
        "-1",
    )
    code, said = ask(capsys, "describe", *to)  # and nothing is limited by this configuration
    assert code == EX_CONFIG
    assert {d["setting"] for d in said["topics"][0]["differences"]} == {"retention.ms", "retention.bytes"}


def test_a_dry_run_makes_nothing(kafka: Cluster, topic: str, capsys: Capture) -> None:
    to = ("--to", address(kafka, topic))
    code, said = ask(capsys, "create", *to, "--dry-run")
    assert (code, [one["exists"] for one in said["topics"]]) == (EX_OK, [False] * 5)
    main(["topics", "create", *to, "--dry-run"])
    told = capsys.readouterr().out
    assert told.count("would be created") == 5
    assert told.count("1 partition(s), 1 replica(s)") == 5
    (size,) = (line for line in told.splitlines() if "max.message.bytes" in line)
    assert size.split() == ["max.message.bytes", "2.0", "MiB;", "of", f"{topic}.dead", "4.0", "MiB"]
    plans = [one["plan"] for one in said["topics"]]
    assert main(["topics", "create", *to]) == EX_OK  # and what was told is what is made
    for one, plan in zip(said["topics"], plans, strict=True):
        name = one["topic"]
        assert inspect_topic(parse_address(address(kafka, name))).settings == plan["settings"]


def test_a_dry_run_leaves_no_topic_behind(kafka: Cluster, topic: str, capsys: Capture) -> None:
    to = ("--to", address(kafka, topic))
    assert ask(capsys, "create", *to, "--dry-run")[0] == EX_OK
    assert ask(capsys, "describe", *to)[0] == EX_UNAVAILABLE


def test_what_is_missing_is_made_beside_an_unsafe_topic(kafka: Cluster, topic: str, capsys: Capture) -> None:
    unsafe = {
        "compression.type": "gzip",
        "retention.ms": "3600000",
        "unclean.leader.election.enable": "true",
        "max.message.bytes": "16777216",
    }
    create_topic(kafka, topic, 2, configs=unsafe)
    to = ("--to", address(kafka, topic))
    code, said = ask(capsys, "create", *to)
    assert (code, said["ok"]) == (EX_CONFIG, False)
    training, *others = said["topics"]
    assert (training["created"], [one["created"] for one in others]) == (False, [True] * 4)
    found = {d["setting"]: d["unsafe"] for d in training["differences"]}
    assert {setting: found[setting] for setting in unsafe} == {
        setting: setting != "compression.type" for setting in unsafe
    }
    assert {setting for setting in found if found[setting]} <= set(unsafe)
    assert inspect_topic(parse_address(address(kafka, topic))).identity.partitions == 2
    assert main(["topics", "describe", *to]) == EX_CONFIG
    told = capsys.readouterr().out
    assert "compression.type is gzip, should be uncompressed" in told
    (command,) = (line for line in told.splitlines() if "kafka-configs.sh" in line)
    assert f"--entity-name {topic} " in command
    assert all(f"{name}=" in command for name in unsafe)


def test_other_partitions_than_typed_are_told(kafka: Cluster, topic: str, capsys: Capture) -> None:
    to = ("--to", address(kafka, topic))
    assert ask(capsys, "create", *to, "--partitions", "2")[0] == EX_OK
    code, said = ask(capsys, "create", *to, "--partitions", "3")
    assert code == EX_CONFIG
    found = [[d["setting"] for d in one["differences"]] for one in said["topics"]]
    assert found == [["partitions"], ["partitions"], [], [], []]
    Path("tripletd.toml").write_text("[stream]\npartitions = 5\n")  # of topics to be created: any other does
    assert ask(capsys, "create", *to)[0] == EX_OK


def test_more_copies_than_brokers_are_refused_before_anything_is_made(
    kafka: Cluster, topic: str, capsys: Capture
) -> None:
    to = ("--to", address(kafka, topic))
    assert main(["topics", "create", *to, "--replication", "2"]) == EX_CONFIG
    assert "2 replicas on 1 broker" in capsys.readouterr().err
    assert ask(capsys, "describe", *to)[0] == EX_UNAVAILABLE
    assert ask(capsys, "create", *to, "--replication", "1")[0] == EX_OK


def test_the_embedded_log_has_topics_too(capsys: Capture) -> None:
    to = ("--to", "log:clicks.log")
    code, said = ask(capsys, "describe", *to)
    assert (code, said["ok"]) == (EX_UNAVAILABLE, False)
    code, said = ask(capsys, "create", *to, "--dry-run")
    assert (code, said["ok"], [one["exists"] for one in said["topics"]]) == (EX_OK, True, [False] * 5)
    code, said = ask(capsys, "create", *to, "--partitions", "2")
    assert (code, [one["partitions"] for one in said["topics"]]) == (EX_OK, [2, 2, 1, 1, 1])
    assert ask(capsys, "create", *to)[0] == EX_OK
    code, said = ask(capsys, "create", *to, "--partitions", "3")
    assert (code, said["topics"][0]["partitions"]) == (EX_CONFIG, 2)
    assert main(["topics", "create", *to, "--replication", "1"]) == EX_USAGE
    assert main(["topics", "describe", "--to", "memory:here"]) == EX_USAGE


def test_nobody_there_is_told_at_once(capsys: Capture) -> None:
    for verb in ("create", "describe"):
        assert main(["topics", verb, "--to", "kafka://127.0.0.1:1/t"]) == EX_UNAVAILABLE
        assert "nobody listens at 127.0.0.1:1" in capsys.readouterr().err
