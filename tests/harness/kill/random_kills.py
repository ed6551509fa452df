"""kill -9 at random moments, of learner and broker: nothing lost, nothing repeated, the same bits."""

from __future__ import annotations

import random
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from checkpoints.manifest import Manifest
from daemon.learn.replay.replay import replay
from streams.open import open_source
from tests.harness.kill.events import Feeder, Pace
from tests.harness.kill.learners import Learner, Start, catch_up, wait_until
from tests.harness.kill.letters import Letters
from tests.harness.kill.site import SPARSE, Case, Site, make_site
from tests.harness.kill.tally import Tally

IN_START_UP = 0.15  # share of kills before the learner has learned anything
GENTLE = Pace()
OUTCOMES = ("updated", "passive", "degenerate", "rejected", "poison", "duplicate", "capped")
LETTERS = ("rejected", "poison", "capped")


class Broker(Protocol):
    """What can be killed beside the learner; it comes back on the same data."""

    def kill(self) -> None: ...

    def revive(self) -> None: ...


@dataclass(frozen=True)
class Plan:
    """How many kills of which learner, under which load."""

    kills: int
    case: Case = SPARSE
    poll_records: int = 500
    every: str = "20ms"
    every_events: int = 0
    partitions: int = 1
    pace: Pace = GENTLE
    broker_share: float = 0.0
    """Share of kills that also kill the broker, half of them with the learner."""
    linger_s: float = 0.25
    """Longest time between the second version of a run and its end."""

    def __str__(self) -> str:
        parts = "" if self.partitions == 1 else f", {self.partitions} partitions"
        return f"{self.case}, poll {self.poll_records}{parts}"


class Killing:
    """One site, its feeder, and what kills the learner on it."""

    def __init__(self, site: Site, plan: Plan, seed: int, start: Start, broker: Broker | None) -> None:
        self._site, self._plan, self._start, self._broker = site, plan, start, broker
        self._rng = random.Random(f"{seed} {plan}")
        self._letters = Letters(site)
        self.learned = self.of_broker = 0

    def once(self) -> None:
        """Start the learner, let it learn or not, kill it; no poison may be passed in silence."""
        before = max(self._site.versions.versions(), default=-1)

        def written() -> int:
            return sum(number > before for number in self._site.versions.versions())

        with self._start(self._site) as learner:
            if self._rng.random() < IN_START_UP:
                time.sleep(self._rng.uniform(0, 0.1))
            else:
                wait_until(lambda: written() > 1, learner)
                time.sleep(self._rng.uniform(0, self._plan.linger_s))
            if self._broker is not None and self._rng.random() < self._plan.broker_share:
                self._kill_broker(learner)
            learner.kill()
        self.learned += written() > 1
        unreported = self._letters.unreported()
        assert not unreported, f"poison was passed without a dead letter: {sorted(unreported)[:10]}"

    def check_letters(self, last: Manifest) -> None:
        """As many places have a dead letter as the counters tell of.

        Which events find no place among the keys depends on the order in which partitions come, and that is
        another one after a kill: an event refused before it, with a letter, may be learned after it.
        """
        self._letters.look()
        letters, told = len(set(self._letters.letters)), sum(last.counters.get(n, 0) for n in LETTERS)
        if self._plan.partitions > 1 and "[keys]" in self._plan.case.sections:
            assert letters >= told, f"{letters} letters of {told} refused"
        else:
            assert letters == told, f"{letters} letters of {told} refused"

    def _kill_broker(self, learner: Learner) -> None:
        assert self._broker is not None
        self.of_broker += 1
        self._broker.kill()
        with_it = self._rng.random() < 0.5
        time.sleep(self._rng.uniform(0, 0.5))
        if with_it:
            learner.kill()
        self._broker.revive()
        if not with_it:
            seen = self._site.newest().counters.get("records", 0)
            wait_until(lambda: self._site.newest().counters.get("records", 0) > seen, learner)


def random_kills(
    folder: Path,
    address: str,
    plan: Plan,
    seed: int,
    start: Start,
    broker: Broker | None = None,
    **where: Any,
) -> Tally:
    """Kill, feeding all the while; then compare with a learner that was never killed.

    where: of `make_site`, a bucket for the versions instead of a folder.
    """
    tally = Tally(f"kill -9, {plan}")
    site = make_site(
        folder,
        address,
        case=plan.case,
        partitions=plan.partitions,
        poll_records=plan.poll_records,
        every=plan.every,
        every_events=plan.every_events,
        **where,
    )
    killing = Killing(site, plan, seed, start, broker)
    with Feeder(site, seed, plan.pace) as feeder:
        for number in range(plan.kills):
            with tally.case(f"kill {number}"):
                killing.once()
    with tally.case("the end"):
        last = catch_up(site, start)
        _check_end(site, last, feeder, plan)
        killing.check_letters(last)
        if plan.partitions == 1:
            _check_same_bits(site, last, start)
        else:
            check_replay(site, last)
        assert killing.learned or plan.kills < 3, "no run learned anything before it was killed"
    tally.tried -= 1
    brokers = f", {killing.of_broker} of the broker" if broker else ""
    tally.worst = f"{feeder.written:,} events, {killing.learned} killed while learning{brokers}"
    return tally


def _check_end(site: Site, last: Manifest, feeder: Feeder, plan: Plan) -> None:
    """Every record is passed, exactly once by the counters."""
    ends = site.ends()
    assert {p: at.next_offset for p, at in last.positions.items()} == ends
    counts = last.counters
    assert sum(counts.get(name, 0) for name in OUTCOMES) == counts["records"] == sum(ends.values())
    if not plan.pace.again and not feeder.in_doubt:
        assert counts["records"] == feeder.written
    if plan.every_events:
        versions = site.versions
        written = [versions.manifest(n).counters.get("records", 0) for n in versions.versions()[:-1]]
        assert all(count % plan.every_events == 0 for count in written)


def _check_same_bits(site: Site, last: Manifest, start: Start) -> None:
    whole = catch_up(site.again("whole", poll_records=4096, every="1h"), start)
    same_effect(last, whole)


def same_effect(one: Manifest, other: Manifest) -> None:
    """Two versions at one position: state, counters and watermark are equal bit for bit."""
    assert one.state_hash == other.state_hash
    assert one.positions == other.positions
    assert one.counters == other.counters
    assert one.watermark == other.watermark


def check_replay(site: Site, last: Manifest) -> None:
    """The recorded schedule gives the same hash, and holds every record once."""
    with closing(open_source(site.address)) as source:
        result = replay(site.versions, source, None, 0, last.number)
    assert result.records == last.counters["records"]
    assert result.equal
