"""SIGTERM ends gently; a STOP parks, a RESUME goes on where it stood."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from daemon.exits import EX_OK
from tests.harness.kill.events import Feeder
from tests.harness.kill.forks import Forks
from tests.harness.kill.learners import Process, catch_up, wait_until
from tests.harness.kill.site import make_site

pytestmark = pytest.mark.kill


def test_sigterm_checkpoints_and_exits_zero(tmp_path: Path, forks: Forks) -> None:
    site = make_site(tmp_path, every="1h")
    with Feeder(site, 5) as feeder, Process(site) as learner:
        wait_until(site.versions.versions, learner)
        wait_until(lambda: feeder.written > 500, learner)

        def written() -> bool:  # one that came before anything was learned asks for nothing
            learner.signal(signal.SIGUSR1)
            return len(site.versions.versions()) > 1

        wait_until(written, learner)
        learner.signal(signal.SIGTERM)
        assert learner.wait() == EX_OK, learner.said()
        stopped = site.newest()
    assert 0 < stopped.positions[0].next_offset == stopped.counters["records"]
    whole = catch_up(site.again("whole", every="1h"), forks)
    resumed = catch_up(site, forks)
    assert (resumed.state_hash, resumed.counters) == (whole.state_hash, whole.counters)


def test_parked_by_a_stop_until_a_resume(tmp_path: Path, forks: Forks) -> None:
    site = make_site(tmp_path)
    with Feeder(site, 7) as feeder, forks(site) as learner:
        wait_until(lambda: len(site.versions.versions()) > 1, learner)
        site.ledger.append({"kind": "STOP", "by": "test", "reason": "patience"})
        wait_until(lambda: "parked" in learner.said(), learner)
        parked = site.newest()
        seen = feeder.written
        wait_until(lambda: feeder.written > seen + 200, learner)
        assert site.newest() == parked
        told = "parked: stopped by test: patience; `tripletd resume` continues now\n"
        assert learner.get("readyz") == (503, told)
        site.ledger.append({"kind": "RESUME", "by": "test"})
        wait_until(lambda: site.newest().number > parked.number, learner)
        after = site.versions.manifest(parked.number + 1)
        assert after.schedule[0][1] == parked.positions[0].next_offset
        wait_until(lambda: learner.get("readyz")[0] == 200, learner)
        learner.signal(signal.SIGTERM)
        assert learner.wait() == EX_OK, learner.said()
    assert catch_up(site, forks).state_hash == catch_up(site.again("whole", every="1h"), forks).state_hash
