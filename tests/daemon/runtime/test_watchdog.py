"""Who is stuck and who is not, turn by turn; in real processes: the end, the stacks, a suspended process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from daemon.exits import EX_SOFTWARE
from daemon.runtime.watchdog import TURN_S, Pulse, Watchdog
from tests.harness.signals import stands_still
from tests.harness.waiting import until

ROOT = Path(__file__).parents[3]


class Bench:
    """A watchdog turned by hand."""

    def __init__(self, limit_turns: int) -> None:
        self.barked: list[str] = []
        self.fed = 0
        self.dog = Watchdog(
            limit_turns * TURN_S, self._feed, lambda name, doing, _: self.barked.append(doing)
        )

    def _feed(self) -> None:
        self.fed += 1

    def turn(self, times: int) -> None:
        for _ in range(times):
            self.dog.turn()


def test_a_silent_thread_is_told_of_at_half_the_limit_and_ended_at_the_limit() -> None:
    bench = Bench(10)
    pulse, other = bench.dog.watch("the reader"), bench.dog.watch("the loop")
    pulse.beat("poll")
    other.rest()
    bench.turn(5)
    assert (bench.dog.silent(), bench.fed) == (None, 5)
    bench.turn(1)
    assert bench.dog.silent() == f"the reader has not moved for {5 * TURN_S:.0f} s (poll)"
    assert bench.fed == 5
    bench.turn(4)
    assert bench.barked == []
    bench.turn(1)
    assert bench.barked == ["poll"]
    pulse.beat("poll")
    bench.turn(1)
    assert bench.dog.silent() is None


@pytest.mark.parametrize("how", ["beats", "patient", "rests", "never began"])
def test_who_moves_computes_or_rests_is_not_stuck(how: str) -> None:
    bench = Bench(4)
    pulse = bench.dog.watch("it")
    if how != "never began":
        pulse.beat("poll")
    if how == "rests":
        pulse.rest()
    if how == "patient":
        with pulse.patient("a long projection"):
            bench.turn(50)
    else:
        for _ in range(50):
            if how == "beats":
                pulse.beat("poll")
            bench.turn(1)
    assert bench.barked == []
    assert bench.fed == 50


def test_what_was_done_before_patience_is_watched_again_afterwards() -> None:
    bench, pulse = Bench(3), Pulse("it")
    bench.dog._pulses.append(pulse)
    pulse.beat("a turn")
    with pulse.patient("step"):
        bench.turn(9)
    bench.turn(4)
    assert bench.barked == ["a turn"]


def child(script: str, **pipes: object) -> subprocess.Popen[bytes]:
    program = textwrap.dedent(script)
    return subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, **pipes)


STUCK = """
    import threading
    from daemon.runtime.watchdog import Watchdog
    def never_returns(lock):
        lock.acquire()
    dog = Watchdog(1.0)
    with dog:
        dog.watch("the loop").beat("a turn")
        lock = threading.Lock()
        lock.acquire()
        never_returns(lock)
"""


def test_a_stuck_process_shows_its_stacks_and_ends_with_70() -> None:
    process = child(STUCK, stderr=subprocess.PIPE)
    _, said = process.communicate(timeout=60)
    assert process.returncode == EX_SOFTWARE
    assert b"stuck: the loop has not moved for 1 s (a turn)" in said
    assert b"never_returns" in said


def test_it_ends_although_nobody_reads_what_it_says() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while os.write(writer, b"x" * 4096):
            pass
    except BlockingIOError:
        os.set_blocking(writer, True)
    process = child(STUCK, stderr=writer)
    try:
        assert process.wait(60) == EX_SOFTWARE
    finally:
        os.close(reader)
        os.close(writer)


def test_it_ends_with_its_stacks_although_the_disk_of_its_last_words_hangs() -> None:
    hangs = """
    import threading
    from types import SimpleNamespace
    from daemon.runtime import in_hand, watchdog
    watchdog.DUMP_SECONDS = 2.0
    in_hand._ROLES.append(SimpleNamespace(say=lambda words: threading.Event().wait()))
    """
    process = child(hangs + STUCK, stderr=subprocess.PIPE)
    try:
        _, said = process.communicate(timeout=15)
    finally:
        process.kill()
    assert process.returncode == EX_SOFTWARE
    assert b"never_returns" in said


def test_a_thread_that_spins_is_noticed() -> None:
    """What a client does that never comes back from its poll."""
    process = child(
        """
        from daemon.runtime.watchdog import Watchdog
        dog = Watchdog(1.0)
        with dog:
            dog.watch("the reader").beat("poll")
            while True:
                pass
        """,
        stderr=subprocess.PIPE,
    )
    process.communicate(timeout=60)
    assert process.returncode == EX_SOFTWARE


def test_a_suspended_process_is_not_stuck() -> None:
    """Suspended for longer than the limit, between two beats, and the second one comes late. It suspends
    itself, so that no turn of its watchdog waits for another process."""
    process = child(
        """
        import os, signal, time
        from daemon.runtime.watchdog import Watchdog
        class Counting(Watchdog):
            turns = 0
            def turn(self):
                super().turn()
                self.turns += 1
            def wait(self, count):
                begun = self.turns
                while self.turns < begun + count:
                    time.sleep(0.05)
        dog = Counting(5.0)
        with dog:
            dog.watch("the loop").beat("a turn")
            dog.wait(1)
            os.kill(os.getpid(), signal.SIGSTOP)
            dog.wait(2)
            print("done", flush=True)
        """,
        stderr=subprocess.DEVNULL,
    )
    until(lambda: stands_still(process.pid, "T"), "it is suspended")
    time.sleep(6.0)
    process.send_signal(signal.SIGCONT)
    out, _ = process.communicate(timeout=60)
    assert (out, process.returncode) == (b"done\n", 0)
