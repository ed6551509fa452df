"""Every failing call and every power loss: the old version or the new one, never neither, never torn."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

from checkpoints import (
    AsyncPublisher,
    Damaged,
    Failed,
    LocalStore,
    Published,
    VersionStore,
    WriteFailed,
    history,
    prune,
)
from checkpoints.commit import Epoch

from .disk import FaultyDisk
from .power import Disk, lay_out, power_losses, snapshot
from .samples import meta, same, state

OLD, NEW = state(1), state(2)


def with_version_0(root: Path) -> Epoch:
    versions = VersionStore(LocalStore(root))
    epoch = versions.claim()
    versions.publish(epoch, OLD, meta())
    return epoch


def newest(root: Path) -> dict[str, np.ndarray]:
    version = VersionStore(LocalStore(root)).newest_valid(lambda error: pytest.fail(f"damaged: {error}"))
    assert version is not None
    return version.arrays


def calls_of_one_publish(tmp_path: Path) -> int:
    epoch = with_version_0(tmp_path / "count")
    disk = FaultyDisk(tmp_path / "count")
    versions = VersionStore(LocalStore(tmp_path / "count", disk.fs))
    opened = disk.calls
    versions.publish(epoch, NEW, meta(parent=0))
    assert disk.calls > opened + 15
    return disk.calls - opened


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_whichever_call_fails_the_old_version_stands_and_a_retry_succeeds(tmp_path: Path, error: int) -> None:
    for k in range(1, calls_of_one_publish(tmp_path) + 1):
        root = tmp_path / f"fail-{k}"
        epoch = with_version_0(root)
        disk = FaultyDisk(root, error=error)
        versions = VersionStore(LocalStore(root, disk.fs))
        publisher = AsyncPublisher(versions, epoch, copy_below=0)
        disk.fail_at = disk.calls + k
        assert publisher.begin(NEW, meta(parent=0))
        outcome = publisher.drain()
        if isinstance(outcome, Failed):
            assert not outcome.superseded
            loaded = newest(root)
            assert same(loaded, OLD) or same(loaded, NEW)
            assert publisher.begin(NEW, meta(parent=0))
            assert isinstance(publisher.drain(), Published), f"call {k}"
        assert same(newest(root), NEW)
        publisher.close()
        LocalStore(root)
        assert list((root / "tmp").iterdir()) == []


def test_a_failed_fsync_is_never_retried_on_the_same_file(tmp_path: Path) -> None:
    epoch = with_version_0(tmp_path)
    disk = FaultyDisk(tmp_path)
    versions = VersionStore(LocalStore(tmp_path, disk.fs))
    disk.fs.files._real.fsync, real = _broken, disk.fs.files._real.fsync  # type: ignore[attr-defined,method-assign]
    with pytest.raises(WriteFailed):
        versions.publish(epoch, NEW, meta(parent=0))
    touched = {op.path for op in disk.log if op.name == "write"}
    disk.fs.files._real.fsync = real  # type: ignore[attr-defined]
    versions.publish(epoch, NEW, meta(parent=0))
    assert touched
    assert not touched & {op.path for op in disk.log if op.name == "fsync"}


def _broken(fd: int) -> None:
    raise OSError(errno.EIO, "broken")


def test_a_full_disk_is_noticed_before_anything_is_written(tmp_path: Path) -> None:
    epoch = with_version_0(tmp_path)
    disk = FaultyDisk(tmp_path)
    versions = VersionStore(LocalStore(tmp_path, disk.fs))

    def full(fd: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    disk.fs.files._real.allocate = full  # type: ignore[attr-defined]
    publisher = AsyncPublisher(versions, epoch, copy_below=0)
    publisher.begin(NEW, meta(parent=0))
    failed = publisher.drain()
    assert isinstance(failed, Failed)
    assert "No space left" in str(failed.error)
    assert failed.error.retriable
    assert not [op for op in disk.log if op.name == "write"]


@pytest.mark.parametrize("how", ["publish", "async"])
def test_power_loss_leaves_the_old_or_the_new_version(tmp_path: Path, how: str) -> None:
    epoch = with_version_0(tmp_path / "live")
    before = snapshot(tmp_path / "live")
    disk = FaultyDisk(tmp_path / "live")
    versions = VersionStore(LocalStore(tmp_path / "live", disk.fs))
    disk.log.clear()
    if how == "publish":
        versions.publish(epoch, NEW, meta(parent=0))
    else:
        publisher = AsyncPublisher(versions, epoch, copy_below=0)
        publisher.begin(NEW, meta(parent=0))
        assert isinstance(publisher.drain(), Published)
        publisher.close()
    seen = {"old": 0, "new": 0}
    for i, left in enumerate(_distinct(power_losses(before, disk.log))):
        root = tmp_path / f"loss-{i}"
        lay_out(left, root)
        arrays = newest(root)
        seen["old" if same(arrays, OLD) else "new"] += 1
        assert same(arrays, OLD) or same(arrays, NEW)
        again = VersionStore(LocalStore(root))
        again.publish(again.claim(), state(9), meta())
        assert same(newest(root), state(9))
    assert seen["old"] > 3
    assert seen["new"] > 0


def test_once_publish_returned_no_power_loss_takes_the_version_back(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path / "live")
    versions = VersionStore(LocalStore(tmp_path / "live", disk.fs))
    versions.publish(versions.claim(), NEW, meta())
    whole = [(done, left) for done, left in power_losses({}, disk.log) if done == len(disk.log)]
    for i, left in enumerate(_distinct(whole)):
        lay_out(left, tmp_path / str(i))
        assert same(newest(tmp_path / str(i)), NEW)


def test_power_loss_while_pruning_leaves_no_listed_version_without_its_files(tmp_path: Path) -> None:
    versions = VersionStore(LocalStore(tmp_path / "live"))
    epoch = versions.claim()
    for n in range(5):
        versions.publish(epoch, state(n), meta())
    before = snapshot(tmp_path / "live")
    disk = FaultyDisk(tmp_path / "live")
    pruner = VersionStore(LocalStore(tmp_path / "live", disk.fs))
    disk.log.clear()
    assert prune(pruner, list, 2, lambda: None) == [1, 2]
    for i, left in enumerate(_distinct(power_losses(before, disk.log))):
        lay_out(left, tmp_path / str(i))
        survivor = VersionStore(LocalStore(tmp_path / str(i)))
        assert {0, 3, 4} <= set(survivor.versions())
        for number in survivor.versions():
            assert same(survivor.load(number).arrays, state(number))
        recorded = {record["number"] for record in history(survivor.store)}
        assert {0, 1, 2, 3, 4} <= recorded | set(survivor.versions())


def test_whichever_call_of_a_claim_fails_the_next_claim_succeeds(tmp_path: Path) -> None:
    for k in range(1, 30):
        root = tmp_path / str(k)
        with_version_0(root)
        disk = FaultyDisk(root)
        versions = VersionStore(LocalStore(root, disk.fs))
        disk.fail_at = disk.calls + k
        with contextlib.suppress(WriteFailed, Damaged):
            versions.claim()
        disk.fail_at = 0
        epoch = versions.claim()
        versions.publish(epoch, NEW, meta(parent=0))
        assert same(newest(root), NEW)


def _distinct(disks: Iterable[tuple[int, Disk]]) -> Iterator[Disk]:
    """Each disk once, whatever the operations before it."""
    seen = set()
    for _, left in disks:
        fingerprint = tuple(sorted(left.items()))
        if fingerprint not in seen:
            seen.add(fingerprint)
            yield left
