"""Steps that wait at a version: stopping there changes no bit of what comes, and a replay repeats it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from daemon.learn.replay.replay import replay
from streams.codec import encode_event
from streams.event import Event, ObjectRef
from streams.open import open_source
from tests.daemon.learn.conftest import Site

DIM, EVENTS = 60, 43
"""Room for four steps."""


def events() -> list[bytes]:
    """Dense triplets, most of which update."""
    rng = np.random.default_rng(3)
    made = []
    for number in range(EVENTS):
        vectors = rng.standard_normal((3, DIM)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        made.append(encode_event(Event(f"e{number}", 1000 + number, *(ObjectRef(x=v) for v in vectors))))
    return made


@pytest.fixture
def dense(tmp_path: Path) -> Callable[[str], Site]:
    """A new site of dense vectors with room for pending steps."""

    def make(name: str) -> Site:
        site = Site(tmp_path / name, f"log:{tmp_path}/{name}.log")
        site.settings["space.views.x.dim"] = DIM
        return site

    return make


def test_a_learner_that_stops_while_steps_wait_learns_what_one_that_never_stops_does(
    dense: Callable[[str], Site],
) -> None:
    whole, stopped, made = dense("whole"), dense("stopped"), events()
    whole.feed(made)
    whole.learn()
    waited, start = [], 0
    for stop in (1, 7, 18, 20, EVENTS):
        stopped.feed(made[start:stop])
        stopped.learn()
        arrays = stopped.versions.load(stopped.newest().number).arrays
        waited.append(np.count_nonzero(arrays["pending_tau"]))
        start = stop
    assert max(waited) > 1, waited
    assert stopped.newest().state_hash == whole.newest().state_hash
    with closing(open_source(stopped.address)) as source:
        assert replay(stopped.versions, source, None, 0, stopped.newest().number).equal
