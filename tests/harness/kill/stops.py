"""How long a learner takes to leave after SIGTERM, and from its start to its first step."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from daemon.exits import EX_OK
from tests.harness.kill.events import Feeder, Pace
from tests.harness.kill.learners import Learner, Process, catch_up, wait_until
from tests.harness.kill.random_kills import Broker, same_effect
from tests.harness.kill.site import PROJECTED, SPARSE, Case, Site, make_site
from tests.harness.kill.tally import Tally
from tests.harness.kill.written import Written

MOST_SECONDS = 2.0
LARGE = Case("large", 'algorithm = "oasis"', 'kind = "sparse"\ndim = 1500\nmap = "unit"')
VAST = Case("vast", "C = 0.1", 'kind = "sparse"\ndim = 10000\nmap = "unit"')
HUGE = Case("huge", "C = 0.1", 'kind = "sparse"\ndim = 5000\nmap = "unit"')


@dataclass(frozen=True)
class Moment:
    """When SIGTERM comes: with which learner, how it is fed, and what happens right before."""

    name: str
    case: Case = SPARSE
    every: str = "20ms"
    fed: Pace | None = Pace()  # noqa: RUF009 - it is frozen
    linger_s: float = 0.3


IDLE = Moment("idle", fed=None)
MID_BATCH = Moment("in a batch", PROJECTED, every="200ms", fed=Pace(0.02, most=100))
MID_CHECKPOINT = Moment("writing 9 MB", LARGE, every="1ms")
MID_LARGE_CHECKPOINT = Moment("writing 400 MB", VAST, every="1ms", linger_s=1.0)
BROKER_DOWN = Moment("broker down", fed=Pace(poison=False))
"""Without poison: a learner whose dead letters are in doubt has no boundary for a last version."""
MOMENTS = (IDLE, MID_BATCH, MID_CHECKPOINT, MID_LARGE_CHECKPOINT)


def stops(
    folder: Path,
    stream_in: Callable[[Path], str],
    moment: Moment,
    runs: int,
    seed: int,
    broker: Broker | None = None,
) -> Tally:
    """SIGTERM at that moment, `runs` times; the version it leaves is whole, and learning goes on from it."""
    tally = Tally(f"SIGTERM, {moment.name}")
    site = make_site(folder, stream_in(folder), case=moment.case, every=moment.every, keep=5)
    rng, took = random.Random(f"{seed} {moment.name}"), []
    events = Written(site)
    for number in range(runs):
        with tally.case(f"run {number}"):
            took.append(_stop_once(site, moment, events, rng, broker))
    with tally.case(f"p99 below {MOST_SECONDS} s"):
        assert percentile(took, 0.99) < MOST_SECONDS, sorted(took)[-3:]
    with tally.case("the same bits"):
        same_effect(catch_up(site), catch_up(site.again("whole", every="1h")))
    tally.tried = runs
    tally.worst = f"p50 {percentile(took, 0.5):.2f} s, p99 {percentile(took, 0.99):.2f} s"
    return tally


def _stop_once(
    site: Site, moment: Moment, events: Written, rng: random.Random, broker: Broker | None
) -> float:
    before = len(site.versions.versions()) and site.newest().number
    with Process(site) as learner:
        if moment.fed is None:
            events.more(50)
            wait_until(lambda: _learned(site) == events.written, learner)
            return _leave(learner)
        with Feeder(site, rng.randrange(1 << 30), moment.fed):
            wait_until(lambda: site.versions.versions()[-2:] and site.newest().number > before + 1, learner)
            time.sleep(rng.uniform(0, moment.linger_s))
            if broker is None:
                return _leave(learner)
            broker.kill()
            try:
                time.sleep(rng.uniform(0, moment.linger_s))
                return _leave(learner)
            finally:
                broker.revive()


def _learned(site: Site) -> int:
    return int(site.newest().counters.get("records", 0)) if site.versions.versions() else -1


def _leave(learner: Learner) -> float:
    began = time.monotonic()
    learner.signal(signal.SIGTERM)
    code = learner.wait(60)
    seconds = time.monotonic() - began
    assert code == EX_OK, f"{code}: {learner.said()}"
    return seconds


def restarts(folder: Path, stream_in: Callable[[Path], str], runs: int) -> Tally:
    """From the start of the process to its first step, beside the time that reading a W of 100 MB takes."""
    tally = Tally("restart to first step, W of 100 MB")
    site = make_site(folder, stream_in(folder), case=HUGE, every="1h", keep=2)
    events = Written(site)
    events.more(50)
    catch_up(site)
    took = []
    for number in range(runs):
        with tally.case(f"run {number}"):
            began = time.monotonic()
            site.versions.load(site.newest().number)
            reading = time.monotonic() - began
            events.more(50)
            took.append(_first_step(site) - reading)
    with tally.case(f"median below {MOST_SECONDS} s"):
        assert percentile(took, 0.5) < MOST_SECONDS, sorted(took)
    tally.tried = runs
    tally.worst = f"p50 {percentile(took, 0.5):.2f} s, worst {max(took):.2f} s beyond reading W"
    return tally


def _first_step(site: Site) -> float:
    began = time.monotonic()
    with Process(site, real=True) as learner:
        wait_until(lambda: learner.metric("tripletd_events_total") > 0, learner)
        return time.monotonic() - began


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all do not exceed; NaN without any."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")
