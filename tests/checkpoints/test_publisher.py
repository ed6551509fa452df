"""The capture is of one boundary, the loop never waits for a slow disk, failures are results."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import checkpoints.publisher
from checkpoints import (
    AsyncPublisher,
    BlobStore,
    Failed,
    LocalStore,
    Published,
    VersionStore,
    array_digest,
)
from checkpoints.local import Files, Folders, Fs
from tests.harness.memory_store import MemoryStore

from .samples import meta, same, state

WAIT = 60


class GatedFiles(Files):
    """A disk on which one kind of call stands still until `gate` opens."""

    def __init__(self, held: str) -> None:
        self.held, self.gate, self.reached = held, threading.Event(), threading.Event()

    def _pass(self, name: str) -> None:
        if name == self.held:
            self.reached.set()
            assert self.gate.wait(WAIT)

    def write(self, fd: int, offset: int, data: Any) -> None:
        if len(data) > 1000:  # what is held is a piece of W, which changes meanwhile
            self._pass("write")
        super().write(fd, offset, data)

    def read(self, fd: int, offset: int, into: Any) -> int:
        self._pass("read")
        return super().read(fd, offset, into)

    def fsync(self, fd: int) -> None:
        self._pass("fsync")
        super().fsync(fd)


@pytest.fixture(params=["page cache", "copy", "memory"])
def publisher(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[AsyncPublisher, VersionStore]:
    store: BlobStore = MemoryStore() if request.param == "memory" else LocalStore(tmp_path)
    versions = VersionStore(store)
    copy_below = 0 if request.param == "page cache" else 1 << 30
    return AsyncPublisher(versions, versions.claim(), WAIT, copy_below), versions


def test_the_state_may_change_as_soon_as_begin_returns(
    publisher: tuple[AsyncPublisher, VersionStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints.publisher, "PIECE", 1000)
    publish, versions = publisher
    live = state(1, dim=200)
    for number in range(3):
        expected = {name: array.copy() for name, array in live.items()}
        assert publish.begin(live, meta())
        live["W"] += 1
        done = publish.drain(WAIT)
        assert isinstance(done, Published)
        assert done.manifest.number == number
        version = versions.load(number)
        assert same(version.arrays, expected)
        digests = {spec.name: spec.digest for spec in version.manifest.arrays}
        assert digests == {name: array_digest(array) for name, array in expected.items()}


def test_the_first_version_goes_into_a_file_that_was_made_ready(tmp_path: Path) -> None:
    versions = VersionStore(LocalStore(tmp_path))
    publish = AsyncPublisher(versions, versions.claim(), WAIT, copy_below=0)
    publish.prepare(state(1, dim=200))
    live = state(2, dim=200)  # as large, and another one
    expected = {name: array.copy() for name, array in live.items()}
    assert publish.begin(live, meta())
    live["W"] += 1
    assert isinstance(publish.drain(WAIT), Published)
    assert same(versions.load(0).arrays, expected)
    publish.prepare(live)
    publish.close()
    assert not any((tmp_path / "tmp").iterdir())  # what was made ready is dropped


@pytest.mark.parametrize("then", ["begin", "close"])
def test_a_file_that_is_being_made_ready_is_waited_for(tmp_path: Path, then: str) -> None:
    files = GatedFiles("nothing yet")
    versions = VersionStore(LocalStore(tmp_path, Fs(files, Folders())))
    publish, live = AsyncPublisher(versions, versions.claim(), WAIT, copy_below=0), state(1, dim=200)
    files.held = "read"  # it is made ready by reading it
    publish.prepare(live)
    assert files.reached.wait(WAIT)
    waiting = threading.Thread(
        target=publish.close if then == "close" else lambda: publish.begin(live, meta()), daemon=True
    )
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive(), "two threads have the same file in hand"
    files.gate.set()
    waiting.join(WAIT)
    if then == "begin":
        assert isinstance(publish.drain(WAIT), Published)
        publish.close()
    assert not any((tmp_path / "tmp").iterdir())


def test_one_at_a_time_and_each_result_once(publisher: tuple[AsyncPublisher, VersionStore]) -> None:
    publish, versions = publisher
    assert publish.result() is None
    assert publish.begin(state(), meta())
    assert not publish.begin(state(), meta())
    assert isinstance(publish.drain(WAIT), Published)
    assert publish.result() is None
    assert publish.drain(WAIT) is None
    assert versions.versions() == [0]


@pytest.mark.parametrize("piece", [1 << 30, 3000])
@pytest.mark.parametrize("held", ["write", "fsync"])
def test_a_disk_that_stands_still_does_not_hold_the_loop(
    tmp_path: Path, held: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints.publisher, "PIECE", piece)
    files = GatedFiles(held)
    versions = VersionStore(LocalStore(tmp_path, Fs(files, Folders())))
    budget = 0.05 if held == "write" else WAIT
    publish = AsyncPublisher(versions, versions.claim(), stall_budget_s=budget, copy_below=0)
    live = state(3, dim=100)
    expected = {name: array.copy() for name, array in live.items()}
    assert publish.begin(live, meta())
    live["W"][:] = np.nan
    assert files.reached.wait(WAIT)
    assert publish.result() is None
    assert not publish.begin(live, meta())
    assert publish.drain(0) is None
    files.gate.set()
    assert isinstance(publish.drain(WAIT), Published)
    assert same(versions.load(0).arrays, expected)


def test_being_superseded_is_a_result_that_says_so(publisher: tuple[AsyncPublisher, VersionStore]) -> None:
    publish, versions = publisher
    publish.begin(state(0), meta())
    publish.drain(WAIT)
    versions.claim()
    before = versions.store.list()
    publish.begin(state(1), meta(parent=0))
    failed = publish.drain(WAIT)
    assert isinstance(failed, Failed)
    assert failed.superseded
    assert versions.store.list() == before


def test_an_unexpected_value_is_a_failure_not_a_crash(publisher: tuple[AsyncPublisher, VersionStore]) -> None:
    publish, versions = publisher
    publish.begin(state(0), meta(counters={"loss": float("inf")}))
    failed = publish.drain(WAIT)
    assert isinstance(failed, Failed)
    assert not failed.superseded
    assert failed.meta.counters == {"loss": float("inf")}
    assert versions.store.list() == []
    publish.begin(state(0), meta())
    assert isinstance(publish.drain(WAIT), Published)


def test_the_file_kept_ready_is_used_whatever_the_next_size_and_goes_with_close(tmp_path: Path) -> None:
    versions = VersionStore(LocalStore(tmp_path))
    publish = AsyncPublisher(versions, versions.claim(), WAIT, copy_below=0)
    for number, dim in enumerate((50, 60, 40, 40)):
        assert publish.begin(state(number, dim), meta())
        assert isinstance(publish.drain(WAIT), Published)
        assert same(versions.load(number).arrays, state(number, dim))
        assert len(list((tmp_path / "tmp").iterdir())) == 1
    publish.close()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_state_that_cannot_be_stored_leaves_the_publisher_usable(
    publisher: tuple[AsyncPublisher, VersionStore],
) -> None:
    publish, versions = publisher
    with pytest.raises(ValueError, match="dtype"):
        publish.begin({"W": np.array(["text"])}, meta())
    assert publish.begin(state(1), meta())
    assert isinstance(publish.drain(WAIT), Published)
    assert same(versions.load(0).arrays, state(1))
