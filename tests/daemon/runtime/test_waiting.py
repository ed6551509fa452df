"""Waiting of a role: nothing that comes is missed or late, and while nothing comes nothing is done."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from prometheus_client import CollectorRegistry

from daemon.runtime.runtime import Signals
from daemon.telemetry.server import Health, serve_http
from tests.harness.waiting import until
from tests.harness.wakes import wakes_a_second

ROOT = Path(__file__).parents[3]
LONG_S = 60.0

AT_EVERY_STEP = """
import faulthandler, signal, sys
from daemon.runtime.runtime import Signals

faulthandler.dump_traceback_later(60, exit=True)

def interrupted(at):
    '''Whether a signal came at this step of a wait; it must end the wait.'''
    left = at

    def trace(frame, event, argument):
        nonlocal left
        frame.f_trace_opcodes = True
        if event in ("line", "opcode") and left >= 0:
            left -= 1
            if left < 0:
                signal.raise_signal(signal.SIGTERM)
        return trace

    with Signals() as signals:
        sys.settrace(trace)
        signals.wait(0.02)
        sys.settrace(None)
        assert signals.stopping or left >= 0
        if left < 0:
            assert signals.wait(60.0), "it has ended the wait, and every one after it"
    return left < 0

steps = 0
while interrupted(steps):
    steps += 1
print(steps)
"""


def test_a_signal_may_come_at_any_step_of_a_wait_and_hangs_nobody() -> None:
    told = subprocess.run(
        [sys.executable, "-c", AT_EVERY_STEP],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert told.returncode == 0, told.stderr[-2000:]
    assert int(told.stdout) >= 5


def test_a_wait_ends_with_whatever_comes() -> None:
    for ask in ("request_stop", "request_reload"):
        signals = Signals()
        threading.Timer(0.05, getattr(signals, ask)).start()
        began = time.monotonic()
        assert signals.wait(LONG_S) == (ask == "request_stop")
        assert time.monotonic() - began < LONG_S / 2
        assert signals.take_reload_request() == (ask == "request_reload")


def test_what_came_before_the_wait_ends_it_too_and_once() -> None:
    signals, heard = Signals(), list[int]()
    signals.listen(lambda: heard.append(1))
    signals.request_reload()
    signals.request_reload()
    assert heard == [1, 1]
    began = time.monotonic()
    assert not signals.wait(LONG_S)
    assert time.monotonic() - began < LONG_S / 2
    assert not signals.wait(0.01), "nothing came since"


def test_the_server_of_health_and_metrics_sleeps_until_it_is_asked() -> None:
    server = serve_http(CollectorRegistry(), Health(), "127.0.0.1", 0)
    thread = server._thread.native_id
    assert thread is not None
    # Not in each second: at first it is still on its way, and waits for the interpreter as well.
    until(lambda: wakes_a_second(os.getpid(), 1.0, [thread]) <= 1, "it sleeps")
    began = time.monotonic()
    server.close()
    assert time.monotonic() - began < LONG_S / 2
