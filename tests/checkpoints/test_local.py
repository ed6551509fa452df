"""What only a directory can get wrong: links, FIFOs, modes, temporary files of dead and of living writers."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path

import pytest

from checkpoints import (
    AsyncPublisher,
    BadKey,
    Failed,
    KeyMissing,
    LocalStore,
    Manifest,
    VersionStore,
    WriteFailed,
)
from checkpoints.local import Files, Folders, Fs, write_failed

from .samples import meta, same, state


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    root = tmp_path / "new" / "store"
    versions = VersionStore(LocalStore(root))
    versions.publish(versions.claim(), state(), meta())
    LocalStore(root).append_line("history.jsonl", b"x")
    files = [path for path in root.rglob("*") if path.is_file()]
    assert len(files) == 3
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in [root, *root.rglob("*")] if path.is_dir()} == {
        0o700
    }


class NotedFolders(Folders):
    """Remembers which folders were made durable."""

    def __init__(self) -> None:
        self.synced: list[Path] = []

    def sync(self, path: Path) -> None:
        super().sync(path)
        self.synced.append(path)


def test_a_new_folder_is_in_its_parents_for_good(tmp_path: Path) -> None:
    fresh, left_by_a_death = NotedFolders(), NotedFolders()
    LocalStore(tmp_path / "new" / "store", Fs(Files(), fresh))
    assert {tmp_path, tmp_path / "new"} <= set(fresh.synced)
    (tmp_path / "left").mkdir()
    LocalStore(tmp_path / "left", Fs(Files(), left_by_a_death))
    assert tmp_path in left_by_a_death.synced


def test_links_and_fifos_are_refused_without_hanging(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    store = LocalStore(tmp_path / "store")
    os.symlink(tmp_path / "secret", store.root / "link")
    os.mkfifo(store.root / "fifo")
    (store.root / "folder").mkdir()
    for key in ("link", "fifo", "folder"):
        with pytest.raises(BadKey):
            store.get(key)


def test_a_linked_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "k").write_bytes(b"secret")
    store = LocalStore(tmp_path / "store")
    os.symlink(tmp_path / "elsewhere", store.root / "versions")
    with pytest.raises(BadKey, match="symbolic link"):
        store.get("versions/k")
    with pytest.raises(BadKey, match="symbolic link"):
        store.put_new("versions/new", [b"x"])
    with pytest.raises(BadKey, match="symbolic link"):
        store.list("versions/")


def test_a_put_does_not_follow_a_link_in_its_place(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    os.symlink(tmp_path / "target", store.root / "k")
    with pytest.raises(Exception, match="is taken"):
        store.put_new("k", [b"x"])
    assert not (tmp_path / "target").exists()


def test_the_folder_of_temporary_files_is_no_place_for_keys(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with pytest.raises(BadKey):
        store.put_new("tmp/x", [b""])
    (tmp_path / "tmp" / "half").write_bytes(b"half")
    assert store.list() == []


def test_temporary_files_of_dead_writers_go_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    living = LocalStore(tmp_path).stage(4)
    (tmp_path / "tmp" / "dead.tmp").write_bytes(b"half")
    store = LocalStore(tmp_path)
    assert not (tmp_path / "tmp" / "dead.tmp").exists()
    living.write_at(0, b"good")
    living.commit("versions/state")
    assert store.get("versions/state") == b"good"
    assert list((tmp_path / "tmp").iterdir()) == []


def test_an_aborted_file_is_gone(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    staged = store.stage(4)
    staged.write_at(0, b"ab")
    staged.abort()
    staged.abort()
    assert list((tmp_path / "tmp").iterdir()) == []
    with pytest.raises(KeyMissing):
        store.get("k")


def test_a_torn_last_line_does_not_swallow_the_next(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"one\ntw")
    LocalStore(tmp_path).append_line("log", b"three")
    assert (tmp_path / "log").read_bytes() == b"one\ntw\nthree\n"


def test_a_root_that_is_a_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(WriteFailed, match=r"file.*stands where a checkpoint folder belongs"):
        LocalStore(tmp_path / "file")
    with pytest.raises(WriteFailed, match=r"file.*stands where a checkpoint folder belongs"):
        LocalStore(tmp_path / "file" / "below")


@pytest.mark.parametrize("write", ["publish", "begin"])
def test_a_store_that_is_removed_under_its_writer_is_told_and_written_once_it_is_back(
    tmp_path: Path, write: str
) -> None:
    root = tmp_path / "store"
    versions = VersionStore(LocalStore(root))
    epoch = versions.claim()
    versions.publish(epoch, state(0), meta())

    def put() -> Manifest:
        if write == "publish":
            return versions.publish(epoch, state(1), meta(parent=0))
        publisher = AsyncPublisher(versions, epoch, copy_below=0)
        assert publisher.begin(state(1), meta(parent=0))
        done = publisher.drain()
        publisher.close()
        if isinstance(done, Failed):
            raise done.error
        assert done is not None
        return done.manifest

    shutil.rmtree(root)
    with pytest.raises(WriteFailed, match="was removed with all in it; put it back") as caught:
        put()
    assert caught.value.retriable
    root.mkdir()
    assert put().number == 1
    newest = VersionStore(LocalStore(root)).newest_valid()
    assert newest is not None
    assert same(newest.arrays, state(1))


@pytest.mark.parametrize("kind", ["file", "symlink"])
def test_nothing_is_written_through_what_stands_in_a_folders_place(tmp_path: Path, kind: str) -> None:
    store = LocalStore(tmp_path / "store")
    (tmp_path / "elsewhere").mkdir()
    place = store.root / "versions"
    place.write_bytes(b"") if kind == "file" else place.symlink_to(tmp_path / "elsewhere")
    staged = store.stage(1)
    staged.write_at(0, b"x")
    with pytest.raises(WriteFailed, match="stands where a checkpoint folder belongs"):
        staged.commit("versions/state")
    with pytest.raises(WriteFailed if kind == "file" else BadKey):
        store.put_new("versions/state", [b"x"])
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize(
    ("code", "word"),
    [
        (errno.ENOSPC, "free space"),
        (errno.EIO, "repair the disk"),
        (errno.EACCES, "writable"),
        (errno.EROFS, "writable"),
        (errno.ENOENT, "was removed"),
        (errno.ENOTDIR, "stands where"),
        (errno.EEXIST, "stands where"),
    ],
)
def test_a_refused_write_says_what_to_do_about_this_very_error(code: int, word: str) -> None:
    error = write_failed("there", OSError(code, os.strerror(code)))
    assert word in error.remedy
    assert os.strerror(code) in error.problem
