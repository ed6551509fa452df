"""Shards and what merges them die at any moment: nothing is lost or merged twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from checkpoints.manifest import Manifest
from checkpoints.versions import Version
from daemon.versions.contents import learner_arrays, records_of
from daemon.versions.shards import MergedPart, MergeRecord, record_of
from learners.pending import matrix_in
from tests.harness.kill.events import Feeder, Pace
from tests.harness.kill.learners import wait_until
from tests.harness.kill.shards import line_of, random_kills_of_shards, sharded, sharded_site
from tests.harness.kill.site import KEYED, OTHERS, SPARSE, SYMMETRIC, Case, Site, embedded
from tests.kill.test_followed import Watched

pytestmark = pytest.mark.kill

SOFTMAX = next(case for case in OTHERS if case.name == "oasis-softmax")
OMKS = next(case for case in OTHERS if case.name == "omks")


@pytest.mark.parametrize("case", [SPARSE, KEYED, SOFTMAX, OMKS], ids=str)
def test_shards_and_merge_killed_at_random(tmp_path: Path, case: Case) -> None:
    random_kills_of_shards(tmp_path, embedded(tmp_path), case, kills=3, seed=1).check()


@pytest.mark.parametrize("case", [SPARSE, SYMMETRIC], ids=str)
def test_a_replica_adds_the_steps_of_all_shards_to_the_merged_version(tmp_path: Path, case: Case) -> None:
    site = sharded_site(tmp_path, embedded(tmp_path), case, 2, 3)
    with sharded(site, 2) as run:
        with Feeder(site, 1, Pace(0.01, 12), limit=300) as feeder:
            feeder.join()
        wait_until(lambda: len(parts_of(site)) == 2 and records_of(site.newest()) > 50)
        with Watched(site) as watched:
            wait_until(lambda: watched.seen)
            run.running[None].kill()  # from here on nothing is merged
            merged = site.newest()
            more = Feeder(site, 2, Pace(0.01, 12), limit=500)
            more.written = feeder.written  # other events than before
            with more:
                more.join()
            total = more.written
            wait_until(lambda: sum(records_of(newest(site, k)) for k in range(2)) == total)
            wait_until(lambda: total_shown(watched) == total)
            shown = np.frombuffer(watched.seen[-1][1], np.float32).astype(float)
    began = whole(site.versions.load(merged.number))
    wanted = began.copy()
    for k, part in enumerate(parts_of(site)):
        last, line = newest(site, k), line_of(site, k, 2)
        went_on = record_of(last).name == merged.name  # whether it had taken the merged version over by then
        wanted += whole(line.load(last.number)) - (began if went_on else whole(line.load(part.version)))
    np.testing.assert_allclose(shown, wanted.ravel(), rtol=0, atol=1e-4)


def parts_of(site: Site) -> tuple[MergedPart, ...]:
    """What the newest merged version holds of each shard."""
    if not site.versions.versions():
        return ()
    record = MergeRecord.in_version(site.newest())
    return () if record is None else record.parts


def newest(site: Site, number: int) -> Manifest:
    """The newest version of a shard."""
    found = line_of(site, number, 2).newest_manifest()
    assert found is not None
    return found


def total_shown(watched: Watched) -> int:
    """How many records the newest state holds whose W was seen: the replica tells of it a moment before."""
    return watched.seen[-1][0].model.total if watched.seen else 0


def whole(version: Version) -> np.ndarray:
    """W with its pending steps, in float64."""
    return matrix_in(learner_arrays(version.arrays)).astype(float)
