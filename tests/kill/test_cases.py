"""What crash tests rest on: a line for every algorithm, and a server that outlasts a broken-off test."""

from __future__ import annotations

import os
import signal
import threading
import tomllib
from pathlib import Path

import pytest

from daemon.config.learners import LEARNERS
from tests.harness.kill.forks import Forks
from tests.harness.kill.learners import wait_until
from tests.harness.kill.site import CASES, make_site


def test_no_learner_is_left_out() -> None:
    tables = [tomllib.loads(case.learner) for case in CASES]
    assert {table.get("algorithm", "oasis") for table in tables} == set(LEARNERS)


def test_a_test_whose_time_is_up_spoils_no_other(tmp_path: Path, forks: Forks) -> None:
    """Nobody stays for the answer; the next one asks for something else."""

    def interrupt(*_: object) -> None:
        raise InterruptedError

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with forks(make_site(tmp_path)) as learner:
            wait_until(lambda: '"url"' in learner.said(), learner)
            timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1))
            timer.start()
            with pytest.raises(InterruptedError):
                learner.wait(2.0)
            assert learner.running
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert learner.wait() == -signal.SIGKILL
    assert learner.wait() == -signal.SIGKILL
