"""A replica of every learner: at each version it has the learner's state, bit for bit, and its form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from daemon.config.learners import LEARNERS
from daemon.exits import EX_OK
from daemon.replica.buffers import trained_number
from daemon.replica.replica import Replica
from daemon.replica.settings import VersionSource, read_space, step_log_of
from daemon.replica.view import ModelId
from daemon.versions.algorithms import ALGORITHMS, by_steps
from daemon.versions.forms import HELD
from daemon.versions.restore import learner_of
from learners import as_block
from learners.forms.carried import CarriedForm
from tests.daemon.learn.conftest import DIM, Site, make_events
from tests.harness.waiting import until

from .world import QUICK

ROWS = as_block(np.random.default_rng(5).standard_normal((7, DIM)).astype(np.float32))


def replica_of(site: Site) -> Replica:
    found = read_space(site.versions)
    assert found is not None
    config = site.config()
    shelf = VersionSource(site.versions, site.ledger, found[0], config.serving)
    return Replica("latest", shelf, QUICK, steps=step_log_of(config, "latest"))


def reach(site: Site, replica: Replica) -> None:
    """Wait for the newest version; what answers is its state in its form."""
    newest = site.newest()
    wanted = ModelId(newest.number, 0, newest.watermark, int(newest.counters["records"]), newest.line)
    until(lambda: replica.status().model == wanted, lambda: f"{wanted}, not {replica.status()}")
    learner = learner_of(site.versions.load(newest.number))
    with replica._sides.read() as side:
        assert side.view is not None
        assert side.view.model == wanted
        held = side.buffers.state if side.learner is None else side.learner.state()
        state = learner.state()  # of few dimensions it has no pending steps
        for name in state.keys() & (ALGORITHMS[site.config().learner.algorithm].followed or held):
            assert held[name].tobytes() == state[name].tobytes()
    kind = ALGORITHMS[site.config().learner.algorithm].forms
    if kind.follows == HELD:
        until(lambda: formed(replica) == wanted.total, lambda: f"formed at {formed(replica)}")
    with replica.read() as view:
        if not isinstance(view.form, CarriedForm):
            made = kind.make(learner, trained_number(wanted), site.config().serving)
            assert np.array_equal(view.form.scores(ROWS, ROWS), made.scores(ROWS, ROWS))
            assert np.array_equal(view.form.self_scores(ROWS), made.self_scores(ROWS))


def formed(replica: Replica) -> int:
    """At which record the form was made that answers now."""
    with replica.read() as view:
        return view.formed


PULLS = {"learner.pull_every": 30, "learner.decay": 0.25}
CAPS = {"caps.window": 50, "caps.source": 20.0, "caps.item": 0.5}
SAFE = [
    ("oasis", {**PULLS, "learner.radius": 0.1}),
    ("omks-maps", {**PULLS, "learner.radius": 0.1}),
    ("soml-tg", PULLS),
    ("soml-da", PULLS),
    ("oasis", CAPS),
    ("omks", {**CAPS, "learner.triplets": 20}),
    ("soml-da", {**CAPS, **PULLS}),
]
"""Learners whose steps are bounded: a pull comes at its event, and of a capped event what was let in."""


def named(value: object) -> str:
    """The algorithm, or the first word of what bounds it."""
    return value if isinstance(value, str) else "-".join(sorted({str(key).split(".")[0] for key in value}))  # type: ignore[attr-defined]


@pytest.mark.parametrize(("algorithm", "more"), [*((one, {}) for one in sorted(LEARNERS)), *SAFE], ids=named)
def test_it_is_the_learner_at_every_version_through_restarts(
    algorithm: str, more: dict[str, object], tmp_path: Path
) -> None:
    site = Site(tmp_path, f"log:{tmp_path}/clicks.log")
    site.settings |= {"learner.algorithm": algorithm, "steps.every": "10ms", "stream.poll_records": 16}
    site.settings |= more
    site.settings |= {"checkpoints.every_events": 40}
    events = make_events(260)
    site.feed(events[:20])
    assert site.learn() == EX_OK
    replica = replica_of(site)
    replica.start()
    try:
        reach(site, replica)
        for start in (20, 140):
            site.feed(events[start : start + 120])
            assert site.learn() == EX_OK
            reach(site, replica)
    finally:
        replica.close()
    status = replica.status()
    assert (status.fallbacks, status.refusals) == ({}, {})
    if by_steps(algorithm):
        assert status.swaps["version"] == 1, "one load at the start, then steps alone"
        assert status.swaps["steps"] >= 2
    else:
        assert status.following == "versions"
