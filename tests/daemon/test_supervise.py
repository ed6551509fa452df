"""Restart decisions as tables; supervision, lifelines and signals with real processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from daemon.config.schema import HttpConfig
from daemon.exits import (
    EX_CANTCREAT,
    EX_CONFIG,
    EX_DATAERR,
    EX_SOFTWARE,
    EX_TEMPFAIL,
    EX_UNAVAILABLE,
    EX_USAGE,
    UserError,
)
from daemon.look.live import UpStatus, role_status
from daemon.runtime.runtime import Signals
from daemon.up.restarts import (
    MOST_REASON,
    WITH_AN_END,
    Finished,
    Restart,
    RestartPolicy,
    RoleReport,
    StayDown,
    decide,
    not_ready,
    reason_of,
    with_failure,
)
from daemon.up.role_process import TRIPLETD, RoleProcess
from daemon.up.supervisor import RoleSpec, Supervisor, UpHealth
from tests.harness.signals import stands_still
from tests.harness.waiting import until

PYTHON = (sys.executable,)
ROOT = Path(__file__).parents[2]
POLICY = RestartPolicy(window_s=100.0, first_delay_s=1.0, max_delay_s=3.0)
QUICK = RestartPolicy(window_s=100.0, first_delay_s=0.01, max_delay_s=0.02, settled_s=0.5)
BOUNDED = replace(QUICK, most_failures=3)


@pytest.mark.parametrize(
    ("returncode", "failures", "expected"),
    [
        (0, (), Finished()),
        (0, (99.0, 99.5), Finished()),
        (EX_SOFTWARE, (), Restart(1.0)),
        (EX_TEMPFAIL, (99.0,), Restart(2.0)),
        (EX_UNAVAILABLE, (98.0, 99.0), Restart(3.0)),
        (-signal.SIGKILL, (), Restart(1.0)),
        (1, (-50.0, -1.0, -0.5), Restart(1.0)),
    ],
)
def test_what_is_started_again(returncode: int, failures: tuple[float, ...], expected: object) -> None:
    assert decide(returncode, failures, 100.0, POLICY) == expected


@pytest.mark.parametrize("code", [EX_USAGE, EX_DATAERR, EX_CANTCREAT, EX_CONFIG])
def test_what_another_start_cannot_cure_stays_down_at_once(code: int) -> None:
    assert decide(code, (), 100.0, POLICY) == StayDown(code)


@pytest.mark.parametrize("code", [EX_UNAVAILABLE, EX_SOFTWARE, EX_TEMPFAIL, 1, -9])
def test_everything_else_is_tried_again_for_ever_at_most_30_s_apart(code: int) -> None:
    now, failures, waits = 0.0, list[float](), list[float]()
    for _ in range(200):
        decision = decide(code, failures, now, RestartPolicy())
        assert isinstance(decision, Restart)
        waits.append(decision.delay_s)
        failures = with_failure(failures, now)
        now += decision.delay_s + 2.0
    assert waits[:7] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    assert max(waits) == 30.0
    assert min(waits[20:]) == 30.0
    assert len(failures) < 20


@pytest.mark.parametrize(("returncode", "code"), [(EX_TEMPFAIL, EX_TEMPFAIL), (-9, EX_SOFTWARE)])
def test_a_run_with_an_end_does_not_try_for_ever(returncode: int, code: int) -> None:
    failures = (95.0, 96.0, 97.0, 98.0, 99.0)
    assert decide(returncode, failures, 100.0, WITH_AN_END) == StayDown(code)
    assert isinstance(decide(returncode, failures[1:], 100.0, WITH_AN_END), Restart)


def test_a_supervisor_is_ready_when_all_its_roles_run() -> None:
    learn, serve = RoleReport("learn", "running"), RoleReport("serve", "running")
    assert not_ready([learn, serve], 7) is None
    assert not_ready([learn, replace(serve, state="finished")], 7) is None
    assert not_ready([learn, RoleReport("serve")], 7) == "serve is being started"
    tried = replace(serve, state="waiting", exit=69, reason="no broker")
    assert not_ready([learn, tried], 7) == "serve failed and is started again: no broker (exit 69)"
    assert not_ready([learn, replace(tried, state="starting")], 7) == not_ready([learn, tried], 7)
    down = replace(learn, state="down", exit=-9, reason="gone")
    told = not_ready([down, serve], 7)
    assert told == "learn is down: gone (SIGKILL); fix what it says, then start it again with `kill -HUP 7`"


def test_the_reason_is_what_the_role_said_last_or_what_its_code_means() -> None:
    assert reason_of(65, "records expired\n  accept the gap\n") == "records expired; accept the gap"
    assert reason_of(78, "") == "wrong configuration"
    assert reason_of(-9, "") == "it was killed"
    assert reason_of(3, "") == "its log says why"
    assert len(reason_of(65, "long " * 200)) == MOST_REASON


class Recorder:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **fields: Any) -> None:
        self.lines.append((event, fields))

    warning = error = info

    def count(self, event: str) -> int:
        return sum(line == event for line, _ in self.lines)


def role(name: str, script: str, ends_all: bool = False) -> RoleSpec:
    return RoleSpec(name, ("-c", textwrap.dedent(script)), ends_all)


def supervise(
    *specs: RoleSpec,
    grace_s: float = 10.0,
    signals: Signals | None = None,
    policy: RestartPolicy = BOUNDED,
    on_change: Callable[[Sequence[RoleReport]], None] = lambda reports: None,
    at_stake: Callable[[], bool] = lambda: True,
    log: Recorder | None = None,
    start: type[RoleProcess] = RoleProcess,
) -> tuple[int, Recorder]:
    log = log or Recorder()
    supervisor = Supervisor(
        specs,
        lambda spec: start(spec.name, spec.arguments, prefix=False, program=PYTHON),
        signals or Signals(),
        log,
        policy=policy,
        grace_s=grace_s,
        on_change=on_change,
        at_stake=at_stake,
    )
    return supervisor.run(), log


PATIENT = """
    import signal, sys, time
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    time.sleep(60)
"""
STUBBORN = """
    import pathlib, signal, sys, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pathlib.Path({path!r}).touch()
    time.sleep(60)
