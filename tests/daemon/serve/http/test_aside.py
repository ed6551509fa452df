"""Calls beside the event loop: bounded in number and time, and never lost."""

from __future__ import annotations

import asyncio
import threading

import pytest

from daemon.serve.http.errors import Problem
from daemon.serve.http.offload import BoundedThreads
from tests.harness.waiting import until


def test_results_and_errors_come_back() -> None:
    async def use() -> None:
        aside = BoundedThreads(2, 60.0)
        assert await asyncio.gather(*(aside.run(lambda n=n: n * n) for n in range(20))) == [
            n * n for n in range(20)
        ]
        with pytest.raises(ZeroDivisionError):
            await aside.run(lambda: 1 // 0)
        assert await aside.run(lambda: "still") == "still"

    asyncio.run(use())


def test_one_that_never_ends_is_503_and_counts_until_it_ends() -> None:
    release, running = threading.Event(), []

    def stuck() -> None:
        running.append(1)
        release.wait(30)

    async def use() -> None:
        aside = BoundedThreads(1, 0.1)
        for _ in range(3):  # the second and third wait for the first's turn in vain
            with pytest.raises(Problem, match="did not finish within") as told:
                await aside.run(stuck)
            assert told.value.status == 503
        until(lambda: running, "its thread has begun")
        assert running == [1]
        release.set()
        for _ in range(100):
            try:
                assert await aside.run(lambda: 7) == 7
                return
            except Problem:
                continue
        raise AssertionError("its turn never came back")

    asyncio.run(use())


def test_no_more_than_so_many_run_at_once() -> None:
    most, now, lock, full = [0], [0], threading.Lock(), threading.Event()

    def count() -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
            if now[0] == 3:
                full.set()
        full.wait(30)  # the first ones for each other, however late their threads begin
        threading.Event().wait(0.005)
        with lock:
            now[0] -= 1

    async def use() -> None:
        aside = BoundedThreads(3, 60.0)
        await asyncio.gather(*(aside.run(count) for _ in range(30)))

    asyncio.run(use())
    assert most == [3]
