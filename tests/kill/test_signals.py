"""SIGTERM ends gently; a learner that was frozen while another took over writes nothing more."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from daemon.exits import EX_OK, EX_TEMPFAIL
from tests.kill.harness import Feeder, Learner, catch_up, make_site, wait_until

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


def test_a_thawed_learner_that_was_succeeded_exits_without_writing(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    with Feeder(site, 6, sparse=True):
        frozen = Learner(site)
        wait_until(lambda: len(site.versions.versions()) > 2, frozen)
        os.kill(frozen.process.pid, signal.SIGSTOP)
        at_freeze = site.versions.versions()[-1]
        successor = Learner(site)
        try:
            wait_until(lambda: len(site.versions.versions()) > at_freeze + 5, successor)
            os.kill(frozen.process.pid, signal.SIGCONT)
            assert frozen.wait() == EX_TEMPFAIL, frozen.said()
            assert "taken over" in frozen.said()
            successor.process.terminate()
            assert successor.wait() == EX_OK, successor.said()
        finally:
            frozen.close()
            successor.close()
    written = [site.versions.manifest(n) for n in site.versions.versions() if n > at_freeze]
    assert len({manifest.writer for manifest in written}) == 1
    whole = catch_up(make_site(tmp_path, "whole", every="1h"))
    assert catch_up(site).state_hash == whole.state_hash