"""


def test_all_finished_is_success() -> None:
    code, log = supervise(role("a", "pass"), role("b", "pass"))
    assert code == 0
    assert log.count("finished") == 2


def test_a_crashed_role_is_started_again(tmp_path: Path) -> None:
    marker = tmp_path / "once"
    script = f"""
        import os, pathlib
        marker = pathlib.Path({str(marker)!r})
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), 9)
    """
    code, log = supervise(role("a", script))
    assert code == 0
    assert log.count("started") == 2


def test_crash_after_crash_of_a_run_with_an_end_ends_with_the_roles_code() -> None:
    code, log = supervise(role("a", "raise SystemExit(75)"), role("b", "pass"))
    assert code == EX_TEMPFAIL
    assert log.count("started") == 1 + 1 + (BOUNDED.most_failures or 0)


ANSWERING = "import pathlib, time; time.sleep(0.5); pathlib.Path({path!r}).touch()"


@pytest.mark.parametrize("refused", [EX_USAGE, EX_DATAERR, EX_CANTCREAT, EX_CONFIG])
def test_a_role_that_cannot_go_on_stays_down_alone(tmp_path: Path, refused: int) -> None:
    answered, told = tmp_path / "answered", []
    learn = replace(role("learn", f"raise SystemExit({refused})"), finished=lambda: told.append("learn"))
    code, log = supervise(learn, role("serve", ANSWERING.format(path=str(answered))), policy=QUICK)
    assert code == refused
    assert answered.exists()
    assert (log.count("started"), log.count("stopping"), told) == (2, 0, ["learn"])


def test_while_there_is_nothing_to_answer_with_a_refusal_ends_all_at_once() -> None:
    code, log = supervise(role("a", "raise SystemExit(78)"), role("b", PATIENT), at_stake=lambda: False)
    assert code == EX_CONFIG
    assert (log.count("started"), log.count("failed, giving up")) == (2, 1)


def test_when_every_role_is_refused_it_ends_at_once_with_the_code_of_the_first(tmp_path: Path) -> None:
    told = tmp_path / "told"

    def first_is_down(reports: Sequence[RoleReport]) -> None:
        if reports[0].state == "down":
            told.touch()

    second = f"""
        import pathlib, time
        while not pathlib.Path({str(told)!r}).exists():
            time.sleep(0.01)
        raise SystemExit(65)
    """
    code, log = supervise(
        role("a", "raise SystemExit(78)"),
        role("b", second),
        policy=RestartPolicy(),
        on_change=first_is_down,
    )
    assert code == EX_CONFIG
    assert log.count("started") == 2


def test_a_role_that_fails_again_and_again_takes_nobody_along(tmp_path: Path) -> None:
    answered = tmp_path / "answered"
    seen: list[Sequence[RoleReport]] = []
    signals = Signals()

    def stop_after_both(reports: Sequence[RoleReport]) -> None:
        seen.append(reports)
        # Between two tries: one that is ending by itself as it is stopped would end all with its code.
        if answered.exists() and reports[0].failures > 5 and reports[0].state == "waiting":
            signals.request_stop()

    code, log = supervise(
        role("learn", "raise SystemExit(69)"),
        role("serve", ANSWERING.format(path=str(answered)) + "; time.sleep(600)"),
        policy=QUICK,
        signals=signals,
        on_change=stop_after_both,
    )
    assert code == 0
    assert {reports[1].state for reports in seen} == {"running"}
    assert log.count("failed, starting it again") > 5


MENDED = """
    import pathlib, signal, sys, time
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if not pathlib.Path({path!r}).exists():
        sys.exit(65)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    time.sleep(60)
