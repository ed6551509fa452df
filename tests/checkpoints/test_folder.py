"""What a role that reads versions sees of a folder that is lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from checkpoints import LocalStore, VersionMeta, VersionStore
from checkpoints.commit import Epoch
from checkpoints.store import is_away
from checkpoints.versions import GONE, LACKS, LOOK_EVERY_S, FolderWatch
from tests.harness.memory_store import MemoryStore


class Folder:
    """A folder, its writer, and somebody who looks, two seconds later each time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.versions = VersionStore(LocalStore(root))
        self.watch = FolderWatch(self.versions)
        self.now = 0.0
        self.epoch = self.versions.claim()

    def publish(self, epoch: Epoch | None = None) -> None:
        found = self.versions.publish(epoch or self.epoch, {"W": np.eye(2, dtype=np.float32)}, VersionMeta())
        self.watch.works_with(found)

    def look(self) -> tuple[str, dict[str, int]]:
        self.now += LOOK_EVERY_S
        self.watch.look(self.versions.versions(), self.now)
        return self.watch.how, dict(self.watch.losses)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "folder")
    for _ in range(3):
        made.publish()
    return made


def test_a_folder_that_has_everything_is_not_lost(folder: Folder) -> None:
    assert folder.look() == ("", {})
    assert not is_away(folder.versions.store)


def test_a_folder_that_is_gone_is_lost_until_it_is_there_again(folder: Folder) -> None:
    for times in (1, 2):
        folder.root.rename(folder.root.with_name("away"))
        assert folder.look() == (GONE, {GONE: times})
        assert folder.look() == (GONE, {GONE: times}), "one loss, however often it is looked"
        folder.root.with_name("away").rename(folder.root)
        assert folder.look() == ("", {GONE: times})


def test_an_emptied_folder_lacks_it(folder: Folder) -> None:
    shutil.rmtree(folder.root / "versions")
    assert folder.look() == (LACKS, {LACKS: 1})


def test_an_older_copy_lacks_it_and_the_one_put_back_has_it(folder: Folder) -> None:
    shutil.copytree(folder.root, copy := folder.root.with_name("copy"))
    folder.publish()
    assert folder.look() == ("", {})
    folder.root.rename(folder.root.with_name("newest"))
    copy.rename(folder.root)
    assert folder.look() == (LACKS, {LACKS: 1})
    folder.root.rename(copy)
    folder.root.with_name("newest").rename(folder.root)
    assert folder.look() == ("", {LACKS: 1})


def test_another_version_under_its_number_is_told_apart(folder: Folder) -> None:
    other = Folder(folder.root.with_name("other"))
    for _ in range(3):
        other.publish()
    shutil.rmtree(folder.root)
    other.root.rename(folder.root)
    assert folder.look() == (LACKS, {LACKS: 1})
    assert folder.watch.is_replaced


def test_a_version_that_was_pruned_is_no_loss(folder: Folder) -> None:
    mine = folder.watch.mine
    assert mine is not None
    folder.publish()
    folder.watch.works_with(mine)
    folder.watch.losses.clear()
    shutil.rmtree(folder.root / "versions" / f"{mine.number:010d}")
    assert folder.look() == ("", {})


def test_a_newer_version_of_another_line_is_a_loss_that_nobody_saw(folder: Folder) -> None:
    folder.publish(folder.versions.claim(after=9, line="f" * 16))
    assert folder.look() == ("", {LACKS: 1})


def test_a_loss_that_was_seen_counts_once_over_the_new_line(folder: Folder) -> None:
    shutil.rmtree(folder.root / "versions")
    assert folder.look() == (LACKS, {LACKS: 1})
    folder.publish(folder.versions.claim(after=9, line="f" * 16))
    assert folder.look() == ("", {LACKS: 1})


def test_it_is_not_looked_more_often_than_it_says(folder: Folder) -> None:
    listed = folder.versions.versions()
    folder.watch.look(listed, 100.0)
    folder.root.rename(folder.root.with_name("away"))
    folder.watch.look(listed, 100.0 + LOOK_EVERY_S / 2)
    assert folder.watch.how == ""
    folder.watch.look(listed, 100.0 + LOOK_EVERY_S)
    assert folder.watch.how == GONE


def test_a_store_without_a_place_is_never_away() -> None:
    assert not is_away(MemoryStore())
