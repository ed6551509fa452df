"""Crashes and rivals of learners whose versions are in a bucket, on a server that has faults of its own.

The server is real, and a proxy before it loses answers, tears bodies, and says 409, 500 and 503 to some
requests. No lock holds a second learner off there: a claim decides.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from checkpoints.manifest import Manifest
from daemon.exits import EX_CANTCREAT, EX_OK
from tests.harness.kill.events import Pace
from tests.harness.kill.forks import Forks
from tests.harness.kill.learners import Learner, catch_up, wait_until
from tests.harness.kill.letters import Letters
from tests.harness.kill.points import freeze_while_nobody_writes
from tests.harness.kill.random_kills import Plan, random_kills, same_effect
from tests.harness.kill.shards import random_kills_of_shards
from tests.harness.kill.site import DENSE, KEYED, SPARSE, SYMMETRIC, Site, embedded, make_site
from tests.harness.kill.tally import Tally
from tests.harness.kill.written import Written
from tests.harness.s3_faults import Fault, S3Proxy, s3_proxy
from tests.harness.s3_server import S3Server, s3_server

NOISE = 0.03
"""Share of requests that meet a fault."""
LIFE = {"every": "1h", "every_events": 10, "poll_records": 4, "keep": 2}
"""Versions, a claim, and versions that go, all in one life."""
PACE = Pace(pause_s=0.03)
"""What learners that are killed every second or two keep up with."""
PLANS = (
    Plan(1, SPARSE, every="100ms", poll_records=50, pace=PACE),
    Plan(1, DENSE, every="100ms", poll_records=7, pace=PACE),
    Plan(1, SYMMETRIC, every="1h", every_events=97, pace=PACE),
    Plan(1, KEYED, every="100ms", poll_records=30, pace=PACE),
    Plan(1, KEYED, every="100ms", poll_records=30, partitions=2, pace=PACE),
)


@dataclass(frozen=True)
class Buckets:
    """A server, the proxy before it, and what starts learners that have its keys."""

    server: S3Server
    proxy: S3Proxy
    forks: Forks

    def site(self, folder: Path, prefix: str, **settings: object) -> Site:
        """A learner whose versions are below `prefix`: it goes through the proxy, the test does not."""
        place = self.server.store(prefix)
        return make_site(folder, place=place, endpoint=self.proxy.url, **settings)  # type: ignore[arg-type]


@contextmanager
def buckets(folder: Path) -> Iterator[Buckets]:
    """A server over `folder`, and what belongs to it."""
    with s3_server(folder) as server, s3_proxy(server.url) as proxy, Forks() as forks:
        yield Buckets(server, proxy, forks)


def bucket_kills(folder: Path, at: Buckets, plan: Plan, seed: int, noise: float = NOISE) -> Tally:
    """kill -9 at random over a noisy server; nothing lost, nothing doubled, the same bits as one that was
    never killed and learned in a folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    before = at.proxy.noises
    at.proxy.make_noise(noise, seed)
    try:
        place = at.server.store(f"kills-{os.urandom(4).hex()}")
        tally = random_kills(folder, "", plan, seed, at.forks, place=place, endpoint=at.proxy.url, keep=20)
    finally:
        at.proxy.make_noise(0.0, seed)
    tally.what = f"kill -9, versions in a bucket, {plan}"
    tally.worst += f", {at.proxy.noises - before} requests met a fault"
    return tally


EVENTS = 40
"""Of each of the two lives in which a learner dies at a request."""
MOST_REQUESTS = 400
"""More than such a life has."""


def deaths_at_requests(folder: Path, at: Buckets, every: int = 1) -> Tally:
    """Die at each request of a learner's first life and of its second, once before the server has it and once
    after it is done and not answered. What is learned to the end is as if never killed.

    every: of the requests, one of so many.
    """
    tally = Tally("kill -9 at each request of a learner to its bucket")
    whole: dict[int, Manifest] = {}
    for life, after in itertools.product((1, 2), (False, True)):
        for asked in range(0, MOST_REQUESTS, every):
            died = False
            name = f"{life}{'after' if after else 'before'}{asked}"
            site = at.site(folder / name, f"deaths-{os.urandom(4).hex()}", **LIFE)
            events = Written(site)
            for _ in range(life - 1):
                events.more(EVENTS)
                catch_up(site, at.forks)
            events.more(EVENTS)
            with tally.case(name):
                died = _dies_at(at, site, asked, after)
                last = catch_up(site, at.forks)
                if life not in whole:
                    whole[life] = catch_up(site.again("whole", **LIFE), at.forks)
                same_effect(last, whole[life])
                assert site.versions.newest_valid(_damaged) is not None
                assert not Letters(site).unreported()
            shutil.rmtree(folder / name, ignore_errors=True)
            if not died:  # it has ended before
                tally.tried -= 1
                break
    tally.worst = f"{tally.tried} requests, some before and some after they are done, of two lives"
    return tally


