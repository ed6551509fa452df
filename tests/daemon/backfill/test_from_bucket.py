"""History, objects and versions in a bucket: the bits of the same files on a disk, here and in processes that
read no configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from daemon.cli import main
from daemon.exits import EX_OK, EX_UNAVAILABLE
from daemon.versions.storage import open_store
from tests.daemon.backfill.place import Place, make_place
from tests.harness.s3_server import S3Server
from tests.harness.waiting import until

SMALL = ("--here", "--merge-events", "300", "--version-events", "1000", "--no-judge")


class Bucket:
    """A place whose days and objects were moved to a bucket, with a copy of it on the disk."""

    def __init__(self, folder: Path, server: S3Server, prefix: str) -> None:
        (folder / "disk").mkdir()
        (folder / "bucket").mkdir()
        self.disk, self.place = make_place(folder / "disk"), make_place(folder / "bucket")
        self.address = server.address(prefix)
        store = server.store(prefix)
        for one in ("objects.jsonl", *(f"day{day}.jsonl" for day in range(4))):
            store.put_new(one, [(folder / "bucket" / one).read_bytes()])
            (folder / "bucket" / one).unlink()
        text = self.place.file.read_text()
        self.place.file.write_text(
            text.replace('path = "objects.jsonl"', f'path = "{self.address}/objects.jsonl"')
            + f'[checkpoints]\npath = "{self.address}/line"\nendpoint = "{server.url}"\ncache = "states"\n'
        )
        self.days = [f"{self.address}/day{day}.jsonl" for day in range(4)]

    def words(self, command: str, *options: str) -> list[str]:
        return [command, *self.days, "--config", str(self.place.file), *options]

    def hash(self) -> str:
        found = open_store(f"{self.address}/line").versions.newest_manifest()
        assert found is not None
        return found.state_hash


@pytest.fixture
def bucket(tmp_path: Path, s3: S3Server, prefix: str) -> Bucket:
    return Bucket(tmp_path, s3, prefix)


def on_disk(place: Place, *options: str) -> str:
    assert place.backfill(*options) == EX_OK
    return place.hash()


def test_days_in_a_bucket_are_learned_as_on_a_disk(bucket: Bucket) -> None:
    assert main(bucket.words("backfill", *SMALL, "--shards", "2")) == EX_OK
    assert bucket.hash() == on_disk(bucket.disk, *SMALL, "--shards", "2")
    assert main(bucket.words("backfill", *SMALL, "--shards", "2", "--verify")) == EX_OK


def test_a_sweep_over_a_bucket_in_two_processes(bucket: Bucket, capfd: pytest.CaptureFixture[str]) -> None:
    def rows(*words: str) -> list[dict[str, object]]:
        capfd.readouterr()
        assert main([*words, "--set", "learner.C=0.1,1", "--json"]) == EX_OK
        text = capfd.readouterr().out
        found = json.loads(text[text.index("{") :])["settings"]
        return [{name: row[name] for name in row if name not in ("seconds", "folder")} for row in found]

    out = str(bucket.place.folder / "sweep")
    swept = rows(*bucket.words("sweep", "--out", out, "--workers", "2"))
    disk = bucket.disk
    alone = ["sweep", disk.days, "--config", str(disk.file), "--out", str(disk.folder / "sweep")]
    assert swept == rows(*alone)


def test_what_was_fetched_is_gone_afterwards(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "fetched"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    assert main(bucket.words("backfill", *SMALL)) == EX_OK
    until(lambda: not list(folder.glob("tripletd-backfill-*")))


def test_a_file_that_is_not_in_the_bucket_is_named(bucket: Bucket, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["backfill", f"{bucket.address}/day9.jsonl", "--config", str(bucket.place.file), *SMALL]
    assert main(words) == EX_UNAVAILABLE
    assert "day9.jsonl" in capfd.readouterr().err
