"""A replica of the learner itself, over an embedded log: the same W, bit for bit, at every version."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.exits import EX_OK
from daemon.replica.replica import Replica
from daemon.replica.settings import Flip, Hooks, VersionSource, read_space
from daemon.replica.view import ModelId
from streams.open import open_source
from tests.daemon.learn.conftest import Site, make_events, with_nan
from tests.harness.waiting import until

from .world import QUICK


class Followed:
    """A replica of a site's learner that compares itself with each version whenever it stands at one."""

    def __init__(self, site: Site) -> None:
        self.site, self.equal, self.told = site, [], []
        found = read_space(site.versions)
        assert found is not None
        shelf = VersionSource(site.versions, site.ledger, found[0], site.config().serving)
        hooks = Hooks(flipped=self.flipped)
        self.replica = Replica("latest", shelf, QUICK, hooks, lambda: open_source(site.address.steps))

    def flipped(self, flip: Flip) -> None:
        self.told.append(flip)
        if flip.result == "relabel" and flip.model.behind == 0:
            with self.replica.read() as view:
                W = self.site.versions.load(flip.model.version).arrays["W"]
                self.equal.append(view.form.state_matrix.tobytes() == W.tobytes())

    def reach(self) -> ModelId:
        """Wait for the newest version."""
        newest = self.site.newest()
        wanted = ModelId(newest.number, 0, newest.watermark, int(newest.counters["records"]), newest.line)
        until(lambda: self.replica.status().model == wanted, f"{wanted}, not {self.replica.status()}")
        with self.replica.read() as view:
            loaded = self.site.versions.load(newest.number).arrays["W"]
            assert view.form.state_matrix.tobytes() == loaded.tobytes()
        return wanted


@pytest.mark.parametrize("config", [{}, {"learner__symmetric": "online"}, {"learner__psd_every": 35}])
def test_the_replica_is_the_learner_at_every_version_through_restarts(tmp_path: Path, config) -> None:
    site = Site(tmp_path, f"log:{tmp_path}/clicks.log")
    events = make_events(400)
    events[17], events[40:40] = with_nan(events[17]), [events[3], b"poison"]
    how = {"checkpoints__every_events": 40, "stream__poll_records": 16, "steps__every": "10ms", **config}
    site.feed(events[:20])
    assert site.learn(**how) == EX_OK
    followed = Followed(site)
    followed.replica.start()
    try:
        followed.reach()
        for start in (20, 150, 300):
            site.feed(events[start : start + 150])
            assert site.learn(**how) == EX_OK
            followed.reach()
    finally:
        followed.replica.close()
    status = followed.replica.status()
    assert status.swaps["version"] == 1, "one load at the start, then steps alone"
    assert status.swaps["relabel"] >= 6
    assert status.fallbacks == {}
    assert all(followed.equal)
    times = [int(time) for flip in followed.told for time in flip.event_times]
    assert len(times) == len(set(times)), "each event once"


def test_where_the_learner_publishes_no_steps_versions_are_followed(tmp_path: Path) -> None:
    site = Site(tmp_path, f"log:{tmp_path}/clicks.log")
    site.feed(make_events(60))
    assert site.learn(steps__enabled=False) == EX_OK
    followed = Followed(site)
    followed.replica.start()
    try:
        followed.reach()
        site.feed(make_events(60, seed=1))
        assert site.learn(steps__enabled=False) == EX_OK
        reached = followed.reach()
    finally:
        followed.replica.close()
    assert reached.behind == 0
    assert followed.replica.status().following == "versions"
