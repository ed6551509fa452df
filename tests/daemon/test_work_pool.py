"""Work done in pieces: each piece once, drawn as workers become free, and again where a worker is lost."""

from __future__ import annotations

import concurrent.futures
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from daemon.exits import EX_TEMPFAIL, UserError
from daemon.work_pool import AHEAD, ATTEMPTS, Workers, done_by


class Breaking(ThreadPoolExecutor):
    """A pool of threads that breaks at some of all submits, and has done before then what it was given."""

    breaks_at: frozenset[int] = frozenset()
    submits = 0

    def __init__(self, count: int, *_: object, **__: object) -> None:
        super().__init__(count)

    def submit(self, *call: Any, **named: Any) -> Future[Any]:
        Breaking.submits += 1
        if Breaking.submits in self.breaks_at:
            raise BrokenProcessPool("a worker is gone")
        future = super().submit(*call, **named)
        concurrent.futures.wait([future])
        return future


@pytest.fixture
def break_at(monkeypatch: pytest.MonkeyPatch) -> Any:
    def arranged(*submits: int) -> None:
        monkeypatch.setattr(Breaking, "breaks_at", frozenset(submits))
        monkeypatch.setattr(Breaking, "submits", 0)
        monkeypatch.setattr(concurrent.futures, "ProcessPoolExecutor", Breaking)

    return arranged


def square(number: int) -> int:
    return number * number


@pytest.mark.parametrize("submit", range(1, 9))
def test_a_pool_that_breaks_at_any_submit_loses_no_piece(submit: int, break_at: Any) -> None:
    break_at(submit)
    done = list(done_by(Workers(2), square, range(10)))
    assert sorted(done) == [(number, number**2) for number in range(10)]


def test_a_pool_that_breaks_again_and_again_ends_it_with_a_remedy(break_at: Any) -> None:
    break_at(*range(6, 100))  # after one piece is done
    notes: list[str] = []
    done = done_by(Workers(2), square, range(10), notes.append)
    next(done)
    with pytest.raises(UserError, match=f"lost {ATTEMPTS} times in a row") as raised:
        list(done)
    assert "--workers" in raised.value.remedy
    assert len(notes) == ATTEMPTS - 1


def test_pieces_are_drawn_as_workers_become_free(break_at: Any) -> None:
    break_at()
    drawn: list[int] = []

    def pieces() -> Iterator[int]:
        for number in range(30):
            drawn.append(number)
            yield number

    for done, _ in enumerate(done_by(Workers(2), square, pieces()), 1):
        assert len(drawn) <= done + 2 * AHEAD
    assert drawn == list(range(30))


def test_alone_in_this_process_pieces_are_drawn_and_done_in_order() -> None:
    drawn: list[int] = []

    def pieces() -> Iterator[int]:
        for number in range(9):
            drawn.append(number)
            yield number

    for done, (piece, outcome) in enumerate(done_by(Workers(), square, pieces())):
        assert (piece, outcome) == (done, done**2)
        assert len(drawn) <= max(AHEAD, done + 1)


def killed_once(folder: Path, number: int) -> int:
    """The process is killed the first time that it does piece 3, and piece 5 cannot be done."""
    if number == 3 and not (folder / "killed").exists():
        (folder / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 5:
        raise UserError("no such thing as 5", "leave it out")
    return number * number


def bug(number: int) -> int:
    return 1 // (number - 3)


def test_a_worker_that_is_killed_costs_its_piece_twice_and_an_error_comes_in_its_place(
    tmp_path: Path,
) -> None:
    notes: list[str] = []
    outcomes = dict(done_by(Workers(2), partial(killed_once, tmp_path), range(8), notes.append))
    assert (tmp_path / "killed").exists()
    assert [note for note in notes if "done again" in note] == notes != []
    assert str(outcomes.pop(5)) == "no such thing as 5\nleave it out"
    assert outcomes == {number: number**2 for number in (0, 1, 2, 3, 4, 6, 7)}


@pytest.mark.parametrize("workers", [Workers(), Workers(2)])
def test_a_bug_ends_everything(workers: Workers, break_at: Any) -> None:
    break_at()
    with pytest.raises(ZeroDivisionError):
        list(done_by(workers, bug, range(8)))


def short_of_memory(piece: int) -> int:
    raise MemoryError("Unable to allocate 9 GiB" if piece else "")


def test_memory_that_runs_out_is_a_matter_of_workers() -> None:
    refused = dict(done_by(Workers(), short_of_memory, [0, 1]))
    for piece, text in enumerate(("not enough memory", "not enough memory: Unable to allocate 9 GiB")):
        error = refused[piece]
        assert isinstance(error, UserError)
        assert (error.message, error.code) == (text, EX_TEMPFAIL)
        assert "fewer --workers" in error.remedy
        assert "what is done is kept" in error.remedy
