"""kill -9 at random moments, of shards and of what merges them: every event is merged once, and all of it can
be recomputed."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from checkpoints.local import LocalStore
from checkpoints.manifest import Manifest
from checkpoints.versions import VersionStore
from daemon.exits import EX_OK
from daemon.learn.replay.replay import replay
from daemon.learn.replay.rerun import Lines
from daemon.versions.contents import LEARNED, counted, window_arrays
from daemon.versions.shards import address_of
from streams.open import open_source
from streams.shards import Shard
from tests.harness.kill.events import Feeder, Pace
from tests.harness.kill.learners import CATCH_UP_SECONDS, Learner, Process, wait_until
from tests.harness.kill.random_kills import OUTCOMES
from tests.harness.kill.site import Case, Site, make_site
from tests.harness.kill.tally import Tally

PACE = Pace(pause_s=0.02, most=12)
LINGER_S = 0.6
ANEW = 0.1
"""Share of kills after which a shard's folder is lost as well."""


class MergeProcess(Process):
    """`tripletd merge` in a process of its own."""

    command = "merge"


def sharded_site(folder: Path, address: str, case: Case, shards: int, partitions: int, **where: Any) -> Site:
    """A site whose topic is learned by so many shards. where: of `make_site`, a bucket for all versions."""
    site = make_site(folder, address, "merged", case=case, partitions=partitions, every="100ms", **where)
    settings = f'[shards]\ncount = {shards}\nmerge_every = "200ms"\n'
    text = site.config.read_text(encoding="utf-8").replace("learn_port = 0", "learn_port = 0\nmerge_port = 0")
    site.config.write_text(text + settings, encoding="utf-8")
    return site


def line_of(site: Site, number: int, shards: int) -> VersionStore:
    """The versions of a shard."""
    shard = Shard(number, shards)
    if site.place is not None:
        return VersionStore(site.place.at(address_of("", shard)))
    return VersionStore(LocalStore(Path(address_of(str(site.checkpoints), shard))))


class ShardedRun:
    """The processes of one site: merge, and the shards."""

    def __init__(self, site: Site, shards: int, stack: ExitStack) -> None:
        self._site, self.shards, self._stack = site, shards, stack
        self.running: dict[int | None, Learner] = {}

    def start(self, which: int | None) -> Learner:
        """Start one: a shard by its number, or merge (None)."""
        made = (
            MergeProcess(self._site)
            if which is None
            else Process(self._site, "--shard", str(which), "--set", "http.learn_port=0")
        )
        self.running[which] = self._stack.enter_context(made)
        return made

    def all(self) -> list[int | None]:
        """All of them."""
        return [None, *range(self.shards)]


@contextmanager
def sharded(site: Site, shards: int) -> Iterator[ShardedRun]:
    """All processes of a site, started."""
    with ExitStack() as stack:
        run = ShardedRun(site, shards, stack)
        for which in run.all():
            run.start(which)
        yield run


def merged_end(site: Site, shards: int) -> Manifest:
    """Learn and merge everything that is in the log, uninterrupted; the last merged version."""
    with ExitStack() as stack:
        learners = [
            stack.enter_context(Process(site, "--shard", str(number), "--exit-when-caught-up"))
            for number in range(shards)
        ]
        merge = stack.enter_context(MergeProcess(site, "--exit-when-caught-up"))
        for one in (*learners, merge):
            assert one.wait(CATCH_UP_SECONDS) == EX_OK, one.said()
    return site.newest()


def replays(site: Site, shards: int, merged: bool) -> Mapping[str, bool]:
    """Whether each line is recomputed to the bit, by its name; as far back as its versions are kept."""
    found = {}
    with closing(open_source(site.address)) as source:
        if merged:
            lines = Lines(site.versions, None, lambda shard: line_of(site, shard.number, shard.of))
            number = site.newest().number
            found["merged"] = replay(site.versions, source, None, 0, number, lines=lines).equal
        for shard in range(shards):
            versions = line_of(site, shard, shards)
            kept = versions.versions()
            lines = Lines(versions, site.versions)
            found[f"shard {shard}"] = replay(versions, source, None, kept[0], kept[-1], lines=lines).equal
    return found


def random_kills_of_shards(
    folder: Path,
    address: str,
    case: Case,
    kills: int,
    seed: int,
    shards: int = 2,
    partitions: int = 3,
    **where: Any,
) -> Tally:
    """Kill shards and merge, feeding all the while; then compare what is merged with what was fed.

    where: of `make_site`, a bucket for all versions instead of a folder.
    """
    tally = Tally(f"kill -9 of {shards} shards and of merge, {case}")
    rng = random.Random(f"{seed} {case}")
    site, lost = sharded_site(folder, address, case, shards, partitions, **where), 0
    with Feeder(site, seed, PACE) as feeder, sharded(site, shards) as run:
        for number in range(kills):
            with tally.case(f"kill {number}"):
                lost += _kill_one(site, run, rng)
    with tally.case("the end"):
        last = merged_end(site, shards)
        check_merged(site, last, feeder.written)
        recomputed = replays(site, shards, merged=not lost)  # what a lost folder held is gone
        assert all(recomputed.values()), recomputed
    tally.tried -= 1
    merged = len(site.versions.versions())
    tally.worst = f"{feeder.written:,} events, {merged:,} merged versions, {lost} folders lost"
    return tally


def _kill_one(site: Site, run: ShardedRun, rng: random.Random) -> bool:
    """Whether the folder of a shard was lost with it."""
    before = site.versions.versions()[-1:] or [0]
    wait_until(lambda: site.versions.versions() and site.versions.versions()[-1] > before[0] + 1)
    time.sleep(rng.uniform(0, LINGER_S))
    which = rng.choice(run.all())
    run.running[which].kill()
    lost = which is not None and rng.random() < ANEW
    if which is not None and lost:
        lost = _lose(site, Shard(which, run.shards), rng)
    run.start(which)
    return lost


def _lose(site: Site, shard: Shard, rng: random.Random) -> bool:
    """Whether there was a folder to lose: the shard may have been killed before it had one."""
    if site.place is not None:
        line = site.place.at(address_of("", shard))
        keys = line.list()
        for key in keys:
            line.delete(key)
        return bool(keys)
    folder = Path(address_of(str(site.checkpoints), shard))
    there = folder.is_dir()
    if there:
        folder.rename(folder.with_name(f"{folder.name}.lost.{rng.random()}"))
    return there


def check_merged(site: Site, last: Manifest, written: int) -> None:
    """Every record is passed, exactly once by the counters, and every learned event is known."""
    ends = site.ends()
    assert {p: at.next_offset for p, at in last.positions.items()} == ends
    counts = last.counters
    assert sum(counts.get(name, 0) for name in OUTCOMES) == counts["records"] == sum(ends.values())
    assert counts["records"] == written
    known = window_arrays(site.versions.load(last.number).arrays)
    assert int(known["admitted"]) == counted(counts, *LEARNED)
