"""A matrix that is pulled back towards its start: one learner more, told of in its own steps."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest

from daemon.exits import EX_OK, UserError
from daemon.learn.replaying.replay import replay
from streams.open import open_source
from tests.daemon.learn.conftest import DIM, Site, make_events

PULLS: dict[str, Any] = {"learner__pull_every": 10, "learner__radius": 0.2}


def distance(site: Site) -> float:
    W = site.versions.load(site.newest().number).arrays["W"]
    return float(np.linalg.norm(W - np.eye(DIM)))


@pytest.mark.parametrize("algorithm", ["oasis", "dissim-oasis", "lego"])
def test_it_stays_near_its_start_and_can_be_replayed(site: Site, algorithm: str) -> None:
    for seed in range(3):
        site.feed(make_events(50, seed))
        assert site.learn(**PULLS, learner__algorithm=algorithm, stream__poll_records=7) == EX_OK
        assert 0 < distance(site) <= 0.2 * (1 + 1e-5)
    with closing(open_source(site.address)) as source:
        assert replay(site.versions, source, None, 0, site.newest().number).equal


def test_other_pulls_are_other_settings(site: Site) -> None:
    site.feed(make_events(20))
    assert site.learn() == EX_OK
    with pytest.raises(UserError, match=r"learner\.pull_every: version 0, now 10"):
        site.learn(**PULLS)


def test_half_a_setting_is_refused(site: Site) -> None:
    with pytest.raises(UserError, match="pull_every"):
        site.config(learner__radius=0.5)
    with pytest.raises(UserError, match="pull_every"):
        site.config(learner__pull_every=5)
