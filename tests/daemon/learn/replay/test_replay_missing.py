"""Replaying where records or versions are not what they were."""

from __future__ import annotations

from collections.abc import Callable

from daemon.learn.replay.replay import replay
from streams.open import open_source
from tests.daemon.learn.conftest import Site, make_events


def test_replay_tells_when_the_records_are_others(new_site: Callable[..., Site]) -> None:
    site, other = new_site(), new_site()
    site.feed(make_events(30))
    site.learn()
    other.feed(make_events(30, seed=9))
    source = open_source(other.address)
    assert not replay(site.versions, source, None, 0, site.newest().number).equal
    source.close()


def test_replay_passes_over_pruned_versions(site: Site) -> None:
    for seed in range(5):
        site.feed(make_events(10, seed))
        site.learn(checkpoints__keep=2)
    assert len(site.versions.versions()) == 3
    source = open_source(site.address)
    assert replay(site.versions, source, None, 0, site.newest().number).equal
    source.close()
