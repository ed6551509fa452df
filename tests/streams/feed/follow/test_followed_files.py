"""Files that grow, are rotated, cut, emptied and replaced: every line once, in every case a restart."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from streams.feed.follow.files import AFTER_ROTATION_S, ASLEEP_AFTER_S, HEAD_BYTES, FollowedFiles
from streams.text_files import MAX_LINE_BYTES

NOW = 0.0


def add(path: Path, *lines: str, end: str = "\n") -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(line + end for line in lines)


def read(files: FollowedFiles, most: int = 1_000, now: float = NOW) -> list[str]:
    files.look(now)
    found = []
    for one in files.files():
        while records := files.read(one, most, now):
            found += [(record.value or b"too long").decode() for record in records]
    return found


def again(files: FollowedFiles) -> FollowedFiles:
    places = files.places()
    files.close()
    return FollowedFiles(files.pattern, places)


def test_lines_come_once_and_only_when_they_are_whole(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    add(log, "1", "2")
    files = FollowedFiles(str(log), {})
    assert read(files, most=1) == ["1", "2"]
    add(log, "hal", end="")
    assert read(files) == []
    add(log, "f", "", "4")
    assert read(again(files)) == ["half", "4"]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_rotated_file_is_read_to_its_end(tmp_path: Path, restarted: bool) -> None:
    log = tmp_path / "a.log"
    add(log, "1")
    files = FollowedFiles(str(log), {})
    assert read(files) == ["1"]
    add(log, "2")
    log.rename(tmp_path / "a.log.1")
    add(log, "3")
    if restarted:
        files = again(files)
    assert sorted(read(files)) == ["2", "3"]
    add(tmp_path / "a.log.1", "late")
    assert read(files) == ["late"]
    for _ in range(2):
        read(files, now=NOW + 2 * AFTER_ROTATION_S)
    assert [one.path for one in files.files()] == [str(log)]


@pytest.mark.parametrize("same", [True, False])
def test_a_file_that_shrank(tmp_path: Path, same: bool) -> None:
    log = tmp_path / "a.log"
    add(log, *("x" * 100 for _ in range(2 + HEAD_BYTES // 100)))
    first = log.stat().st_size
    add(log, "taken back")
    files = FollowedFiles(str(log), {})
    read(files)
    os.truncate(log, first if same else 0)
    assert read(files) == []
    add(log, "new")
    assert read(files) == ["new"]
    assert len(files.notes) == 1


def test_an_inode_that_is_used_again_is_another_file(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    add(log, "old " * 100)
    files = FollowedFiles(str(log), {})
    read(files)
    os.truncate(log, 0)
    add(log, "new " * 200)
    assert read(again(files)) == ["new " * 200]


def test_a_file_that_is_gone_is_told_after_a_minute(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    add(log, "1")
    files = FollowedFiles(str(tmp_path / "*.log"), {})
    read(files)
    log.unlink()
    gone = again(files)
    for now in (1e6, 1e6 + 0.9 * AFTER_ROTATION_S):
        assert read(gone, now=now) == []
        assert len(gone.places()) == 1
    read(gone, now=1e6 + AFTER_ROTATION_S)
    assert "is gone" in gone.notes[0]
    assert gone.places() == {}


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("away", ["moved", "empty"])
@pytest.mark.parametrize("asleep", [False, True])
def test_files_that_are_away_for_some_looks_are_read_on(
    tmp_path: Path, restarted: bool, away: str, asleep: bool
) -> None:
    """As where a disk is not mounted yet, or somebody moves a folder away and back."""
    folder, elsewhere = tmp_path / "logs", tmp_path / "elsewhere"
    folder.mkdir()
    add(folder / "a.log", "1")
    files = FollowedFiles(str(folder / "*.log"), {})
    start = 1e6
    assert read(files, now=start) == ["1"]
    if asleep:
        start += ASLEEP_AFTER_S
        assert read(files, now=start) == []
    folder.rename(elsewhere)
    if away == "empty":
        folder.mkdir()
    if restarted:
        files = again(files)
    for after in (1.0, 0.9 * AFTER_ROTATION_S):
        assert read(files, now=start + after) == []
    if away == "empty":
        folder.rmdir()
    elsewhere.rename(folder)
    add(folder / "a.log", "2")
    assert read(files, now=start + AFTER_ROTATION_S) == ["2"]
    assert files.notes == []


def test_packed_files_and_folders_are_left_alone(tmp_path: Path) -> None:
    add(tmp_path / "a.log.gz", "packed")
    (tmp_path / "a.log.d").mkdir()
    add(tmp_path / "a.log", "1")
    assert read(FollowedFiles(str(tmp_path / "a.log*"), {})) == ["1"]


def test_a_line_that_is_too_long_is_told_once(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    add(log, "1", "x" * (2 * MAX_LINE_BYTES + 10), "3")
    found = read(FollowedFiles(str(log), {}))
    assert found == ["1", "too long", "3"]


@pytest.mark.parametrize("content", [b"", b"\n \n"])
def test_nothing_to_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.log").write_bytes(content)
    assert read(FollowedFiles(str(tmp_path / "a.log"), {})) == []
