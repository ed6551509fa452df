"""Learners that are pulled back towards their start: one learner more, told of in its own steps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from daemon.exits import EX_OK, UserError
from daemon.learn.replay.replay import replay
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


@pytest.mark.parametrize("algorithm", ["soml-tg", "soml-da", "omks-maps"])
def test_one_that_forgets_can_be_resumed_and_replayed(new_site: Callable[..., Site], algorithm: str) -> None:
    """Pulls come after the 30th event of all, wherever a run ended."""
    forgets = {"learner__algorithm": algorithm, "learner__pull_every": 30, "learner__decay": 0.5}
    events, learned = make_events(65), []
    for cuts in ((0, 20, 45, 65), (0, 65)):
        site = new_site()
        for start, stop in pairwise(cuts):
            site.feed(events[start:stop])
            assert site.learn(**forgets) == EX_OK
        arrays = site.versions.load(site.newest().number).arrays
        learned.append({name: array.tobytes() for name, array in arrays.items() if "." not in name})
        with closing(open_source(site.address)) as source:
            assert replay(site.versions, source, None, 0, site.newest().number).equal
    assert learned[0] == learned[1]


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
