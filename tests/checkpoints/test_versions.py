"""Publishing, loading, fencing: on a directory and in memory."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from checkpoints import (
    BlobStore,
    Damaged,
    KeyExists,
    LocalStore,
    Superseded,
    VersionStore,
    state_hash,
)
from tests.harness.memory_store import MemoryStore

from .samples import meta, same, state


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    return LocalStore(tmp_path) if request.param == "local" else MemoryStore()


def test_what_is_published_is_loaded(store: BlobStore) -> None:
    versions = VersionStore(store)
    epoch = versions.claim()
    written = [versions.publish(epoch, state(n), meta(parent=n - 1 if n else None)) for n in range(3)]
    assert [m.number for m in written] == versions.versions() == [0, 1, 2]
    for n in range(3):
        loaded = VersionStore(store).load(n)
        assert loaded.manifest == written[n]
        assert same(loaded.arrays, state(n))
        assert loaded.manifest.state_hash == state_hash(state(n)) == loaded.manifest.files[0].sha256
    newest = versions.newest_valid()
    assert newest is not None
    assert newest.manifest.positions[0].next_offset == 10


def test_loaded_arrays_are_writable_contiguous_and_aligned(store: BlobStore) -> None:
    versions = VersionStore(store)
    versions.publish(versions.claim(), state(dim=33), meta())
    for array in versions.load(0).arrays.values():
        assert array.flags.writeable
        assert array.flags.c_contiguous
        assert array.size == 0 or array.ctypes.data % 64 == 0


def test_an_empty_store_has_no_version(store: BlobStore) -> None:
    versions = VersionStore(store)
    assert versions.versions() == []
    assert versions.newest_valid() is None
    with pytest.raises(Damaged, match="no such version"):
        versions.load(0)


def test_a_stale_writer_is_superseded_and_writes_nothing(store: BlobStore) -> None:
    versions = VersionStore(store)
    stale = versions.claim()
    versions.publish(stale, state(0), meta())
    fresh = VersionStore(store).claim()
    before = store.list()
    with pytest.raises(Superseded, match=rf"epoch 1 \(process {os.getpid()} on .+\) of 20"):
        versions.publish(stale, state(1), meta(parent=0))
    assert store.list() == before
    published = versions.publish(fresh, state(2), meta(parent=0))
    assert (published.number, published.epoch) == (2, 1)
    with pytest.raises(Superseded):
        versions.publish(stale, state(1), meta(parent=0))


def test_two_first_writers_cannot_both_publish_version_0(store: BlobStore) -> None:
    one, two = VersionStore(store), VersionStore(store)
    first, second = one.claim(), two.claim()
    two.publish(second, state(2), meta())
    with pytest.raises(Superseded, match=r"epoch 0 of 20"):
        one.publish(first, state(1), meta())
    assert same(one.load(0).arrays, state(2))


def test_claims_are_hidden_and_cannot_be_loaded(store: BlobStore) -> None:
    versions = VersionStore(store)
    versions.publish(versions.claim(), state(), meta())
    assert versions.claim().number == 1
    assert versions.claim().number == 2
    assert versions.versions() == [0]
    assert versions.listing.claims() == [1, 2]
    newest = versions.newest_valid()
    assert newest is not None
    assert newest.manifest.number == 0
    with pytest.raises(Damaged, match="claim"):
        versions.load(2)


def test_a_claim_sweeps_state_files_that_no_manifest_names(store: BlobStore) -> None:
    versions = VersionStore(store)
    versions.publish(versions.claim(), state(), meta())
    committed = store.list()
    store.put_new("versions/0000000000/state-0-0badf00d.safetensors", [b"left by a crash"])
    store.put_new("versions/0000000001/state-0-0badf00d.safetensors", [b"left by a crash"])
    versions.claim()
    assert store.list() == sorted([*committed, "versions/0000000001/manifest.json"])


def test_values_that_json_cannot_carry_are_refused_and_leave_nothing(store: BlobStore) -> None:
    versions = VersionStore(store)
    epoch = versions.claim()
    with pytest.raises(ValueError, match="JSON"):
        versions.publish(epoch, state(), meta(counters={"loss": float("nan")}))
    with pytest.raises(ValueError, match="dtype"):
        versions.publish(epoch, {"W": np.array([object()])}, meta())
    assert store.list() == []


def test_derived_arrays_are_attached_once_and_verified(store: BlobStore) -> None:
    versions = VersionStore(store)
    versions.publish(versions.claim(), state(), meta())
    assert versions.attached(0, "serving") is None
    versions.attach(0, "serving", state(5), {"psd": "full"})
    got = versions.attached(0, "serving")
    assert got is not None
    assert same(got[0], state(5))
    assert got[1] == {"psd": "full"}
    keys = store.list()
    with pytest.raises(KeyExists):
        versions.attach(0, "serving", state(6), {})
    assert store.list() == keys
    with pytest.raises(Damaged, match="no such version"):
        versions.attach(7, "serving", state(), {})
    with pytest.raises(Exception, match="kept for the version"):
        versions.attach(0, "manifest", state(), {})
