"""A second learner on the same host: refused at its start, told to both, and let in where it is asked for."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from daemon.exits import EX_CANTCREAT, EX_OK, EX_TEMPFAIL
from tests.harness.kill.forks import Forks
from tests.harness.kill.learners import Process, wait_until
from tests.harness.kill.site import Site, make_site
from tests.harness.kill.written import Written

pytestmark = pytest.mark.kill


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return make_site(tmp_path)


def test_a_second_learner_is_refused_and_the_first_goes_on(site: Site, forks: Forks) -> None:
    events = Written(site)
    events.more(50)
    with forks(site) as first:
        wait_until(lambda: site.versions.versions()[1:], first)
        before = site.versions.listing.claims()
        with forks(site) as second:
            assert second.wait() == EX_TEMPFAIL, second.said()
            assert f"another learner (process {first.pid}) on this host" in second.said()
            assert "--take-over" in second.said()
            wait_until(lambda: f'"process": {second.pid}' in first.said(), first)
        assert site.versions.listing.claims() == before, "a refused start takes nothing"
        events.more(50)
        newest = site.versions.versions()[-1]
        events.more(50)
        wait_until(lambda: site.versions.versions()[-1] > newest, first)
        first.signal(signal.SIGTERM)
        assert first.wait() == EX_OK, first.said()


def test_who_takes_over_stays_and_the_other_says_so_at_once(tmp_path: Path, forks: Forks) -> None:
    """Nothing is learned and no version is due: the first one hears of it all the same."""
    site = make_site(tmp_path, every="1h")
    events = Written(site)
    events.more(50)
    with forks(site) as first:
        wait_until(lambda: first.metric("tripletd_events_total") >= 20, first)
        with forks(site, "--take-over") as second:
            wait_until(lambda: f'"process": {first.pid}' in second.said(), second)
            with forks(site) as third:  # it waits for a first one that ends, as of a restart
                assert first.wait() == EX_CANTCREAT, first.said()
                assert f"process {second.pid}" in first.said()
                assert third.wait() == EX_TEMPFAIL, third.said()
                assert f"process {second.pid}" in third.said()
            wait_until(lambda: second.metric("tripletd_events_total") >= 20, second)
            second.signal(signal.SIGTERM)
            assert second.wait() == EX_OK, second.said()


def test_a_killed_learner_is_succeeded_without_a_word(site: Site, forks: Forks) -> None:
    events = Written(site)
    for _ in range(3):
        events.more(20)
        with forks(site) as learner:
            wait_until(lambda: site.versions.versions()[1:], learner)
            learner.kill()
    with forks(site, "--exit-when-caught-up") as last:
        assert last.wait() == EX_OK, last.said()
        assert "another learner" not in last.said()


def test_a_learner_that_comes_while_the_first_one_stops_waits_for_its_end(site: Site, forks: Forks) -> None:
    """On a busy machine that end may take longer than a start waits for."""
    Written(site).more(50)
    patient = ("-m", "tests.harness.kill.patched", "patient_start")
    with forks(site) as first:
        wait_until(lambda: site.versions.versions()[1:], first)
        first.signal(signal.SIGTERM)
        with Process(site, "--exit-when-caught-up", program=patient) as second:
            assert second.wait() == EX_OK, second.said()
        assert first.wait() == EX_OK, first.said()
