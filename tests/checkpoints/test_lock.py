"""Who holds a folder, and who is the next to."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from checkpoints.commit import WriterLock


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "versions").mkdir()
    return tmp_path


def test_who_takes_over_is_the_next_and_nobody_comes_between(root: Path) -> None:
    first, second, third = (WriterLock(root) for _ in range(3))
    assert first.take()
    second.be_next()
    assert not second.take(), "it is the next, and the first one holds the folder still"
    first.release()
    assert not third.take(), "it is free, and promised"
    assert third.holder() == os.getpid()
    assert second.take()
    assert not third.take()
    second.release()
    assert third.take(), "nothing of the turn is left"


def test_a_turn_ends_with_who_had_it(root: Path) -> None:
    first, second, third = (WriterLock(root) for _ in range(3))
    assert first.take()
    second.be_next()
    first.release()
    second.release()
    assert third.holder() is None
    assert third.take()


def test_of_two_that_take_over_the_second_waits_for_its_turn(root: Path) -> None:
    first, second, third = (WriterLock(root) for _ in range(3))
    assert first.take()
    second.be_next()
    third.be_next()
    first.release()
    assert not third.take()
    assert second.take()
    second.release()
    assert third.take()


def test_who_only_asks_whether_somebody_is_next_keeps_nobody_off(root: Path) -> None:
    asks = os.open(root / "versions", os.O_RDONLY)
    fcntl.flock(asks, fcntl.LOCK_SH)
    first = WriterLock(root)
    assert first.holder() is None
    assert first.take()
    os.close(asks)


def test_before_the_first_version_there_is_no_turn_to_hold(tmp_path: Path) -> None:
    first, second = WriterLock(tmp_path), WriterLock(tmp_path)
    second.be_next()
    assert first.take()
    assert not second.take()
