"""SIGTERM while the stream does not answer: what is learned is durable, and the process ends in time."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from daemon.exits import EX_OK, EX_TEMPFAIL
from streams.open import open_sink
from streams.source import OutRecord
from tests.harness.kill.events import MARK, NAN, NOT_AN_EVENT, POISON_EVERY, event_bytes
from tests.harness.kill.learners import Learner, Process, catch_up, wait_until
from tests.harness.kill.site import DENSE, Site, make_site

pytestmark = pytest.mark.kill

MOST_SECONDS = 30.0
"""Far above the 2 s that are promised, for a loaded machine; what hangs in these tests hangs for ever."""


def clean_events(count: int) -> list[bytes]:
    """Events without any poison among them."""
    rng = np.random.default_rng(3)
    numbers = [n for n in range(2 * count + 10) if n % POISON_EVERY != 1]
    return [event_bytes(rng, number, sparse=False) for number in numbers[:count]]


def site_with(folder: Path, values: list[bytes]) -> Site:
    site = make_site(folder, every="1h", poll_records=50, case=DENSE)
    with closing(open_sink(site.address)) as sink:
        sink.send([OutRecord(value) for value in values])
    return site


def patched(site: Site, what: str) -> Learner:
    return Process(site, program=("-m", "tests.harness.kill.patched", what))


def told_to_leave(learner: Learner) -> int:
    began = time.monotonic()
    learner.signal(signal.SIGTERM)
    code = learner.wait(MOST_SECONDS)
    print(f"SIGTERM to exit: {time.monotonic() - began:.2f} s")
    return code


def learned(learner: Learner) -> float:
    return learner.metric("tripletd_events_total")


def started_site(folder: Path, values: list[bytes], before: int = 100) -> Site:
    """A site whose maps are fitted and whose first `before` events are learned."""
    site = site_with(folder, values[:before])
    catch_up(site)
    with closing(open_sink(site.address)) as sink:
        sink.send([OutRecord(value) for value in values[before:]])
    return site


def test_with_a_stream_that_never_answers_again(tmp_path: Path) -> None:
    site = started_site(tmp_path, clean_events(300))
    with patched(site, "silent_source") as learner:
        wait_until(lambda: learned(learner) > 0, learner)
        assert told_to_leave(learner) == EX_OK, learner.said()
        assert "left behind" in learner.said()
    assert site.newest().counters["records"] > 100
    whole = site.again("whole", every="1h")
    assert catch_up(site).state_hash == catch_up(whole).state_hash


def test_while_poison_cannot_be_written_the_batch_is_left_out(tmp_path: Path) -> None:
    events = clean_events(240)
    events[200] = NOT_AN_EVENT
    site = started_site(tmp_path, events)
    with patched(site, "silent_sink") as learner:
        wait_until(lambda: learned(learner) > 0, learner)
        assert told_to_leave(learner) == EX_OK, learner.said()
    stopped = site.newest()
    assert 100 < stopped.counters["records"] == stopped.positions[0].next_offset <= 200


def test_while_rejected_events_cannot_be_written_the_version_before_stands(tmp_path: Path) -> None:
    """There is no event boundary: their batch is applied, and its position must not be passed."""
    events = clean_events(120)
    events[110] = events[110].replace(MARK.tobytes(), NAN.tobytes())
    site = started_site(tmp_path, events)
    before = site.newest()
    with patched(site, "silent_sink") as learner:
        wait_until(lambda: learned(learner) > 0, learner)
        assert told_to_leave(learner) == EX_TEMPFAIL, learner.said()
        assert "no last version" in learner.said()
    assert site.newest() == before


def test_in_the_middle_of_starting_there_is_nothing_to_finish(tmp_path: Path) -> None:
    """Warming up for objects that never come."""
    site = site_with(tmp_path, clean_events(10))
    with Process(site) as learner:
        wait_until(lambda: learner.get("readyz")[1].startswith("warming up"), learner)
        assert told_to_leave(learner) == EX_OK, learner.said()
    assert site.versions.versions() == []


def test_while_the_start_waits_for_a_stream_there_is_nothing_to_finish(tmp_path: Path) -> None:
    site = site_with(tmp_path, clean_events(10))
    with patched(site, "mute_source") as learner:
        learner.url()
        assert told_to_leave(learner) == EX_OK, learner.said()


def test_as_soon_as_signals_are_heard_at_all_a_stop_is_an_orderly_end(tmp_path: Path) -> None:
    site = site_with(tmp_path, clean_events(10))
    with Process(site, real=True) as learner:
        wait_until(lambda: hears(learner, signal.SIGTERM), learner)
        assert told_to_leave(learner) == EX_OK, learner.said()


def hears(learner: Learner, number: int) -> bool:
    """Whether the process has a handler for a signal."""
    for line in Path(f"/proc/{learner.pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


@pytest.mark.parametrize(("word", "handler"), [("learn", "leave_at_once"), ("status", "SIG_DFL")])
def test_a_role_hears_signals_before_it_imports_its_command_line(word: str, handler: str) -> None:
    program = f"""
import signal, sys, types
sys.argv = ["tripletd", "{word}"]
stub = types.ModuleType("daemon.cli")
handler = lambda: getattr(signal.getsignal(signal.SIGTERM), "__name__", "SIG_DFL")
stub.main = lambda: print(handler(), len(sys.modules)) or 0
sys.modules["daemon.cli"] = stub
from daemon.__main__ import start
start()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    said, modules = done.stdout.split()
    assert said == handler
    assert int(modules) < 150, "the console command imports much before it hears signals"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, EX_OK), (signal.SIGINT, 128 + signal.SIGINT)])
@pytest.mark.parametrize("word", ["learn", "validate", "serve", "up"])
def test_a_stop_while_a_role_imports_its_first_module_ends_with_0(word: str, number: int, code: int) -> None:
    """Whatever takes time to import comes after the handlers: `typing` is the first that does."""
    program = f"""
import builtins, os, sys
sys.argv = ["tripletd", "{word}"]
really = builtins.__import__
def hook(name, *rest, **more):
    if name == "typing":
        os.kill(os.getpid(), {int(number)})
    return really(name, *rest, **more)
builtins.__import__ = hook
from daemon.__main__ import start
start()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")
