"""The watchdog in a real learner: what hangs ends it with 70 and its stacks, what is merely slow does not."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from daemon.exits import EX_OK, EX_SOFTWARE
from daemon.up.restarts import Restart, RestartPolicy, decide
from streams.open import open_sink
from streams.source import OutRecord, parse_address
from tests.harness import forked
from tests.harness.kill.events import event_bytes
from tests.harness.kill.joins import Shop, difference
from tests.harness.kill.learners import Process, catch_up, wait_until
from tests.harness.kill.site import DENSE, Site, embedded, make_site

pytestmark = pytest.mark.kill

LIMIT = 2.0  # seconds; the slow patches take three times that


def fed(folder: Path, count: int = 300) -> Site:
    """A site with a stream of `count` events, learned in small batches."""
    site = make_site(folder, every="1h", poll_records=50, case=DENSE)
    feed(site, count)
    return site


def feed(site: Site, count: int, first: int = 0) -> None:
    rng = np.random.default_rng(first)
    with closing(open_sink(site.address)) as sink:
        sink.send([OutRecord(event_bytes(rng, first + n, sparse=False)) for n in range(count)])


@contextmanager
def patched(site: Site, what: str, *arguments: str) -> Iterator[Process]:
    limit = ("--set", f"stream.stuck_after={LIMIT}s")
    with Process(site, *limit, *arguments, program=("-m", "tests.harness.kill.patched", what)) as learner:
        yield learner


@pytest.mark.parametrize(
    ("what", "who"),
    [
        ("stuck_poll", "the reader thread has not moved for 2 s (poll)"),
        ("stuck_loop", "the loop has not moved for 2 s (a turn of the loop)"),
        ("stuck_housekeeping", "the housekeeping thread has not moved for 2 s (noting the position)"),
    ],
)
def test_what_hangs_ends_the_process_with_its_stacks(tmp_path: Path, what: str, who: str) -> None:
    site = fed(tmp_path)
    with patched(site, what, "--set", "checkpoints.every_events=50") as learner:
        assert learner.wait() == EX_SOFTWARE
        said = learner.said()
    assert f"tripletd: stuck: {who}" in said
    assert "in never" in said  # the stack of what hangs
    assert isinstance(decide(EX_SOFTWARE, (), 0.0, RestartPolicy()), Restart)
    assert catch_up(site).state_hash == catch_up(site.again("whole", every="1h")).state_hash


@pytest.mark.parametrize("what", ["slow_step", "slow_fsync"])
def test_what_is_merely_slow_does_not(tmp_path: Path, what: str) -> None:
    site = fed(tmp_path)
    with patched(site, what, "--exit-when-caught-up", "--set", "checkpoints.every_events=50") as learner:
        assert learner.wait() == EX_OK, learner.said()
    assert site.newest().counters["records"] == 300


def test_a_learner_that_was_suspended_goes_on(tmp_path: Path) -> None:
    site = fed(tmp_path)
    with Process(site, "--set", f"stream.stuck_after={LIMIT}s") as learner:
        wait_until(lambda: learner.metric("tripletd_events_total") > 0, learner)
        learner.signal(signal.SIGSTOP)
        wait_until(learner.frozen)
        time.sleep(2 * LIMIT)
        learner.signal(signal.SIGCONT)
        feed(site, 100, first=300)
        # All but the few that are refused; the lag that metrics give may be that of before.
        wait_until(lambda: learner.metric("tripletd_events_total") > 385, learner)
        assert learner.get("livez")[0] == 200
        learner.signal(signal.SIGTERM)
        assert learner.wait() == EX_OK, learner.said()
    assert site.newest().counters["records"] == 400


def test_a_record_that_crashes_the_process_twice_is_left_out(tmp_path: Path) -> None:
    site, plain = fed(tmp_path / "site", 120), fed(tmp_path / "plain", 120)
    rng = np.random.default_rng(7)
    with closing(open_sink(site.address)) as sink:
        sink.send([OutRecord(event_bytes(rng, 120, sparse=False, poison=False))])
    for one in (site, plain):
        feed(one, 60, first=200)
    for _ in range(3):
        with patched(site, "fatal_record", "--exit-when-caught-up") as learner:
            assert learner.wait() == -signal.SIGSEGV, learner.said()
    with patched(site, "fatal_record", "--exit-when-caught-up") as learner:
        assert learner.wait() == EX_OK, learner.said()
        assert "Fatal Python error: Segmentation fault" in learner.said()
    assert site.newest().counters["poison.suspect"] == 1
    assert site.newest().state_hash == catch_up(plain).state_hash


def follows(shop: Shop, name: str, program: str) -> tuple[int, str]:
    """A follower's exit code and what it said, once it has caught up or died."""
    words = ["feed", "--follow", "--config", str(shop.config(name)), "--exit-when-caught-up"]
    command = [sys.executable, "-m", *program.split(), *words]
    log = shop.folder / f"{name}.stderr"
    with log.open("wb") as stderr:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = forked.run(command, stderr=stderr, stdin=subprocess.DEVNULL, env=environment, timeout=60)
    return done.returncode, log.read_text()


def test_a_line_that_crashes_the_follower_twice_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    killed, spared = (parse_address(embedded(folder)) for folder in (tmp_path, tmp_path / "other"))
    shop = Shop(tmp_path, killed, spared, random.Random(3))
    shop.begin()
    shop.more(30)
    fatal = json.dumps({"event": "other", "fatal": True}).encode()
    with (tmp_path / "taps.log").open("ab") as file:
        file.write(fatal + b"\n")
    shop.more(30)
    for _ in range(3):  # with others in hand, and twice alone
        code, said = follows(shop, "killed", "tests.harness.kill.patched fatal_line")
        assert code == -signal.SIGSEGV, said
    code, said = follows(shop, "killed", "tests.harness.kill.patched fatal_line")
    assert code == EX_OK, said
    assert follows(shop, "spared", "daemon")[0] == EX_OK
    assert difference(shop) == (0, 0, 0)
    assert '"suspect"' in said
