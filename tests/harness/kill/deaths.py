"""Death at every named step of the loop, of publishing, pruning and the streams.

After each death what is on disk is what an unkilled run had there, every poison that the newest position has
passed is in the dead-letter topic, and the learner that starts next goes on from there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from checkpoints.encoding import state_hash
from checkpoints.manifest import Manifest
from checkpoints.pruned import history
from daemon.learn.replay.replay import replay
from daemon.learn.replay.rerun import Rerun, Runs
from streams.open import open_source
from tests.harness.kill.forks import Forks
from tests.harness.kill.learners import catch_up
from tests.harness.kill.letters import Letters
from tests.harness.kill.site import SPARSE, Case, Site, make_site
from tests.harness.kill.tally import Tally
from tests.harness.kill.written import Written

EVERY = 10  # records between versions
RUN = 60  # records waiting at each start
SETTINGS = {"every": "1h", "every_events": EVERY, "poll_records": 4, "keep": 3}
OFF_THE_LOOP = ("before send", "before fsync temporary", "before link manifest")
"""Steps of other threads, that the loop has to wait for or must not count on."""

Trace = tuple[str, dict[str, float], int | None, str | None]


@dataclass(frozen=True)
class Deaths:
    """Which learner dies, and how often at each step: at its first passing, and at as many more."""

    case: Case = SPARSE
    partitions: int = 1
    each: int = 1
    only: tuple[str, ...] = ("",)
    """Words of which a step's name must hold one."""

    def __str__(self) -> str:
        return f"{self.case}, {self.partitions} partition{'s' * (self.partitions > 1)}"

    def of(self, found: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """Those of the steps that are meant."""
        return [point for point in found if any(word in point[0] for word in self.only)]


class Reference:
    """State and progress after each record of the only partition, learned one at a time, never stopped."""

    def __init__(self, site: Site) -> None:
        first = site.versions.load(0)
        self._source = open_source(site.address)
        self._rerun = Rerun(first, first.manifest, None, Runs(self._source))
        self.at: dict[int, Trace] = {0: trace(first.manifest)}

    def follow(self, end: int) -> None:
        """Learn up to the offset `end`."""
        for offset in range(max(self.at), end):
            self._rerun.follow((0, offset, offset + 1), lambda _: None)
            now = self._rerun.progress.snapshot()
            digest = state_hash(self._rerun.state.arrays())
            self.at[offset + 1] = (digest, now.counters, now.watermark, now.positions[0].last_digest)

    def close(self) -> None:
        self._source.close()


def trace(version: Manifest) -> Trace:
    digest = version.positions[0].last_digest
    return version.state_hash, version.counters, version.watermark, digest


class Check:
    """What must be true after each death."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._letters = Letters(site)
        self._reference = Reference(site) if site.partitions == 1 else None
        self._agreed = 0  # the newest version that replaying gave, too

    def close(self) -> None:
        if self._reference is not None:
            self._reference.close()

    def __call__(self) -> None:
        """Nothing damaged, every version as if never killed, no poison passed in silence."""
        versions = self._site.versions
        newest = versions.newest_valid(_damaged)
        assert newest is not None
        assert not self._letters.unreported()
        if self._reference is not None:
            self._reference.follow(newest.manifest.positions[0].next_offset)
            for number in versions.versions():
                manifest = versions.manifest(number)
                assert trace(manifest) == self._reference.at[manifest.positions[0].next_offset]
        else:
            self._replay(newest.manifest.number)

    def _replay(self, newest: int) -> None:
        """Every version since the last look is what its schedule makes of the one before."""
        since = self._agreed if self._agreed in self._site.versions.versions() else 0
        with closing(open_source(self._site.address)) as source:
            assert replay(self._site.versions, source, None, since, newest).equal
        self._agreed = newest


def deaths(folder: Path, stream_in: Callable[[Path], str], forks: Forks, plan: Deaths) -> Tally:
    """Die at every step that a start from nothing passes, then at every one that going on passes."""
    tally = Tally(f"deaths at named steps, {plan}")
    settings = {"case": plan.case, "partitions": plan.partitions, **SETTINGS}
    address = stream_in(folder)
    probed, killed = (make_site(folder, address, name, **settings) for name in ("probed", "killed"))
    events = Written(killed)
    events.more(RUN)
    for run in ("start", "resume"):
        with forks.fused(probed, "", 0, record=folder / run) as learner:
            assert learner.wait() == 0, learner.said()
        events.more(RUN)
    for point in plan.of(points(folder / "start", 1, until="before link manifest")):
        with tally.case(f"start: {point}"):
            forks.dies(killed, *point)
            assert not list(killed.checkpoints.glob("versions/*/manifest.json"))
    forks.dies(killed, "after link manifest", 1)
    check = Check(killed)
    for point in plan.of(points(folder / "resume", plan.each)):
        with tally.case(f"going on: {point}"):
            events.up_to(killed.newest().counters.get("records", 0) + RUN)
            forks.dies(killed, *point)
            check()
    for step in OFF_THE_LOOP:
        with tally.case(f"late: {step}"):
            events.up_to(killed.newest().counters.get("records", 0) + RUN)
            forks.dies(killed, step, 1, "die late")
            check()
    with tally.case("the end"):
        _check_end(killed, catch_up(killed, forks), events.written)
        check()
    check.close()
    steps = {name for run in ("start", "resume") for name, _ in plan.of(points(folder / run, 1))}
    tally.worst = f"{len(steps)} steps, {events.written:,} events"
    return tally


def points(record: Path, each: int, until: str = "") -> list[tuple[str, int]]:
    """(step, passing) worth dying at, in the order they were first passed; up to the first `until`."""
    names = record.read_text(encoding="utf-8").splitlines()
    passed = Counter(names[: names.index(until) + 1] if until else names)
    return [(name, nth) for name, count in passed.items() for nth in range(1, min(count, each) + 1)]


def _check_end(site: Site, last: Manifest, written: int) -> None:
    assert {p: at.next_offset for p, at in last.positions.items()} == site.ends()
    assert last.counters["records"] == written
    with closing(open_source(site.address)) as source:
        assert replay(site.versions, source, None, 0, last.number).equal
    assert history(site.versions.store)
    assert not list((site.checkpoints / "tmp").iterdir())


def _damaged(error: Exception) -> None:
    raise AssertionError(f"damaged: {error}")