"""


def test_a_reload_starts_what_is_down_and_its_trouble_is_told_until_it_holds(tmp_path: Path) -> None:
    mended, signals = tmp_path / "mended", Signals()
    seen: list[Sequence[RoleReport]] = []

    def mend() -> None:
        until(lambda: seen and seen[-1][0].state == "down")
        mended.touch()
        signals.request_reload()
        until(lambda: seen[-1][0].state == "running")
        signals.request_stop()

    threading.Thread(target=mend).start()
    serve = role("serve", MENDED.format(path=str(tmp_path)))
    code, _ = supervise(
        role("learn", MENDED.format(path=str(mended))),
        serve,
        policy=QUICK,
        signals=signals,
        on_change=seen.append,
    )
    assert code == 0, "what was down has been started, and was stopped as asked"
    states = [state for state, _ in groupby((reports[0].state, reports[0].exit) for reports in seen)]
    assert states == [("running", None), ("down", 65), ("starting", 65), ("running", None)]


LISTENING = """
    import pathlib, signal, sys, time
    told = pathlib.Path({path!r})
    signal.signal(signal.SIGUSR1, lambda *_: told.write_text(told.read_text() + "asked "))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    told.write_text("")
    time.sleep(60)
"""


def test_a_request_for_versions_is_handed_on_to_all_that_have_run_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new, signals = tmp_path / "old", tmp_path / "new", Signals()
    told: list[list[str]] = []

    class Log(Recorder):
        def info(self, event: str, **fields: Any) -> None:
            if event == "SIGUSR1 handed on":
                told.append(fields["roles"])

    def ask() -> None:
        until(lambda: old.exists() and new.exists())
        signals.request_checkpoint()
        until(lambda: told == [[]])
        monkeypatch.setattr("daemon.up.supervisor.HANDLER_S", 0.0)
        signals.request_checkpoint()
        try:
            until(lambda: (old.read_text(), new.read_text()) == ("asked ", "asked "), seconds=20)
        finally:
            signals.request_stop()

    monkeypatch.setattr("daemon.up.supervisor.HANDLER_S", 60.0)
    asking = threading.Thread(target=ask)
    asking.start()
    roles = (role(name, LISTENING.format(path=str(tmp_path / name))) for name in ("old", "new"))
    code, _ = supervise(*roles, signals=signals, log=Log())
    asking.join()
    assert (code, told) == (0, [[], ["old", "new"]])
    assert (old.read_text(), new.read_text()) == ("asked ", "asked ")


def test_the_usual_port_of_up_may_be_taken_one_that_was_chosen_may_not() -> None:
    log = Recorder()
    with socket.create_server(("127.0.0.1", 0)) as taken, ExitStack() as stack:
        port = taken.getsockname()[1]
        usual = HttpConfig.model_construct({"host"}, host="127.0.0.1", up_port=port)
        UpHealth(stack, usual, "checkpoints", log).set_reports([RoleReport("learn", "running")])
        assert log.count("no metrics and health of up itself: set http.up_port") == 1
        with pytest.raises(UserError, match="is taken") as refused:
            UpHealth(stack, HttpConfig(up_port=port), "checkpoints", log)
    assert refused.value.code == EX_UNAVAILABLE


def test_what_up_says_of_itself_is_read_as_status_and_as_readiness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.look.live._TIMEOUT_S", 60.0)  # on a busy machine two seconds are soon over
    log = Recorder()
    with ExitStack() as stack:
        health = UpHealth(stack, HttpConfig(up_port=0), "/here", log)
        (url,) = (fields["url"] for _, fields in log.lines)
        port = int(url.rpartition(":")[2])
        health.set_reports(
            [RoleReport("learn", "down", 65, "records expired", 1), RoleReport("serve", "running")]
        )
        told = role_status("127.0.0.1", port)
        assert isinstance(told, UpStatus)
        assert told.trouble() == {"learn": "DOWN: records expired (exit 65)"}
        assert (told.line(), told.checkpoints) == ("runs learn, serve", "/here")
        assert told.not_ready is not None
        assert told.not_ready.startswith("learn is down: records expired (exit 65); fix what it says")
        health.set_reports(
            [RoleReport("learn", "waiting", -9, "it was killed", 2), RoleReport("serve", "running")]
        )
        told = role_status("127.0.0.1", port)
        assert isinstance(told, UpStatus)
        assert told.trouble() == {"learn": "failed, is started again: it was killed (SIGKILL)"}
        health.set_reports([RoleReport("learn", "running"), RoleReport("serve", "running")])
        told = role_status("127.0.0.1", port)
        assert isinstance(told, UpStatus)
        assert (told.trouble(), told.not_ready) == ({}, None)


def test_why_a_role_failed_is_what_it_told_last() -> None:
    script = """
        from daemon.exits import EX_DATAERR, UserError, report
        raise SystemExit(report(UserError("records expired", "accept the gap", EX_DATAERR), debug=False))
    """
    seen: list[Sequence[RoleReport]] = []
    code, log = supervise(role("learn", script), role("b", "pass"), on_change=seen.append)
    assert (code, seen[-1][0].reason) == (EX_DATAERR, "records expired; accept the gap")
    ((_, told),) = [line for line in log.lines if line[0].startswith("failed")]
    assert told["reason"] == seen[-1][0].reason
    assert f"kill -HUP {os.getpid()}" in told["remedy"]


def test_a_role_that_ends_all_stops_the_others() -> None:
    code, _ = supervise(role("a", "import time; time.sleep(0.5)", ends_all=True), role("b", PATIENT))
    assert code == 0


def test_a_stop_reaches_every_role_and_the_stubborn_are_killed(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    signals, log = Signals(), Recorder()

    class Meanwhile(RoleProcess):
        """The first that is waited for: the other one has ended by then, however long that takes it."""

        def finish(self, timeout_s: float) -> int:
            if self.name == "a":
                pids = {fields["role"]: fields["pid"] for event, fields in log.lines if event == "started"}
                until(lambda: not alive(pids["b"]), "b stops")
            return super().finish(timeout_s)

    def stop_when_ready() -> None:
        until(ready.exists)
        signals.request_stop()

    threading.Thread(target=stop_when_ready).start()
    spec = role("a", STUBBORN.format(path=str(ready)))
    code, _ = supervise(spec, role("b", PATIENT), grace_s=0.5, signals=signals, log=log, start=Meanwhile)
    assert code == EX_TEMPFAIL
    assert [log.count(what) for what in ("stopping", "stopped", "did not stop cleanly")] == [1, 1, 1]


def test_a_role_stopped_before_it_had_a_handler_has_stopped_cleanly() -> None:
    code, log = supervise(
        role("a", "import time; time.sleep(0.5)", ends_all=True), role("b", "import time; time.sleep(60)")
    )
    assert code == 0
    assert log.count("did not stop cleanly") == 0


def test_prefixed_lines_carry_the_roles_name(capfd: pytest.CaptureFixture[str]) -> None:
    script = "import sys; sys.stderr.write('one\\ntwo'); print('data')"
    process = RoleProcess("learn", ("-c", script), prefix=True, program=PYTHON)
    assert process.finish(60.0) == 0
    assert process._reader is not None
    process._reader.join(60.0)  # `finish` waits for a moment: another process may hold that stream open
    out, err = capfd.readouterr()
    assert err == "learn    | one\nlearn    | two\n"
    assert out == "data\n"


PARENT = """
import sys, time
from daemon.up.role_process import RoleProcess
process = RoleProcess("child", ("-c", {child!r}), prefix=False, program=(sys.executable,))
print(process.pid, flush=True)
time.sleep(60)
"""
CHILD = """
import pathlib, signal, sys, time
from daemon.runtime.leaving import follow_lifeline
def stop(*_):
    pathlib.Path({marker!r}).write_text("stopped gently")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