def _dies_at(at: Buckets, site: Site, asked: int, after: bool) -> bool:
    """Whether a learner was killed at its request number `asked`; it has learned everything where not."""
    prefix = site.place.place.rpartition("/")[2]  # type: ignore[union-attr]
    known = threading.Event()
    seen, pid = itertools.count(), 0

    def kill() -> None:
        known.wait()
        os.kill(pid, signal.SIGKILL)

    death = at.proxy.add(Fault(lambda one: prefix in one.path and next(seen) == asked, after=after, act=kill))
    try:
        with at.forks(site, "--exit-when-caught-up") as learner:
            pid = learner.pid
            known.set()
            code = learner.wait()
    finally:
        at.proxy.clear()
    assert code == (-signal.SIGKILL if death.struck else EX_OK), f"{code}: {learner.said()}"
    return bool(death.struck)


def _damaged(error: Exception) -> None:
    raise AssertionError(f"damaged: {error}")


def sharded_kills(folder: Path, at: Buckets, kills: int, seed: int, noise: float = NOISE) -> Tally:
    """kill -9 of shards and of merge, all of whose versions are in a bucket on a noisy server; now and then
    all that a shard has there is lost.
    """
    folder.mkdir(parents=True, exist_ok=True)
    before, place = at.proxy.noises, at.server.store(f"shards-{os.urandom(4).hex()}")
    at.proxy.make_noise(noise, seed)
    try:
        tally = random_kills_of_shards(
            folder, embedded(folder), SPARSE, kills, seed, place=place, endpoint=at.proxy.url
        )
    finally:
        at.proxy.make_noise(0.0, seed)
    tally.what += ", versions in a bucket"
    tally.worst += f", {at.proxy.noises - before} requests met a fault"
    return tally


def rivals(folder: Path, at: Buckets, times: int) -> Tally:
    """Two learners at once on a bucket: one goes on, one leaves having written nothing that counts; started
    together, one after the other, and with the first one frozen in the middle of putting its manifest.
    """
    tally = Tally("two learners, versions in a bucket")
    for number in range(times):
        for name, compete in (("together", _together), ("later", _later), ("frozen", _frozen)):
            with tally.case(f"{name} {number}"):
                site = at.site(
                    folder / f"{name}-{number}", f"rivals-{name}-{os.urandom(4).hex()}", every="50ms"
                )
                compete(at, site)
                same_effect(catch_up(site, at.forks), catch_up(site.again("whole", every="1h"), at.forks))
    tally.worst = "one goes on, the other leaves"
    return tally


def _together(at: Buckets, site: Site) -> None:
    events = Written(site)
    for _ in range(2):  # on an empty place, and on one with versions
        with at.forks(site) as one, at.forks(site) as other:

            def ended(one: Learner = one, other: Learner = other) -> bool:
                events.more(5)
                return not (one.running and other.running)

            wait_until(ended)
            left, stays = (other, one) if one.running else (one, other)
            _leaves(left)
            _goes_on(site, events, stays)


def _later(at: Buckets, site: Site) -> None:
    events = Written(site)
    events.more(50)
    with at.forks(site) as first:
        wait_until(lambda: site.versions.versions()[1:], first)
        with at.forks(site) as second:
            wait_until(lambda: not first.running)
            _leaves(first)
            assert f"process {second.pid}" in first.said(), first.said()
            _goes_on(site, events, second)


def _frozen(at: Buckets, site: Site) -> None:
    """Its put reaches the server after the other one's claim, as after a long pause of machine or network."""
    events = Written(site)
    events.more(50)
    prefix = f"/{site.place.place.rpartition('/')[2]}/"  # type: ignore[union-attr]
    with at.forks(site) as first:
        wait_until(lambda: site.versions.versions()[1:], first)
        held = at.proxy.add(
            Fault(
                lambda asked: asked.creates and prefix in asked.path and "manifest" in asked.path, delay_s=3.0
            )
        )

        def is_held() -> bool:
            events.more(5)
            return held.struck > 0

        wait_until(is_held, first)
        freeze_while_nobody_writes(first.pid, site.address.path)
        with at.forks(site) as second:
            wait_until(site.versions.listing.claims, second)
            written = site.versions.versions()[-1]
            wait_until(lambda: _wrote(site, events, written), second)
            first.signal(signal.SIGCONT)
            wait_until(lambda: not first.running)
            _leaves(first)
            _goes_on(site, events, second)


def _wrote(site: Site, events: Written, before: int) -> bool:
    events.more(5)
    return site.versions.versions()[-1] > before


def _leaves(learner: Learner) -> None:
    code = learner.wait()
    assert code == EX_CANTCREAT, f"{code}: {learner.said()}"
    assert "has taken" in learner.said(), learner.said()


def _goes_on(site: Site, events: Written, learner: Learner) -> None:
    written = site.versions.versions()[-1]

    def goes_on() -> bool:
        events.more(5)
        return site.versions.versions()[-1] > written + 2

    wait_until(goes_on, learner)
    learner.signal(signal.SIGTERM)
    assert learner.wait() == EX_OK, learner.said()
