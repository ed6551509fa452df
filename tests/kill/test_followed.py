"""A replica beside learners that are killed: what it answers from is a state of its own folder's learner."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from checkpoints.manifest import Manifest
from daemon.config import load_config
from daemon.learn.replay.rerun import Rerun, Runs
from daemon.replica.replica import Replica
from daemon.replica.settings import Flip, FollowSettings, Hooks, VersionSource, read_space
from streams.open import open_source
from tests.harness.kill.events import Feeder, Pace
from tests.harness.kill.forks import Forks
from tests.harness.kill.learners import catch_up, wait_until
from tests.harness.kill.site import DENSE, SPARSE, SPARSE_VIEW, SYMMETRIC, Case, Site, make_site
from tests.harness.waiting import until

KILLS = 3
OTHER = Case("other", "C = 0.01", SPARSE_VIEW)

pytestmark = pytest.mark.kill


class Watched:
    """A replica of a site, and W of every state that it ever answered from."""

    def __init__(self, site: Site) -> None:
        found = read_space(site.versions)
        assert found is not None
        config = load_config(site.config, {}, {})
        shelf = VersionSource(site.versions, site.ledger, found[0], config.serving)
        self.seen: list[tuple[Flip, bytes]] = []
        quick = FollowSettings(look_every_s=0.02, refine_every_s=60.0)
        steps = site.address.steps
        self.replica = Replica(
            "latest", shelf, quick, Hooks(flipped=self._flipped), lambda: open_source(steps)
        )

    def __enter__(self) -> Watched:
        self.replica.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.replica.close()

    def _flipped(self, flip: Flip) -> None:
        with self.replica.read() as view:
            self.seen.append((flip, view.form.state_matrix.tobytes()))  # type: ignore[attr-defined]

    def flips(self) -> int:
        """How often steps alone brought a newer state."""
        return [flip.result for flip, _ in self.seen].count("steps")

    def stands_at(self, version: Manifest) -> bool:
        model = self.replica.status().model
        return model is not None and str(model) == str(version.number)


def states(site: Site, last: Manifest, wanted: set[int]) -> dict[int, bytes]:
    """W after so many records, by the learner's own step over the log, one record at a time."""
    with closing(open_source(site.address)) as source:
        rerun = Rerun(site.versions.load(0), last, None, Runs(source))
        found = {0: rerun.state.learner.state()["W"].tobytes()}
        for at in range(max(wanted)):
            rerun.follow((0, at, at + 1), lambda records: None)
            if at + 1 in wanted:
                found[at + 1] = rerun.state.learner.state()["W"].tobytes()
    return found


@pytest.mark.parametrize("case", [SPARSE, DENSE, SYMMETRIC], ids=str)
def test_a_replica_of_a_learner_that_is_killed_answers_from_its_states_alone(
    tmp_path: Path, forks: Forks, case: Case
) -> None:
    site = make_site(tmp_path, case=case, poll_records=7, every="200ms")
    other = make_site(tmp_path, str(site.address), "other", case=OTHER)  # tells its steps to the same topic
    rng = random.Random(str(case))
    with ExitStack() as ends:
        with Feeder(site, 1, Pace(0.03, 12)), forks(other) as beside:
            wait_until(lambda: len(other.versions.versions()) > 1, beside)
            for number in range(KILLS):
                before = len(site.versions.versions())
                with forks(site) as learner:
                    wait_until(lambda before=before: len(site.versions.versions()) > before + 1, learner)
                    if number == 0:
                        watched = ends.enter_context(Watched(site))
                    until(lambda wanted=2 * (number + 1): watched.flips() >= wanted, watched.replica.status)
                    time.sleep(rng.uniform(0.1, 0.5))
                    learner.kill()
        last = catch_up(site, forks)
        until(lambda: watched.stands_at(last), watched.replica.status)
    right = states(site, last, {flip.model.total for flip, _ in watched.seen})
    for flip, W in watched.seen:
        assert right[flip.model.total] == W, f"{flip.model} is no state of the learner"
    assert watched.flips() > KILLS
    assert len(right) > 2 * KILLS
