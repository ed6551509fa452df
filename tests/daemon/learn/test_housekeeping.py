"""What a learner's pruning leaves: a rollback always has somewhere to go."""

from __future__ import annotations

from tests.daemon.learn.conftest import Site, make_events
from tests.daemon.models.moves import promote, rollback


def test_pruning_leaves_what_stable_points_at_and_where_a_rollback_goes(site: Site) -> None:
    promoted: list[int] = []
    for n in range(6):
        site.feed(make_events(5, seed=n))
        site.learn(checkpoints__keep=2)
        if n in (0, 1, 2):
            promoted.append(promote(site.versions, site.ledger, "latest", by="test").after or 0)
    kept = site.versions.versions()
    assert len(kept) == 5  # version 0, the newest two, stable and one step back
    assert promoted[0] not in kept
    assert {0, *promoted[1:]} < set(kept)
    assert rollback(site.versions, site.ledger, by="test").after == promoted[1]
