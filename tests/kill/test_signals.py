"""SIGTERM ends gently; a learner that was frozen while another took over writes nothing more."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from daemon.exits import EX_CANTCREAT, EX_OK
from tests.kill.harness import Feeder, Learner, Site, catch_up, make_site, wait_until

pytestmark = pytest.mark.kill


def test_sigterm_checkpoints_and_exits_zero(tmp_path: Path) -> None:
    site = make_site(tmp_path, every="1h")
    with Feeder(site, 5, sparse=True) as feeder:
        learner = Learner(site)
        wait_until(site.versions.versions, learner)
        wait_until(lambda: feeder.written > 500, learner)
        learner.process.send_signal(signal.SIGUSR1)
        wait_until(lambda: len(site.versions.versions()) > 1, learner)
        learner.process.terminate()
        assert learner.wait() == EX_OK, learner.said()
        stopped = site.newest()
    assert 0 < stopped.positions[0].next_offset == stopped.counters["records"]
    whole = catch_up(make_site(tmp_path, "whole", every="1h"))
    resumed = catch_up(site)
    assert (resumed.state_hash, resumed.counters) == (whole.state_hash, whole.counters)


def test_parked_by_a_stop_until_a_resume(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    with Feeder(site, 7, sparse=True) as feeder:
        learner = Learner(site)
        wait_until(lambda: len(site.versions.versions()) > 1, learner)
        site.ledger.append({"kind": "STOP", "by": "test", "reason": "patience"})
        wait_until(lambda: "parked" in learner.said(), learner)
        parked = site.newest()
        seen = feeder.written
        wait_until(lambda: feeder.written > seen + 200, learner)
        assert site.newest() == parked
        assert ready(learner) == (503, "parked: stopped by test: patience\n")
        site.ledger.append({"kind": "RESUME", "by": "test"})
        wait_until(lambda: site.newest().number > parked.number, learner)
        after = site.versions.manifest(parked.number + 1)
        assert after.schedule[0][1] == parked.positions[0].next_offset
        wait_until(lambda: ready(learner)[0] == 200, learner)
        learner.process.terminate()
        assert learner.wait() == EX_OK, learner.said()
    assert catch_up(site).state_hash == catch_up(make_site(tmp_path, "whole", every="1h")).state_hash


def ready(learner: Learner) -> tuple[int, str]:
    """Status and text of /readyz."""
    url = next(line["url"] for line in map(json.loads, learner.said().splitlines()) if "url" in line)
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def freeze_outside_a_write(site: Site, learner: Learner) -> None:
    """Freeze it while it does not hold the log's write lock: frozen with it, it would block every writer."""
    while True:
        os.kill(learner.process.pid, signal.SIGSTOP)
        stat = Path(f"/proc/{learner.process.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
        log = sqlite3.connect(site.address.path, timeout=1.0, isolation_level=None)
        try:
            log.execute("BEGIN IMMEDIATE")
            log.execute("ROLLBACK")
        except sqlite3.OperationalError:
            os.kill(learner.process.pid, signal.SIGCONT)
            time.sleep(0.05)
        else:
            return
        finally:
            log.close()


def test_a_thawed_learner_that_was_succeeded_exits_without_writing(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    with Feeder(site, 6, sparse=True):
        frozen = Learner(site)
        wait_until(lambda: len(site.versions.versions()) > 2, frozen)
        freeze_outside_a_write(site, frozen)
        at_freeze = site.versions.versions()[-1]
        successor = Learner(site)
        try:
            wait_until(lambda: len(site.versions.versions()) > at_freeze + 5, successor)
            os.kill(frozen.process.pid, signal.SIGCONT)
            assert frozen.wait() == EX_CANTCREAT, frozen.said()
            assert "taken over" in frozen.said()
            assert f"process {successor.process.pid}" in frozen.said()
            successor.process.terminate()
            assert successor.wait() == EX_OK, successor.said()
        finally:
            frozen.close()
            successor.close()
    written = [site.versions.manifest(n) for n in site.versions.versions() if n > at_freeze]
    assert len({manifest.writer for manifest in written}) == 1
    whole = catch_up(make_site(tmp_path, "whole", every="1h"))
    assert catch_up(site).state_hash == whole.state_hash
