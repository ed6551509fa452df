"""Power loss at every moment of a learner's life: the old version or the new one, and the same end."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from checkpoints.entries import LedgerEntry, aliases
from checkpoints.local import Fs
from checkpoints.manifest import Manifest
from checkpoints.pruned import history
from checkpoints.publisher import Failed, Published
from tests.checkpoints.disk import FaultyDisk, Op
from tests.checkpoints.power import lay_out, power_losses
from tests.harness.kill.hosted import learn_all
from tests.harness.kill.life import a_site, live
from tests.harness.kill.site import SPARSE, Case, Site
from tests.harness.kill.tally import Tally


@dataclass(frozen=True)
class Recorded:
    """A life: its operations, and after how many of them which version and verdict was known durable."""

    site: Site
    log: Sequence[Op]
    durable: Sequence[tuple[int, int]]
    verdicts: Sequence[tuple[int, LedgerEntry]]
    last: Manifest


def recorded(folder: Path, case: Case) -> Recorded:
    """Live once, with every operation noted."""
    site = a_site(folder, "life", case)
    disk = FaultyDisk(site.checkpoints)
    durable: list[tuple[int, int]] = []
    verdicts: list[tuple[int, LedgerEntry]] = []

    def heard(what: Published | Failed | LedgerEntry) -> None:
        if isinstance(what, LedgerEntry):
            verdicts.append((len(disk.log), what))
        elif isinstance(what, Published):
            durable.append((len(disk.log), what.manifest.number))

    live(site, disk.fs, heard)
    return Recorded(site, disk.log, durable, verdicts, site.newest())


def power_lost(folder: Path, looks: int, lives: int, seed: int, case: Case = SPARSE) -> Tally:
    """Look at `looks` disks a power loss may leave (0: every one), and learn on from `lives` of them."""
    tally = Tally(f"power losses, {case}")
    life = recorded(folder / "recorded", case)
    every = list(power_losses({}, list(life.log), seed))
    rng = random.Random(seed)
    chosen = every if not looks else rng.sample(every, min(looks, len(every)))
    go_on = set(rng.sample(range(len(chosen)), min(lives, len(chosen))))
    for n, (done, disk) in enumerate(chosen):
        with tally.case(f"after {done} operations"):
            site = life.site.again(f"loss-{n}", every="1h", every_events=10, poll_records=4, keep=2)
            lay_out(disk, site.checkpoints)
            _check_stands(site, life, done)
            if n in go_on:
                _check_goes_on(site, life)
            shutil.rmtree(site.checkpoints)
    tally.worst = (
        f"{len(life.log)} operations, {len(every):,} disks; learned on from {len(go_on)} to the same hash"
    )
    return tally


def _check_stands(site: Site, life: Recorded, done: int) -> None:
    """All that was known durable is there, and nothing that is there is damaged."""
    versions = site.versions
    known = [number for at, number in life.durable if at <= done]
    newest = versions.newest_valid(_damaged)
    if known:
        assert newest is not None
        assert newest.manifest.number >= known[-1]
    for number in versions.versions():
        versions.load(number)
    entries = site.ledger.entries(report=_damaged)
    said = [entry for at, entry in life.verdicts if at <= done]
    assert entries[: len(said)] == said
    assert set(aliases(entries).values()) <= set(versions.versions()), "a promoted version is gone"
    pruned = {record["number"] for record in history(versions.store)}
    assert set(known) <= pruned | set(versions.versions()), "a version went without its line of history"


def _check_goes_on(site: Site, life: Recorded) -> None:
    learner = learn_all(site, Fs())
    assert learner.code == 0, learner.error
    last = site.newest()
    assert last.state_hash == life.last.state_hash
    assert last.counters == life.last.counters
    assert last.positions == life.last.positions


def _damaged(error: Exception) -> None:
    raise AssertionError(f"damaged: {error}")
