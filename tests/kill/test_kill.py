"""kill -9 at random moments leaves no trace: nothing lost, nothing repeated, the same bits.

TRIPLETD_KILLS (per test, default 3) and TRIPLETD_KILL_SEED make longer or other runs.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from daemon.learn.replay import replay
from streams.open import open_source
from tests.kill.harness import (
    DENSE_VIEW,
    SPARSE_VIEW,
    Feeder,
    Site,
    catch_up,
    kill_once,
    make_site,
    unreported,
)

KILLS = int(os.environ.get("TRIPLETD_KILLS", "3"))
SEED = int(os.environ.get("TRIPLETD_KILL_SEED", "1"))

pytestmark = pytest.mark.kill


def kill_repeatedly(site: Site, feeder: Feeder, rng: random.Random) -> None:
    learned = 0
    for _ in range(KILLS):
        learned += kill_once(site, rng)
        assert not unreported(site, feeder.poison), "a version passed poison without its dead letter"
    assert learned or KILLS < 3


@pytest.mark.parametrize(
    ("poll_records", "view", "every", "every_events"),
    [(1, SPARSE_VIEW, "20ms", 0), (7, DENSE_VIEW, "20ms", 0), (500, SPARSE_VIEW, "1h", 97)],
    ids=["poll 1", "poll 7, fitted map", "poll 500, exact counts"],
)
def test_one_partition_ends_bit_for_bit_as_if_never_killed(
    tmp_path: Path, poll_records: int, view: str, every: str, every_events: int
) -> None:
    site = make_site(tmp_path, poll_records=poll_records, view=view, every=every, every_events=every_events)
    rng = random.Random(f"{SEED} {poll_records}")
    pause_s = 0.03 if poll_records == 1 else 0.004  # it must be able to catch up
    with Feeder(site, SEED, sparse=view == SPARSE_VIEW, pause_s=pause_s) as feeder:
        kill_repeatedly(site, feeder, rng)
    killed = catch_up(site)
    whole = catch_up(make_site(tmp_path, "whole", poll_records=4096, view=view, every="1h"))
    assert killed.positions[0].next_offset == feeder.written
    assert killed.state_hash == whole.state_hash
    assert killed.positions == whole.positions
    assert killed.counters == whole.counters
    assert killed.watermark == whole.watermark
    assert killed.counters["poison"] + killed.counters["rejected"] == len(feeder.poison)
    if every_events:
        counts = [site.versions.manifest(n).counters.get("records", 0) for n in site.versions.versions()[:-1]]
        assert all(count % every_events == 0 for count in counts)


def test_several_partitions_lose_and_repeat_nothing_and_replay(tmp_path: Path) -> None:
    site = make_site(tmp_path, partitions=3, poll_records=50)
    with Feeder(site, SEED, sparse=True, partitions=3) as feeder:
        kill_repeatedly(site, feeder, random.Random(SEED))
    last = catch_up(site)
    assert {p: at.next_offset for p, at in last.positions.items()} == site.ends()
    outcomes = ("updated", "passive", "degenerate", "rejected", "poison")
    assert sum(last.counters[name] for name in outcomes) == last.counters["records"] == feeder.written
    source = open_source(site.address)
    result = replay(site.versions, source, None, 0, last.number)
    source.close()
    assert result.records == feeder.written
    assert result.equal
