"""Work for people who look: one at a time, few waiting, within a budget, and nobody waits for ever."""

from __future__ import annotations

import threading

import pytest

from daemon.serve.http.offload import Busy, LowPriorityExecutor, TimeBudget

LONG = 60.0


def test_one_at_a_time_in_a_thread_of_its_own() -> None:
    apart, at_work, most = LowPriorityExecutor("apart"), 0, 0

    def work() -> int:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        at_work -= 1
        return threading.get_ident()

    threads = {apart.start(work).result(LONG) for _ in range(4)}
    assert most == 1
    assert threading.get_ident() not in threads


def test_what_it_raises_is_raised_where_it_is_waited_for() -> None:
    with pytest.raises(ZeroDivisionError):
        LowPriorityExecutor("apart").call(lambda: 1 // 0, LONG, LONG)
    with pytest.raises(TimeoutError, match="its own"):
        LowPriorityExecutor("apart").call(_late, LONG, LONG)


def test_who_waits_too_long_for_the_turn_or_the_end_is_told() -> None:
    apart, go_on, done = LowPriorityExecutor("apart", waiting=1), threading.Event(), []
    with pytest.raises(Busy, match="did not finish"):
        apart.call(lambda: go_on.wait(LONG), LONG, 0.0)
    with pytest.raises(Busy, match="same time"):
        apart.call(lambda: done.append("never"), 0.0, LONG)
    with pytest.raises(Busy, match="too many"):  # the one that gave up still has its place
        apart.start(lambda: None)
    go_on.set()
    last = LowPriorityExecutor("apart").call(lambda: "after", LONG, LONG)
    assert (last, done) == ("after", [])


def test_a_budget_comes_back_with_time() -> None:
    now = 0.0
    allowance = TimeBudget(share=0.25, most=10.0, clock=lambda: now)
    for seconds in (8.0, 8.0):  # the second one may begin: there was something left
        with allowance.spending():
            now += seconds
    with pytest.raises(Busy) as refused, allowance.spending():
        pass
    now += refused.value.seconds
    with allowance.spending():
        now += 1.0
    now += 1000.0
    with allowance.spending():
        now += 10.5
    with pytest.raises(Busy), allowance.spending():
        pass


def _late() -> None:
    raise TimeoutError("its own")
