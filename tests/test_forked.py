"""A forked `tripletd` is what a started one is, but for the cost of its imports."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from daemon.exits import EX_TEMPFAIL
from daemon.runtime.leaving import LIFELINE, open_lifeline
from tests.harness import forked
from tests.harness.waiting import until

ROOT = Path(__file__).parents[1]
TRIPLETD = [sys.executable, "-P", "-m", "daemon"]
PLAIN = {name: value for name, value in os.environ.items() if not name.startswith("TRIPLETD_")}
PLAIN["PYTHONPATH"] = str(ROOT)
CONFIG = """
[space.views.x]
dim = 3
[http]
learn_port = 0
validate_port = 0
serve_port = 0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tripletd.toml").write_text(CONFIG)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["check", "--json", "--set", "learner.C=0.5"], None),
        (["bogus"], None),
        (["feed", "-", "--to", "log:a.log", "--format", "impressions", "--json"], "no line of clicks\n"),
    ],
)
def test_it_says_and_returns_the_same(folder: Path, words: list[str], given: str | None) -> None:
    environment = PLAIN | {"TRIPLETD_FEED__SEED": "4", "TMPDIR": str(folder)}
    ends = []
    for run in (subprocess.run, forked.run):
        done = run(
            [*TRIPLETD, *words], cwd=folder, env=environment, input=given, capture_output=True, text=True
        )
        ends.append((done.returncode, done.stdout, re.sub(r"[0-9.]+ s,", "", done.stderr)))
        for made in folder.glob("a.log*"):
            made.unlink()
    assert ends[0] == ends[1]
    assert ends[0][1] + ends[0][2]


def seen(process: subprocess.Popen[Any]) -> dict[str, Any]:
    """What the system tells of a process that its start has decided."""
    place = Path(f"/proc/{process.pid}")
    lines = dict(line.split(":\t", 1) for line in (place / "status").read_text().splitlines())
    return {
        "signals": [lines[name] for name in ("SigBlk", "SigIgn", "SigCgt")],
        "folder": os.readlink(place / "cwd"),
        "streams": [os.readlink(place / "fd" / number) for number in "012"],
        "parent": lines["PPid"],
        "group": os.getpgid(process.pid) == process.pid,
        "session": os.getsid(process.pid) == os.getsid(0),
        "kinds": sorted(kinds(place / "fd")),
    }


def kinds(descriptors: Path) -> Iterator[str]:
    """What is open, without the packages that a thread is just importing."""
    for one in descriptors.iterdir():
        with suppress(FileNotFoundError):
            target = os.readlink(one)
            if "site-packages" not in target:
                yield target.partition(":")[0]


def settled(process: subprocess.Popen[Any]) -> dict[str, Any]:
    """What is seen once nothing changed for two seconds: `serve` tells its address while it still starts."""
    found, since = seen(process), time.monotonic()
    while time.monotonic() - since < 2.0:
        time.sleep(0.1)
        if (now := seen(process)) != found:
            found, since = now, time.monotonic()
    return found


@pytest.mark.parametrize("group", [0, None])
def test_it_has_the_same_parent_group_folder_signals_and_descriptors(folder: Path, group: int | None) -> None:
    both: list[subprocess.Popen[Any]] = []
    said = (folder / "log").read_text
    found: list[dict[str, Any]] = []

    def alike() -> bool:
        found[:] = [settled(process) for process in both]
        return found[0] == found[1]

    try:
        for number, begin in enumerate((subprocess.Popen, forked.Popen), 1):
            with (folder / "log").open("ab") as log:
                process = begin(
                    [*TRIPLETD, "serve"],
                    cwd=folder,
                    env=PLAIN,
                    stdin=subprocess.DEVNULL,
                    stderr=log,
                    process_group=group,
                )
            both.append(process)
            until(lambda wanted=number: said().count('"url"') == wanted, said, 240.0)
        until(alike, lambda: found)  # on a busy machine a start may stand still for more than two seconds
        assert found[0]["parent"] == str(os.getpid())
        for process in both:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    finally:
        for process in both:
            process.kill()
            process.wait()


def test_it_is_a_child_that_can_be_killed_and_waited_for(folder: Path) -> None:
    process = forked.Popen([*TRIPLETD, "serve"], cwd=folder, env=PLAIN, stderr=subprocess.DEVNULL)
    assert process.poll() is None
    process.kill()
    assert process.wait(60) == -signal.SIGKILL
    with pytest.raises(ChildProcessError):
        os.waitpid(process.pid, 0)


def test_it_has_the_descriptors_that_are_passed_on(folder: Path) -> None:
    """A role ends with whoever holds the other end of its lifeline: nobody else may hold it."""
    reads, holds = open_lifeline()
    environment = {**PLAIN, LIFELINE: str(reads)}
    with (folder / "log").open("wb") as log:
        process = forked.Popen(
            [*TRIPLETD, "serve"], cwd=folder, stderr=log, env=environment, pass_fds=(reads,)
        )
    os.close(reads)
    until(lambda: '"url"' in (folder / "log").read_text(), (folder / "log").read_text, 240.0)
    os.close(holds)
    assert process.wait(60) in (0, EX_TEMPFAIL)


def test_what_an_import_would_see_is_started_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*given: object) -> int:
        raise AssertionError("forked")

    monkeypatch.setattr(forked._server, "fork", never)
    program = [*TRIPLETD, "--version"]
    for environment in ({**os.environ, "NUMBA_CACHE_DIR": str(folder)}, {**os.environ, "PYTHONPATH": "/"}):
        assert forked.run(program, cwd=ROOT, env=environment, capture_output=True).returncode == 0
    with pytest.raises(AssertionError, match="forked"):
        forked.run(program)