assert follow_lifeline() is not None
pathlib.Path({ready!r}).touch()
time.sleep(60)
"""


def test_a_child_ends_gently_when_its_parent_is_killed(tmp_path: Path) -> None:
    ready, marker = tmp_path / "ready", tmp_path / "marker"
    child = CHILD.format(marker=str(marker), ready=str(ready))
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(child=child)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        try:
            until(ready.exists)
        finally:
            parent.kill()
    until(lambda: not alive(pid))
    assert marker.read_text() == "stopped gently"


LOGGING = """
import sys
from daemon.runtime.logs import configure, get_logger
configure(format="json", role="learn")
sys.stdin.read()
get_logger().info("nobody reads this")
print("went on", flush=True)
"""


def test_a_role_goes_on_when_nobody_reads_its_log() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", LOGGING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with process:
        assert process.stderr is not None
        process.stderr.close()
        process.stderr = None
        out, _ = process.communicate(timeout=60)
    assert out == "went on\n"


def test_a_process_without_a_lifeline_follows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    from daemon.runtime.leaving import LIFELINE, follow_lifeline

    monkeypatch.delenv(LIFELINE, raising=False)
    assert follow_lifeline() is None


SIGNALLED = """
import sys
from daemon.runtime.runtime import Signals
with Signals() as signals:
    print("ready", flush=True)
    for line in sys.stdin:
        requests = signals.take_checkpoint_request(), signals.take_checkpoint_request()
        print(signals.stopping, *requests, flush=True)
