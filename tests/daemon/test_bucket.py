"""Every role and command with versions, ledger and catalog in a bucket, also while it is away."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from checkpoints import VersionMeta
from daemon.cli import main
from daemon.config.objects import settings_of
from daemon.exits import EX_CONFIG, EX_OK
from daemon.versions.storage import open_store
from tests.daemon.serve.test_role import Place
from tests.harness.s3_faults import BROKEN, Asked, Fault, S3Proxy
from tests.harness.s3_server import BUCKET, S3Server
from tests.harness.waiting import until

SIMILAR = "/v1/similar?id=o1&k=3&alias=latest"
TRIES = 3


class BucketPlace(Place):
    """A place whose versions and catalog are in a bucket, behind a proxy."""

    def __init__(self, folder: Path, server: S3Server, proxy: S3Proxy, prefix: str) -> None:
        super().__init__(folder)
        self.address = f"s3://{BUCKET}/{prefix}"
        store = server.store(prefix)
        store.put_new("catalog.jsonl", [(folder / "catalog.jsonl").read_bytes()])
        (folder / "catalog.jsonl").unlink()
        text = self.file.read_text().replace(
            'path = "catalog.jsonl"', f'path = "{self.address}/catalog.jsonl"'
        )
        kept = f'path = "{self.address}/shop"\nendpoint = "{proxy.url}"\ntimeout = "2s"\ncache = "states"'
        self.file.write_text(text.replace("[checkpoints]", f"[checkpoints]\n{kept}"))
        self.direct = ["--set", f"checkpoints.endpoint={server.url}"]

    def learn_beside(self) -> None:
        """Learn what came, by a learner that reaches the bucket without the proxy."""
        words = ["learn", "--exit-when-caught-up", "--config", str(self.file), *self.direct]
        assert main(words) == EX_OK

    def tell(self, capsys: pytest.CaptureFixture[str], *words: str) -> str:
        capsys.readouterr()
        assert main([*words, "--config", str(self.file)]) == EX_OK
        return capsys.readouterr().out


@pytest.fixture
def place(tmp_path: Path, s3: S3Server, proxy: S3Proxy, prefix: str) -> Iterator[BucketPlace]:
    made = BucketPlace(tmp_path, s3, proxy, prefix)
    yield made
    made.end()


def test_commands_work_with_the_address(place: BucketPlace, capsys: pytest.CaptureFixture[str]) -> None:
    assert "it can be written" in place.tell(capsys, "check")
    place.feed(30, 1)
    place.learn()
    place.tell(capsys, "validate", "--exit-when-caught-up", "--set", "validate.min_impressions=1")
    status: dict[str, Any] = json.loads(place.tell(capsys, "status", "--json"))
    assert status["checkpoints"] == f"{place.address}/shop"
    assert status["versions"] == [0, 1]
    place.tell(capsys, "models", "promote", "1", "--reason", "by hand")
    assert "stable" in place.tell(capsys, "models", "list")
    assert "equal" in place.tell(capsys, "replay", "--from", "0", "--to", "1", "--verify").lower()
    assert not (place.folder / "checkpoints").exists()
    assert not list(place.folder.glob("s3:*")), "no folder is named like an address"


def test_a_server_lives_from_the_bucket_and_answers_while_it_is_away(
    place: BucketPlace, proxy: S3Proxy
) -> None:
    place.feed(30, 1)
    place.learn()
    serve = place.start("serve")
    until(lambda: serve.get(SIMILAR)[0] == 200, serve.said)
    before = serve.get(SIMILAR)[1]["base"]
    assert any((place.folder / "states").iterdir()), "the state it answers with is kept locally"
    place.feed(30, 2)
    proxy.add(Fault(lambda asked: True, times=10**9, answer=BROKEN))
    place.learn_beside()
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        assert serve.get(SIMILAR)[0] == 200
    proxy.clear()
    until(lambda: serve.get(SIMILAR)[1]["base"] != before, serve.said)
    assert serve.stop() == EX_OK


def test_a_validator_waits_for_a_bucket_that_is_away(place: BucketPlace, proxy: S3Proxy) -> None:
    place.feed(30, 1)
    place.learn()
    validate = place.start("validate")
    until(lambda: "holdout impressions" in str(validate.get("/readyz")[1]), validate.said)
    proxy.add(Fault(lambda asked: True, times=10**9, answer=BROKEN))
    until(lambda: "cannot be reached" in str(validate.get("/readyz")[1]), validate.said)
    proxy.clear()
    until(lambda: "cannot be reached" not in str(validate.get("/readyz")[1]), validate.said)
    assert validate.stop() == EX_OK


def test_a_start_asks_as_much_of_a_bucket_with_many_versions_as_of_one_with_few(
    place: BucketPlace, proxy: S3Proxy
) -> None:
    place.feed(30, 1)
    place.learn()

    def asked_at_a_start(more: int) -> list[Asked]:
        versions = open_store(f"{place.address}/shop").versions
        newest = versions.newest_valid()
        assert newest is not None
        meta = {one.name: getattr(newest.manifest, one.name) for one in fields(VersionMeta)}
        epoch = versions.claim()
        for _ in range(more):
            versions.publish(epoch, newest.arrays, VersionMeta(**meta))
        learn = ["learn", "--exit-when-caught-up", "--config", str(place.file)]
        starts: list[list[Asked]] = []
        for _ in range(TRIES):  # what is asked by the clock comes more often in a start that takes seconds
            proxy.asked.clear()
            assert main([*learn, "--set", "stream.pause_poison_window=1"]) == EX_OK
            starts.append(list(proxy.asked))
        return min(starts, key=len)

    few, many = asked_at_a_start(3), asked_at_a_start(25)
    assert sum(asked.lists for asked in many) <= 11, "those of the catalog among them"
    assert len(many) <= len(few) + 3, "what is asked once a second may come once more"
    assert len(few) <= 40


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("s4://bucket/x", "there is no store for s4://"),
        ("s3://Not/../ok", "checkpoints.path"),
        ("s3://x", "s3://BUCKET"),
    ],
)
def test_an_address_that_is_none_is_told(
    place: BucketPlace, capsys: pytest.CaptureFixture[str], path: str, said: str
) -> None:
    words = ["models", "list", "--config", str(place.file), "--set", f"checkpoints.path={path}"]
    assert main(words) == EX_CONFIG
    assert said in capsys.readouterr().err


def test_what_lies_below_is_reached_the_same_way(place: BucketPlace) -> None:
    from daemon.config import load_config

    config = load_config(place.file)
    line = open_store(config.checkpoints.path).at("shards/0-of-2")
    assert line.address == f"{place.address}/shop/shards/0-of-2"
    assert settings_of(line.address) == config.checkpoints
    assert line.versions.versions() == []
