"""Long work gives way while questions come, and is not slowed down while nobody asks."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.serve.retrieve.searcher import ALONE_S, ASKED_S, PIECE_S, Pace, next_size


class Time:
    """A clock that moves when somebody works or sleeps."""

    def __init__(self) -> None:
        self.now, self.slept = 100.0, list[float]()

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)


def work(pace: Pace, time: Time, count: int, each_s: float) -> list[slice]:
    """What `count` units of work are cut into, each of which takes so long."""
    cut = []
    for piece in pace.pieces(count):
        cut.append(piece)
        time.now += each_s * (piece.stop - piece.start)
    return cut


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def pace(time: Time) -> Pace:
    return Pace(time.clock, time.sleep)


@given(st.integers(0, 500), st.floats(1e-7, 1e-2), st.booleans())
def test_everything_is_done_once_and_in_order(count: int, each_s: float, asked: bool) -> None:
    time = Time()
    pace = Pace(time.clock, time.sleep)
    if asked:
        pace.asked()
    cut = work(pace, time, count, each_s)
    assert all(before.stop == after.start for before, after in pairwise(cut))
    assert sum(piece.stop - piece.start for piece in cut) == count
    assert not cut or cut[0].start == 0


def test_while_questions_come_a_piece_is_short_and_a_rest_as_long(pace: Pace, time: Time) -> None:
    pace.asked()
    cut = work(pace, time, 5_000, 1e-5)
    spent = [1e-5 * (piece.stop - piece.start) for piece in cut]
    assert max(spent) <= PIECE_S * 1.001
    assert time.slept == pytest.approx(spent)


def test_while_nobody_asks_there_is_no_rest(pace: Pace, time: Time) -> None:
    pace.asked()
    time.now += ASKED_S
    cut = work(pace, time, 5_000, 1e-5)
    assert time.slept == []
    assert ALONE_S / 2 < max(1e-5 * (piece.stop - piece.start) for piece in cut) <= ALONE_S * 1.001


def test_a_question_in_between_makes_pieces_short_again(pace: Pace, time: Time) -> None:
    lengths = []
    for number, piece in enumerate(pace.pieces(20_000)):
        lengths.append(1e-5 * (piece.stop - piece.start))
        time.now += lengths[-1]
        if number == 12:
            pace.asked()
    assert max(lengths[:13]) > PIECE_S * 2
    assert max(lengths[14:]) <= PIECE_S * 1.001


def test_work_in_coarse_units_goes_on_one_by_one(pace: Pace, time: Time) -> None:
    pace.asked()
    assert {piece.stop - piece.start for piece in work(pace, time, 5, 1.0)} == {1}


def test_the_size_grows_at_most_twofold_and_never_below_one() -> None:
    assert next_size(8, 0.0, PIECE_S) == 16
    assert next_size(8, PIECE_S * 2, PIECE_S) == 4
    assert next_size(1, 1.0, PIECE_S) == 1