"""


@pytest.fixture
def signalled() -> Any:
    process = subprocess.Popen(
        [sys.executable, "-c", SIGNALLED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()


def ask(process: Any) -> str:
    process.stdin.write("?\n")
    process.stdin.flush()
    return str(process.stdout.readline()).strip()


def test_the_first_signal_asks_the_second_ends(signalled: Any) -> None:
    assert ask(signalled) == "False False False"
    signalled.send_signal(signal.SIGTERM)
    assert ask(signalled) == "True False False"
    signalled.send_signal(signal.SIGINT)
    assert signalled.wait(10) == 128 + signal.SIGINT


def test_a_checkpoint_request_is_taken_once(signalled: Any) -> None:
    signalled.send_signal(signal.SIGUSR1)
    assert ask(signalled) == "False True False"


def test_sigusr2_shows_the_stacks_and_nothing_ends(signalled: Any) -> None:
    signalled.send_signal(signal.SIGUSR2)
    assert ask(signalled) == "False False False"
    signalled.stdin.close()
    assert signalled.wait(10) == 0
    assert "most recent call first" in signalled.stderr.read()


STARTING = """
import sys
from daemon.runtime.leaving import leave_on_signals
leave_on_signals()
print("ready", flush=True)
sys.exit(len(sys.stdin.read()))
"""


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1])
def test_what_up_hands_on_ends_no_role_that_is_still_starting(number: signal.Signals) -> None:
    words = [sys.executable, "-c", STARTING]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as role:
        assert role.stdout is not None
        assert role.stdout.readline() == "ready\n"
        role.send_signal(number)
        role.communicate("four", timeout=10)
        assert role.returncode == 4


def alive(pid: int) -> bool:
    # A killed parent leaves its child to init, or to nobody in a container: a zombie has ended.
    return not stands_still(pid, "ZX")


def test_a_role_starts_where_folders_bear_the_packages_names(tmp_path):
    for name in ("checkpoints", "streams", "learners", "daemon"):
        (tmp_path / name).mkdir()
    done = subprocess.run([*TRIPLETD, "--version"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("tripletd ")
