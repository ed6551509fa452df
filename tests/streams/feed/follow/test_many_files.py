"""Each of many files by itself: what cannot be opened is left out, what was read needs no descriptor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from streams.feed.follow import files as followed
from streams.feed.follow.files import AFTER_ROTATION_S, ASLEEP_AFTER_S, FollowedFiles
from streams.feed.follow.intake import Intake

FEW = 3


def add(path: Path, *lines: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)


def read(files: FollowedFiles, now: float = 0.0) -> list[str]:
    files.look(now)
    found = []
    for one in files.files():
        while records := files.read(one, 1_000, now):
            found += [(record.value or b"").decode() for record in records]
    return found


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def many(tmp_path: Path) -> Iterator[FollowedFiles]:
    for number in range(40):
        add(tmp_path / f"{number:02d}.log", f"{number}")
    before = descriptors()
    with closing(FollowedFiles(str(tmp_path / "*.log"), {}, FEW)) as files:
        assert read(files) == [str(number) for number in range(40)]
        assert descriptors() - before <= FEW
        yield files
    assert descriptors() == before


def test_many_files_need_few_descriptors_and_late_lines_are_read(many: FollowedFiles, tmp_path: Path) -> None:
    assert read(many) == []
    for number in (0, 20, 39):
        add(tmp_path / f"{number:02d}.log", f"late {number}")
    assert sorted(read(many) + read(many)) == ["late 0", "late 20", "late 39"]
    assert len(many.files()) <= FEW
    assert len(many.places()) == 40


def test_many_files_are_known_after_a_restart(many: FollowedFiles, tmp_path: Path) -> None:
    places = many.places()
    add(tmp_path / "07.log", "late")
    before = descriptors()
    with closing(FollowedFiles(many.pattern, places, FEW)) as again:
        assert descriptors() - before <= FEW
        assert read(again) == ["late"]
        assert again.notes == []


def test_a_sleeping_file_that_was_removed_is_no_loss(many: FollowedFiles, tmp_path: Path) -> None:
    for path in tmp_path.iterdir():
        path.unlink()
    many.look(1.0)
    many.look(1.0 + 2 * AFTER_ROTATION_S)
    assert (many.places(), many.notes, many.missing_bytes) == ({}, [], 0)


def test_a_sleeping_file_is_read_on_under_its_new_name(many: FollowedFiles, tmp_path: Path) -> None:
    (tmp_path / "05.log").rename(tmp_path / "05.log.1")
    add(tmp_path / "05.log", "new")
    add(tmp_path / "05.log.1", "late")
    assert sorted(read(many, 1.0) + read(many, 2.0)) == ["late", "new"]


def test_a_quiet_file_is_closed_and_its_time_still_counts(tmp_path: Path) -> None:
    add(tmp_path / "a.log", "1")
    before = descriptors()
    with closing(Intake([str(tmp_path / "a.log")], {}, 100)) as intake:
        lane, _ = intake.next(10, 0.0) or (None, None)
        assert lane is not None
        lane.saw(5_000)
        assert intake.next(10, 0.0) is None
        assert intake.next(10, 2 * ASLEEP_AFTER_S) is None
        assert descriptors() == before
        assert intake.watermark(2 * ASLEEP_AFTER_S) > 5_000 + 1000 * ASLEEP_AFTER_S
        add(tmp_path / "a.log", "2")
        found = intake.next(10, 2 * ASLEEP_AFTER_S + 2)
        assert found is not None
        assert [record.value for record in found[1]] == [b"2"]


@pytest.mark.parametrize("kind", ["loop", "broken", "through a file", "too long"])
def test_a_path_that_cannot_be_opened_is_left_out_until_it_can(tmp_path: Path, kind: str) -> None:
    bad, good = tmp_path / "bad.log", tmp_path / "good.log"
    add(tmp_path / "file", "x")
    target = {"loop": "bad.log", "broken": "gone", "through a file": "file/x", "too long": "x" * 300}[kind]
    bad.symlink_to(target)
    add(good, "1")
    with closing(Intake([str(tmp_path / "*.log")], {}, 100)) as intake:
        found = intake.next(10, 0.0)
        assert found is not None
        assert [record.value for record in found[1]] == [b"1"]
        found[0].saw(1_000)
        assert intake.next(10, 0.0) is None
        (why,) = intake.trouble()
        assert why.startswith(str(bad))
        assert intake.at_rest()
        assert intake.watermark(0.0) == 900, "others go on"
        bad.unlink()
        add(bad, "2")
        found = intake.next(10, 2.0)
        assert found is not None
        assert [record.value for record in found[1]] == [b"2"]
        assert intake.trouble() == []


def test_a_file_that_cannot_be_opened_for_a_while_is_read_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also over a restart: its place is kept."""
    add(tmp_path / "a.log", "1")
    add(tmp_path / "b.log", "1")
    files = FollowedFiles(str(tmp_path / "*.log"), {})
    assert read(files) == ["1", "1"]
    places, real = files.places(), os.open
    files.close()
    add(tmp_path / "a.log", "2")
    add(tmp_path / "b.log", "2")

    def refusing(path: str, *given: int) -> int:
        if str(path).endswith("a.log"):
            raise PermissionError(13, "Permission denied")
        return real(path, *given)

    monkeypatch.setattr(followed.os, "open", refusing)
    again = FollowedFiles(files.pattern, places)
    assert read(again) == ["2"]
    assert again.left_out == {str(tmp_path / "a.log"): "Permission denied"}
    places = again.places()
    again.close()
    once_more = FollowedFiles(files.pattern, places)
    monkeypatch.undo()
    assert read(once_more) == ["2"]
    assert once_more.left_out == {}
    once_more.close()


def test_what_an_emptied_file_held_unread_is_counted(tmp_path: Path) -> None:
    """As `copytruncate` does it, and the file is longer again before the next look."""
    log = tmp_path / "a.log"
    add(log, "1", "22", "333")
    with closing(FollowedFiles(str(log), {})) as files:
        files.look(0.0)
        (one,) = files.files()
        assert len(files.read(one, 1, 0.0)) == 1
        os.truncate(log, 0)
        add(log, *("new" for _ in range(10)))
        assert len(files.read(one, 100, 1.0)) == 10
        assert (files.cut, files.missing_bytes) == (1, len("22\n333\n"))
        assert "7 bytes that were seen are not read" in files.notes[0]
        assert "create" in files.notes[0]


def test_a_name_that_is_no_text_can_be_told(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff.log")
    (tmp_path / name).symlink_to(name)
    with closing(Intake([str(tmp_path / "*.log")], {}, 100)) as intake:
        intake.next(10, 0.0)
        (why,) = intake.trouble()
        assert why.encode()
