"""The commands against a broker behind TLS, a password and permissions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from daemon.cli import main
from daemon.exits import EX_CONFIG, EX_OK, EX_UNAVAILABLE
from streams.partitions import TopicLimits
from streams.source import parse_address
from tests.harness.kafka.control import fresh_topic
from tests.harness.kafka.fixtures import ONE_AT_A_TIME
from tests.harness.kafka.secured import MECHANISM, PASSWORD, USER, Secured
from tests.harness.topics import create_topics

pytestmark = ONE_AT_A_TIME

Capture = pytest.CaptureFixture[str]
IMPRESSION = {
    "id": "i1",
    "ts": 1_700_000_000_000,
    "q": {"id": "q", "x": [1, 0]},
    "shown": [{"id": "a", "x": [0, 1]}, {"id": "b", "x": [1, 1]}],
    "clicked": [1],
}


class Place:
    """A configuration file for the right door, and its password in a file beside it."""

    def __init__(self, folder: Path, secured: Secured, capsys: Capture) -> None:
        self.topic = fresh_topic()
        self.secured = secured
        self._capsys = capsys
        self.password = folder / "password"
        self.password.write_text(f"{PASSWORD}\n")
        self.clicks = folder / "clicks.jsonl"
        self.clicks.write_text(json.dumps(IMPRESSION))
        self._file = folder / "tripletd.toml"
        self._file.write_text(
            f'[stream]\naddress = "kafka://{secured.door()}/{self.topic}"\n'
            f'[stream.kafka]\nsecurity_protocol = "SASL_SSL"\nsasl_mechanism = "{MECHANISM}"\n'
            f'sasl_username = "{USER}"\nssl_cafile = "{secured.authority.cafile}"\n'
            '[space.views.x]\ndim = 2\nmap = "identity"\n'
            "[http]\nlearn_port = 0\nvalidate_port = 0\nserve_port = 0\n"
        )

    def run(self, *words: str) -> tuple[int, str]:
        """Exit code and everything printed; no secret is ever in it."""
        code = main([*words, "--config", str(self._file)])
        told = self._capsys.readouterr()
        assert PASSWORD not in told.out + told.err
        return code, told.out + told.err

    def findings(self, *words: str) -> tuple[int, list[dict[str, Any]]]:
        """What `check` finds of the stream, but for what is fine."""
        code, told = self.run("check", "--json", *words)
        found = [one for one in json.loads(told)["findings"] if one["key"].startswith(("stream", "topic"))]
        return code, [one for one in found if one["grade"] != "ok"]

    def allow_all(self) -> None:
        for ending in ("", ".holdout", ".dead", ".steps", ".items"):
            name = self.topic + ending
            self.secured.allow("CREATE", "DESCRIBE", "DESCRIBE_CONFIGS", "READ", "WRITE", topic=name)


@pytest.fixture
def place(tmp_path: Path, kafka_secured: Secured, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = Place(tmp_path, kafka_secured, capsys)
    monkeypatch.setenv("TRIPLETD_STREAM__KAFKA__SASL_PASSWORD_FILE", str(made.password))
    return made


def test_with_the_right_settings_everything_works(place: Place) -> None:
    place.allow_all()
    assert place.run("topics", "create")[0] == EX_OK
    assert place.run("feed", str(place.clicks))[0] == EX_OK
    code, described = place.run("topics", "describe", "--json")
    assert (code, json.loads(described)["ok"]) == (EX_OK, True)
    code, status = place.run("status", "--json")
    assert json.loads(status)["stream"]["lag"] == sum(
        one["records"] for one in json.loads(described)["topics"] if one["topic"] == place.topic
    )
    code, (finding,) = place.findings()
    assert (code, finding["grade"], finding["key"]) == (EX_OK, "note", "stream.kafka.client_id")
    code, (finding,) = place.findings("--set", "stream.kafka.client=confluent")
    assert (code, finding["grade"]) == (EX_CONFIG, "error")


def test_history_is_read_through_the_same_door(place: Place, tmp_path: Path) -> None:
    place.allow_all()
    assert place.run("topics", "create")[0] == EX_OK
    lists = [json.dumps({**IMPRESSION, "id": f"i{n}", "q": {"id": f"q{n}", "x": [1, 0]}}) for n in range(20)]
    place.clicks.write_text("\n".join(lists))
    assert place.run("feed", str(place.clicks))[0] == EX_OK
    (tmp_path / "objects.jsonl").write_text('{"id": "q", "x": [1, 0]}\n{"id": "a", "x": [0, 1]}\n')
    settings = (f"catalog.path={tmp_path / 'objects.jsonl'}", f"checkpoints.path={tmp_path / 'line'}")
    words = [word for one in settings for word in ("--set", one)]
    address = f"kafka://{place.secured.door()}/{place.topic}"
    code, said = place.run("backfill", address, "--here", "--no-judge", *words)
    assert (code, "version 1" in said) == (EX_OK, True), said


def test_who_may_only_write_may_feed(place: Place) -> None:
    create_topics(parse_address(place.secured.cluster.address(place.topic)), 1, TopicLimits())
    for name in (place.topic, f"{place.topic}.holdout"):
        place.secured.allow("WRITE", topic=name)
    code, said = place.run("feed", str(place.clicks))
    assert (code, "1 read" in said) == (EX_OK, True), said


@pytest.mark.parametrize(
    ("command", "setting", "told"),
    [
        ("topics create", "stream.kafka.sasl_username=nobody-we-know", "does not accept the user"),
        ("topics describe", "stream.kafka.sasl_mechanism=SCRAM-SHA-256", "does not offer the mechanism"),
        ("topics create", "stream.kafka.ssl_cafile=/no/such/file.pem", "/no/such/file.pem) cannot be read"),
        ("feed", "stream.address=kafka://{STRANGER}/t", "is for another host"),
        ("topics describe", "stream.address=kafka://{PASSWORDS}/t", "speaks without TLS"),
    ],
)
def test_each_fault_is_told_apart(place: Place, command: str, setting: str, told: str) -> None:
    doors = {name: place.secured.door(name) for name in ("STRANGER", "PASSWORDS")}
    wrong = ("--set", setting.format(**doors))
    source = [str(place.clicks)] if command == "feed" else []
    code, said = place.run(*command.split(), *source, *wrong)
    assert (code, told in said) == (EX_CONFIG, True), said
    code, (finding,) = place.findings(*wrong)
    assert (code, finding["key"], finding["grade"]) == (EX_CONFIG, "stream.address", "error")
    assert told in finding["text"]


def test_missing_permissions_are_named(place: Place) -> None:
    code, said = place.run("topics", "create")
    assert (code, f"may not CREATE the topic '{place.topic}'" in said) == (EX_CONFIG, True)
    place.secured.allow("CREATE", "DESCRIBE", "WRITE", topic=place.topic)
    for name in ("holdout", "dead", "steps", "items"):
        place.secured.allow("CREATE", "DESCRIBE", topic=f"{place.topic}.{name}")
    assert place.run("topics", "describe")[0] == EX_UNAVAILABLE
    assert place.run("topics", "create")[0] == EX_OK
    code, said = place.run("topics", "describe", "--json")
    assert [one["settings"] for one in json.loads(said)["topics"]] == [None] * 5  # may not be asked for
    code, found = place.findings()
    assert code == EX_CONFIG
    lacking = {
        (one["grade"], one["key"].rpartition(".")[2], word)
        for one in found
        for word in ("READ", "WRITE")
        if f"may not {word} " in one["text"]
    }
    assert lacking >= {("error", "dead", "WRITE"), ("note", "holdout", "WRITE"), ("error", "holdout", "READ")}
    assert lacking >= {("note", "steps", "WRITE"), ("note", "items", "READ")}  # learning goes on without
    assert any(f"may not READ the topic '{place.topic}'" in one["text"] for one in found)
    code, said = place.run("feed", str(place.clicks))
    assert (code, "may not WRITE" in said) == (EX_CONFIG, True)
