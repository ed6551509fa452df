"""Retention over a real log: what learn and feed remove, and what they never do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from daemon.cli import main
from daemon.config import Config, load_config
from daemon.exits import EX_OK
from daemon.learn.resume.origin import LearnOptions
from daemon.learn.start import run
from daemon.topics.retention import retain_after_feed, retain_topics
from daemon.versions.storage import open_for_reading
from streams.open import ensure_topic, open_sink, open_source
from streams.source import Address, OutRecord, parse_address
from tests.harness.topics import delete_topic

CAUGHT_UP = LearnOptions(exit_when_caught_up=True)
VECTOR = [1.0, 2.0]


def start_of(address: Address) -> int:
    source = open_source(address)
    try:
        return source.bounds()[0][0]
    finally:
        source.close()


def end_of(address: Address) -> int:
    source = open_source(address)
    try:
        return source.bounds()[0][1]
    finally:
        source.close()


class Place:
    """A log, a checkpoint folder and their configuration file; all records are far older than its limit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = parse_address(f"log:{folder}/clicks.log")
        self.file = folder / "tripletd.toml"
        self.file.write_text(
            '[stream]\naddress = "log:clicks.log"\nretention = "1h"\n'
            '[space.views.x]\nkind = "dense"\ndim = 2\nmap = "identity"\n'
            '[http]\nlearn_port = 0\n[checkpoints]\nevery = "1h"\n[feed]\nholdout_share = 0.4\n'
        )

    @property
    def config(self) -> Config:
        return load_config(self.file, {}, {})

    def feed(self, name: str, count: int = 30) -> int:
        ref = {"x": VECTOR}
        lines = [
            {"id": f"{name}{n}", "ts": 1000 + n, "q": {"id": f"q{n}", **ref}}
            | {"shown": [{"id": f"p{k}", **ref} for k in range(3)], "clicked": [2]}
            for n in range(count)
        ]
        clicks = self.folder / f"{name}.jsonl"
        clicks.write_text("".join(json.dumps(line) + "\n" for line in lines))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("streams.log.source.now_ms", lambda: 5000)  # it was fed long ago
            return main(["feed", str(clicks), "--config", str(self.file)])

    def add(self, address: Address, count: int) -> None:
        ensure_topic(address, 1)
        sink = open_sink(address)
        sink.send([OutRecord(b"x", timestamp=1)] * count)
        sink.close()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_learn_removes_what_its_version_has_learned_and_no_more(place: Place) -> None:
    assert place.feed("a") == EX_OK
    learned = end_of(place.address)
    place.add(place.address.dead, 4)
    assert start_of(place.address) == 0 < learned
    assert run(place.config, CAUGHT_UP) == EX_OK
    assert start_of(place.address) == 0  # version 0, the one before, has learned nothing
    place.add(place.address, 1)
    assert run(place.config, CAUGHT_UP) == EX_OK
    assert start_of(place.address) == learned
    assert start_of(place.address.dead) == 4
    assert start_of(place.address.holdout) == end_of(place.address.holdout) > 0
    place.add(place.address, 3)
    assert retain_topics(place.address, place.config.stream, {0: learned}, pytest.fail)["triplets"] == 0
    assert run(place.config, CAUGHT_UP) == EX_OK
    assert start_of(place.address) == learned + 1


def test_feed_removes_what_the_newest_version_has_learned(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    assert place.feed("a") == EX_OK
    told = capfd.readouterr().err
    assert "training records stay" in told
    assert "retention removed old records: triplets.holdout" in told
    first = end_of(place.address)
    limit = 'retention = "1h"\n'
    text = place.file.read_text()
    place.file.write_text(text.replace(limit, ""))
    assert run(place.config, CAUGHT_UP) == EX_OK
    place.add(place.address, 1)
    assert run(place.config, CAUGHT_UP) == EX_OK
    assert start_of(place.address) == 0  # without a limit nothing goes
    place.file.write_text(text)
    assert place.feed("b") == EX_OK
    assert start_of(place.address) == first < end_of(place.address)
    assert f"triplets {first:,}" in capfd.readouterr().err


def test_a_newest_version_damaged_later_finds_its_records(place: Place) -> None:
    for count in (5, 7, 9):
        place.add(place.address, count)
        assert run(place.config, CAUGHT_UP) == EX_OK
    assert start_of(place.address) == 12
    versions, _ = open_for_reading(place.config)
    newest = versions.versions()[-1]
    state = next((place.folder / "checkpoints").rglob(f"{newest:010d}/state*"))
    state.chmod(0o600)
    state.write_bytes(b"torn")
    assert run(place.config, CAUGHT_UP) == EX_OK
    assert versions.manifest(versions.versions()[-1]).parent == newest - 2  # a claim lies between
    assert start_of(place.address) == 12


def test_versions_of_another_log_of_this_name_free_nothing(place: Place) -> None:
    place.feed("a")
    assert run(place.config, CAUGHT_UP) == EX_OK
    delete_topic(place.address)
    place.add(place.address, 5)
    warnings: list[str] = []
    assert retain_after_feed(place.config, place.address, warnings.append)["triplets"] == 0
    assert len(warnings) == 1


def test_a_dry_run_removes_nothing(place: Place) -> None:
    place.add(place.address.holdout, 5)
    place.feed("a")
    start = start_of(place.address.holdout)
    place.add(place.address.holdout, 5)
    assert main(["feed", str(place.folder / "a.jsonl"), "--config", str(place.file), "--dry-run"]) == EX_OK
    assert start_of(place.address.holdout) == start


def test_a_log_that_cannot_be_read_is_a_warning_per_topic(place: Place) -> None:
    place.feed("a")
    limits = place.config.stream
    (place.folder / "clicks.log").write_bytes(b"no log at all" * 100)
    warnings: list[str] = []
    assert retain_topics(place.address, limits, {0: 5}, warnings.append) == {}
    assert [text.split(":")[0] for text in warnings] == [
        f"retention of triplets{part}" for part in ("", ".holdout", ".dead")
    ]


def test_learning_goes_on_when_retention_fails(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.feed("a")
    failed: list[Address] = []
    monkeypatch.setattr("daemon.topics.retention.retain", refusing(failed))
    assert run(place.config, CAUGHT_UP) == EX_OK
    assert {address.topic.partition(".")[2] for address in failed} == {"", "holdout", "dead", "steps"}
    assert start_of(place.address) == 0


def refusing(failed: list[Address]) -> Callable[..., dict[int, int]]:
    """A stand-in for a disk that refuses."""
    from streams.errors import StreamUnavailable

    def retain(address: Address, *limits: object, **more: object) -> dict[int, int]:
        failed.append(address)
        raise StreamUnavailable("the disk refuses")

    return retain
