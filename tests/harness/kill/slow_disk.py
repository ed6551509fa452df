"""A disk that takes for ever to make anything durable: the steps go on, at their own pace, with versions by
the clock, and wait with versions by count.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

from checkpoints.local import Files, Folders, Fs
from checkpoints.publisher import Published
from daemon.exits import EX_OK
from tests.harness.kill.events import Feeder, Pace
from tests.harness.kill.hosted import Hosted, learn_all
from tests.harness.kill.learners import wait_until
from tests.harness.kill.random_kills import same_effect
from tests.harness.kill.site import SPARSE, Case, make_site
from tests.harness.kill.tally import Tally

MEANWHILE = 500
"""Steps that must be taken while one fsync stands still."""


class SlowFiles(Files):
    """Every fsync waits for `gate`, or `seconds` when that comes first. waiting: one does; not one that found
    the gate open, which may be on its way still when the gate is closed.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.gate = threading.Event()
        self.waiting = threading.Event()

    def fsync(self, fd: int) -> None:
        if not self.gate.is_set():
            self.waiting.set()
            self.gate.wait(self.seconds)
            self.waiting.clear()
        super().fsync(fd)


def slow_fsync(folder: Path, versions: int, seconds: float | None = None, case: Case = SPARSE) -> Tally:
    """Write `versions` versions whose fsync takes `seconds`, or (None) until enough steps were taken."""
    tally = Tally(f"fsync of {seconds or 'endless'} s, {case}")
    site = make_site(folder, f"memory:{folder}", case=case)
    files = SlowFiles(600.0 if seconds is None else seconds)
    files.gate.set()
    fewest, longest = 1 << 60, 0.0
    with Hosted(site, Fs(files, Folders()), until_caught_up=False) as learner, Feeder(site, 3, Pace(0.001)):
        wait_until(lambda: learner.results)
        files.gate.clear()
        for number in range(versions):
            with tally.case(f"version {number}"):
                steps, silence = _one_slow_version(learner, files, seconds is None)
                fewest, longest = min(fewest, steps), max(longest, silence)
            if tally.bad:
                break
        files.gate.set()
        with tally.case("the end"):
            learner.signals.request_stop()
            assert learner.join() == EX_OK, learner.error
    with tally.case("the same bits"):
        learn_all(site, Fs())
        learn_all(site.again("whole", every="1h"), Fs())
        same_effect(site.newest(), site.again("whole", every="1h").newest())
    tally.worst = f"at least {fewest:,} steps during an fsync, longest pause between steps {longest:.2f} s"
    return tally


def _one_slow_version(learner: Hosted, files: SlowFiles, until_enough: bool) -> tuple[int, float]:
    """Steps while its first fsync stood still, and the longest time without one."""
    wait_until(files.waiting.is_set)
    written, began, before = len(learner.results), learner.events(), learner.events()
    moved, longest = time.monotonic(), 0.0
    while files.waiting.is_set():
        now = learner.events()
        if now > before:
            longest, moved, before = max(longest, time.monotonic() - moved), time.monotonic(), now
        if until_enough and now - began >= MEANWHILE:
            assert len(learner.results) == written, "a version became durable without its fsync"
            files.gate.set()
        assert time.monotonic() - moved < 30, "nothing is learned while an fsync stands still"
        time.sleep(0.002)
    assert before - began >= MEANWHILE, "the loop waited for the disk"
    wait_until(lambda: any(isinstance(one, Published) for one in learner.results[written:]))
    if until_enough:
        files.gate.clear()
    return before - began, longest


def _waits(learner: Hosted) -> None:
    """Stay until it has waited for the disk for a while."""
    waited = learner.metric("tripletd_checkpoint_wait_seconds_total")
    wait_until(lambda: learner.metric("tripletd_checkpoint_wait_seconds_total") > waited + 0.2)


def waits_for_fsync(folder: Path, every_events: int = 100, after: int = 3) -> Tally:
    """Versions by count alone, and an fsync that does not end for a while: no step is taken beyond the next
    one that is due, and afterwards there is one at every multiple.
    """
    tally = Tally(f"fsync without end, every {every_events} events")
    site = make_site(folder, f"memory:{folder}", every="0s", every_events=every_events, poll_records=7)
    files = SlowFiles(600.0)
    files.gate.set()
    with Hosted(site, Fs(files, Folders()), until_caught_up=False) as learner, Feeder(site, 3, Pace(0.001)):
        wait_until(lambda: learner.results)
        files.gate.clear()
        with tally.case("it stands still"):
            wait_until(files.waiting.is_set)
            _waits(learner)  # up to the next version that is due it may learn
            before = learner.events()
            _waits(learner)
            assert before == learner.events(), "learning went on without the disk"
            written = len(site.versions.versions())
        files.gate.set()
        with tally.case("and goes on"):
            wait_until(lambda: len(site.versions.versions()) > written + after)
            assert learner.metric("tripletd_checkpoint_skipped_total") == 0
        learner.signals.request_stop()
        assert learner.join() == EX_OK, learner.error
    numbers = site.versions.versions()
    with tally.case("a version at every multiple"):
        records = [site.versions.manifest(number).counters.get("records", 0) for number in numbers]
        assert records[:-1] == [every_events * number for number in range(len(numbers) - 1)], records
    return tally
