"""The contract of a blob store; a new kind of store is added to `store` below and must pass unchanged."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpoints import BadKey, BlobStore, KeyExists, KeyMissing, LocalStore
from tests.docs.test_skeletons import load
from tests.harness.memory_store import MemoryStore


@pytest.fixture(params=["local", "memory", "skeleton", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    if request.param == "bucket":
        server, prefix = request.getfixturevalue("s3"), request.getfixturevalue("prefix")
        bucket: BlobStore = server.store(prefix)
        return bucket
    if request.param == "skeleton":
        made: BlobStore = load("store").SqliteStore(tmp_path / "objects.db")
        return made
    return LocalStore(tmp_path) if request.param == "local" else MemoryStore()


def test_what_is_put_is_got_with_its_size_and_digest(store: BlobStore) -> None:
    put = store.put_new("a/b.bin", [b"one", bytearray(b"two"), memoryview(b"three")])
    assert store.get("a/b.bin") == b"onetwothree"
    assert (put.size, put.sha256) == (11, hashlib.sha256(b"onetwothree").hexdigest())


def test_put_is_create_only_and_the_first_stays(store: BlobStore) -> None:
    store.put_new("k", [b"first"])
    with pytest.raises(KeyExists):
        store.put_new("k", [b"second"])
    assert store.get("k") == b"first"


def test_a_put_that_breaks_off_leaves_nothing(store: BlobStore) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"half"
        raise RuntimeError("source broke")

    with pytest.raises(RuntimeError):
        store.put_new("k", chunks())
    assert store.list() == []
    store.put_new("k", [b"whole"])
    assert store.get("k") == b"whole"


def test_list_is_sorted_and_by_prefix(store: BlobStore) -> None:
    for key in ("b/2", "b/10", "a", "bc"):
        store.put_new(key, [b""])
    assert store.list() == ["a", "b/10", "b/2", "bc"]
    assert store.list("b/") == ["b/10", "b/2"]
    assert store.list("b") == ["b/10", "b/2", "bc"]
    assert store.list("c/") == []


def test_delete_removes_and_may_be_repeated(store: BlobStore) -> None:
    store.put_new("a/k", [b"x"])
    store.delete("a/k")
    store.delete("a/k")
    assert store.list() == []
    with pytest.raises(KeyMissing):
        store.get("a/k")


def test_open_streams_into_a_buffer(store: BlobStore) -> None:
    store.put_new("k", [b"0123456789"])
    with store.open("k") as stream:
        buffer = bytearray(4)
        assert stream.readinto(buffer) == 4  # type: ignore[attr-defined]
        assert (bytes(buffer), stream.read()) == (b"0123", b"456789")


def test_missing_keys_are_named(store: BlobStore) -> None:
    for read in (store.get, store.open):
        with pytest.raises(KeyMissing, match="nothing-here"):
            read("nothing-here")


def test_append_line_adds_whole_lines(store: BlobStore) -> None:
    store.append_line("log", b"one")
    store.append_line("log", b"two")
    assert store.get("log") == b"one\ntwo\n"


@pytest.mark.parametrize(
    "key", ["", "/etc/passwd", "../x", "a/../b", "a//b", "./a", ".hidden", "a\0b", "a b", "a/", "é"]
)
def test_keys_that_could_lead_outside_are_refused(store: BlobStore, key: str) -> None:
    calls = (
        lambda: store.put_new(key, [b""]),
        lambda: store.get(key),
        lambda: store.open(key),
        lambda: store.delete(key),
        lambda: store.append_line(key, b""),
    )
    for call in calls:
        with pytest.raises(BadKey):
            call()
