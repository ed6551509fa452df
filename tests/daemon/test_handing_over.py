"""Who takes connections from which socket, and the order of a rolling restart, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import get_args

import pytest

from daemon.up.handing_over import RollingRestart, State, shared_out


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["ready", "ready"], [[0], [1]]),
        (["ready", "draining"], [[0, 1], []]),
        (["gone", "ready", "ready", "starting"], [[], [1, 0], [2, 3], []]),
        (["not_ready", "starting"], [[0, 1], []]),
        (["starting", "starting"], [[0], [1]]),
        (["draining", "gone"], [[0, 1], []]),
        (["gone", "gone"], [[], []]),
    ],
)
def test_sockets_go_to_those_who_answer(states: Sequence[State], expected: list[list[int]]) -> None:
    assert shared_out(states) == expected


def test_every_socket_has_one_process_as_long_as_any_lives() -> None:
    for states in product(get_args(State), repeat=3):
        taken = sorted(number for share in shared_out(states) for number in share)
        assert taken == ([] if set(states) == {"gone"} else [0, 1, 2]), states


def test_one_after_another_is_started_again_when_all_answer() -> None:
    rolling = RollingRestart(2)
    assert rolling.next(["ready", "ready"], [1, 1]) is None  # nobody has asked
    rolling.begin()
    assert rolling.next(["ready", "starting"], [1, 1]) is None
    assert rolling.next(["ready", "ready"], [1, 1]) == 0
    assert rolling.next(["ready", "ready"], [1, 1]) is None  # it has not ended yet
    assert rolling.next(["draining", "ready"], [1, 1]) is None
    assert rolling.next(["starting", "ready"], [2, 1]) is None
    assert rolling.next(["ready", "ready"], [2, 1]) == 1
    assert rolling.next(["ready", "ready"], [2, 2]) is None
