"""States fetched once: bounded, shared, checked, and never a wrong file after a kill."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from checkpoints import Damaged, VersionMeta, VersionStore, fetch_files
from checkpoints.object_cache import PART, StateCache
from checkpoints.object_store import ObjectSettings
from checkpoints.store import KeyMissing
from tests.harness.s3_faults import Fault, S3Proxy
from tests.harness.s3_server import BUCKET, S3Server
from tests.harness.waiting import until

MIB = 1 << 20


def data(number: int, size: int = MIB) -> bytes:
    return np.random.default_rng(number).bytes(size)


def name(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def read(cache: StateCache, content: bytes, fetch: Iterable[bytes] | None = None) -> bytes:
    pieces = [content] if fetch is None else fetch
    with cache.open(name(content), len(content), lambda: pieces, "it") as stream:
        return stream.read()


def never() -> Iterator[bytes]:
    raise AssertionError("it was fetched again")
    yield b""


def test_what_was_fetched_is_not_fetched_again(tmp_path: Path) -> None:
    cache = StateCache(tmp_path / "cache", 10 * MIB)
    assert read(cache, data(1)) == data(1)
    assert read(StateCache(tmp_path / "cache", 10 * MIB), data(1), never()) == data(1)
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "wrong", [data(1)[:-1], data(1) + b"x", data(2), b""], ids=["cut", "longer", "other", "empty"]
)
def test_bytes_that_are_others_are_refused_and_not_kept(tmp_path: Path, wrong: bytes) -> None:
    cache = StateCache(tmp_path, 10 * MIB)
    with pytest.raises(Damaged):
        read(cache, data(1), [wrong])
    assert list(tmp_path.iterdir()) == []
    assert read(cache, data(1)) == data(1)


def test_what_was_used_longest_ago_goes_and_the_newest_stays(tmp_path: Path) -> None:
    cache = StateCache(tmp_path, 3 * MIB)
    for number in range(3):
        read(cache, data(number))
        os.utime(tmp_path / name(data(number)), (number, number))
    read(cache, data(0), never())  # used again
    read(cache, data(3))
    assert {one.name for one in tmp_path.iterdir()} == {name(data(number)) for number in (0, 2, 3)}
    read(cache, data(4, 5 * MIB))
    assert [one.name for one in tmp_path.iterdir()] == [name(data(4, 5 * MIB))]


def test_a_file_of_a_user_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(data(9))
    read(StateCache(tmp_path, 10), data(1))
    assert (tmp_path / "notes.txt").is_file()


def _hang(folder: Path, said: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield data(1)[: MIB // 2]
        said.touch()
        signal.pause()

    read(StateCache(folder, 10 * MIB), data(1), pieces())


def test_who_dies_while_fetching_leaves_nothing_that_is_taken_for_whole(tmp_path: Path) -> None:
    folder, said = tmp_path / "cache", tmp_path / "said"
    process = multiprocessing.get_context("spawn").Process(target=_hang, args=(folder, said))
    process.start()
    until(said.exists, "it did not begin")
    process.kill()
    process.join()
    assert [one.suffix for one in folder.iterdir()] == [PART]
    cache = StateCache(folder, 10 * MIB)
    read(cache, data(2))
    assert [one.name for one in folder.iterdir()] == [name(data(2))], "a part of a dead process goes"
    assert read(cache, data(1)) == data(1)


class TestOfVersions:
    """States of a bucket, loaded through the cache."""

    ARRAYS: ClassVar = {"W": np.arange(3 * MIB // 4, dtype=np.float32)}

    def publish(self, s3: S3Server, prefix: str) -> str:
        versions = VersionStore(s3.store(prefix))
        return versions.publish(versions.claim(), self.ARRAYS, VersionMeta()).state_hash

    def load(self, s3: S3Server, prefix: str, endpoint: str, cache: Path) -> np.ndarray:
        store = s3.store(prefix, endpoint, cache=cache)
        return VersionStore(store).load(0).arrays["W"]

    def test_the_second_load_asks_for_no_state(
        self, s3: S3Server, proxy: S3Proxy, prefix: str, tmp_path: Path
    ) -> None:
        self.publish(s3, prefix)
        for _ in range(2):
            assert np.array_equal(self.load(s3, prefix, proxy.url, tmp_path), self.ARRAYS["W"])
        assert sum(asked.path.endswith(".safetensors") for asked in proxy.asked) == 1

    @pytest.mark.parametrize("at", [3, -1])
    def test_a_copy_that_was_damaged_is_fetched_again(
        self, s3: S3Server, proxy: S3Proxy, prefix: str, tmp_path: Path, at: int
    ) -> None:
        copy = tmp_path / self.publish(s3, prefix)
        self.load(s3, prefix, proxy.url, tmp_path)
        content = bytearray(copy.read_bytes())
        content[at] ^= 1
        copy.write_bytes(content)
        assert np.array_equal(self.load(s3, prefix, proxy.url, tmp_path), self.ARRAYS["W"])
        assert name(copy.read_bytes()) == copy.name

    def test_a_cache_that_cannot_be_used_is_done_without(
        self, s3: S3Server, proxy: S3Proxy, prefix: str, tmp_path: Path
    ) -> None:
        self.publish(s3, prefix)
        (tmp_path / "file").touch()
        loaded = self.load(s3, prefix, proxy.url, tmp_path / "file" / "below")
        assert np.array_equal(loaded, self.ARRAYS["W"])


class TestOfFiles:
    """Catalogs and the like, as local files."""

    @pytest.fixture
    def settings(self, proxy: S3Proxy) -> ObjectSettings:
        return ObjectSettings(proxy.url, timeout_s=60.0)

    def test_a_file_is_fetched_once_and_again_when_it_changes(
        self, s3: S3Server, proxy: S3Proxy, prefix: str, settings: ObjectSettings, tmp_path: Path
    ) -> None:
        store, address = s3.store(prefix), f"s3://{BUCKET}/{prefix}/items.jsonl"
        store.put_new("items.jsonl", [b"one"])
        local = fetch_files(address, settings, tmp_path)
        before = local.stat()
        assert (local.name, local.read_bytes()) == ("items.jsonl", b"one")
        assert fetch_files(address, settings, tmp_path).stat() == before
        store.delete("items.jsonl")
        store.put_new("items.jsonl", [b"two"])
        assert fetch_files(address, settings, tmp_path).read_bytes() == b"two"

    def test_a_folder_keeps_its_names(
        self, s3: S3Server, prefix: str, settings: ObjectSettings, tmp_path: Path
    ) -> None:
        store, address = s3.store(prefix), f"s3://{BUCKET}/{prefix}/items"
        for key in ("items/a.parquet", "items/b.parquet", "items-of-others/c.parquet"):
            store.put_new(key, [key.encode()])
        local = fetch_files(address, settings, tmp_path)
        assert sorted(one.name for one in local.iterdir()) == ["a.parquet", "b.parquet"]
        store.delete("items/a.parquet")
        assert [one.name for one in fetch_files(address, settings, tmp_path).iterdir()] == ["b.parquet"]

    def test_a_torn_answer_leaves_the_file_that_was_there(
        self, s3: S3Server, proxy: S3Proxy, prefix: str, settings: ObjectSettings, tmp_path: Path
    ) -> None:
        store, address = s3.store(prefix), f"s3://{BUCKET}/{prefix}/items.jsonl"
        store.put_new("items.jsonl", [data(1)])
        torn = proxy.add(
            Fault(
                lambda asked: asked.method == "GET" and "items.jsonl" in asked.path, 2, part=0.5, after=True
            )
        )
        assert fetch_files(address, settings, tmp_path).read_bytes() == data(1)
        assert torn.struck == 2

    def test_what_is_not_there_is_told(
        self, s3: S3Server, prefix: str, settings: ObjectSettings, tmp_path: Path
    ) -> None:
        with pytest.raises(KeyMissing, match="no such object"):
            fetch_files(f"s3://{BUCKET}/{prefix}/nothing.jsonl", settings, tmp_path)
