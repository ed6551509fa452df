"""A full disk: learning goes on, the alarm is raised, and space alone brings the versions back."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

from daemon.exits import EX_TEMPFAIL
from tests.harness.kill.events import Feeder, Pace
from tests.harness.kill.hosted import FAILURES
from tests.harness.kill.learners import Learner, Start, catch_up, wait_until
from tests.harness.kill.life import temporary_files
from tests.harness.kill.random_kills import same_effect
from tests.harness.kill.site import SPARSE, Case, Site, make_site
from tests.harness.kill.small_disk import SmallDisk, small_disk
from tests.harness.kill.tally import Tally

GENTLE = Pace(pause_s=0.01, most=8, poison=False)
"""No poison: the stand-in for a full disk would also refuse the embedded log its dead letters."""


def full_disk(
    folder: Path, stream_in: Callable[[Path], str], start: Start, times: int, case: Case = SPARSE
) -> Tally:
    """Fill the disk and free it, `times` times; at last SIGTERM while it is full."""
    tally = Tally(f"full disk, {case}")
    leaving = 0.0
    with small_disk(folder / "site" / "killed") as disk:
        tally.what += " (a stand-in)" if disk.stand_in else ""
        address = stream_in(folder)
        settings = {"case": case, "keep": 4, "every": "50ms", "learner": {"dedupe_window": 2000}}
        site = make_site(folder / "site", address, **settings)
        with Feeder(site, 4, GENTLE), start(site) as learner:
            wait_until(lambda: len(site.versions.versions()) > 2, learner)
            for number in range(times):
                with tally.case(f"time {number}"):
                    _fill_and_free(site, disk, learner)
            with tally.case("SIGTERM on a full disk"):
                leaving = _leave_on_a_full_disk(site, disk, learner)
        with tally.case("the same bits"):
            whole = make_site(folder / "site", address, "whole", **(settings | {"every": "1h"}))
            same_effect(catch_up(site, start), catch_up(whole, start))
    tally.worst = f"SIGTERM on a full disk: {leaving:.2f} s"
    return tally


def _fill_and_free(site: Site, disk: SmallDisk, learner: Learner) -> None:
    alarms = learner.metric(FAILURES)
    disk.fill(learner)
    wait_until(lambda: learner.metric(FAILURES) >= alarms + 3, learner)
    stands = site.versions.newest_valid(_damaged)
    steps = learner.metric("tripletd_events_total")
    wait_until(lambda: learner.metric("tripletd_events_total") > steps + 100, learner)
    assert temporary_files(site) <= 1, "temporary files pile up"
    assert stands is not None
    assert stands.manifest.number in site.versions.versions(), "the last good version went"
    disk.free(learner)
    wait_until(lambda: site.versions.versions()[-1] > stands.manifest.number, learner)


def _leave_on_a_full_disk(site: Site, disk: SmallDisk, learner: Learner) -> float:
    """Seconds from SIGTERM to the exit."""
    alarms = learner.metric(FAILURES)
    disk.fill(learner)
    wait_until(lambda: learner.metric(FAILURES) > alarms + 1, learner)
    began = time.monotonic()
    learner.signal(signal.SIGTERM)
    code = learner.wait()
    seconds = time.monotonic() - began
    assert code == EX_TEMPFAIL, f"{code}: {learner.said()}"
    assert "the last version could not be written" in learner.said()
    assert "nothing is lost" in learner.said()
    disk.free(learner)
    return seconds


def _damaged(error: Exception) -> None:
    raise AssertionError(f"damaged: {error}")
