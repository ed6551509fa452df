"""Every learner that [learner] can name learns, is resumed, replayed, served and followed by steps.

Said once for all of them: what follows from named arrays and from steps that repeat bit for bit.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints import Version
from checkpoints.encoding import array_digest
from daemon.config.learners import LEARNERS
from daemon.config.schema import ServingConfig
from daemon.learn.replay.replay import replay
from daemon.models.compare import CompareOptions, compare
from daemon.replica.step_applier import learner_steps
from daemon.versions.algorithms import ALGORITHMS, by_steps, digest_of, state_digest
from daemon.versions.restore import learner_of, serving_form
from learners.forms.quadratic import folds
from streams.errors import TopicMissing
from streams.open import open_source
from streams.steps.segment import Base, RankOneSteps, Triplets
from tests.daemon.learn.conftest import DIM, Site, make_events, with_nan
from tests.daemon.learn.steplog.following import segments, values_of

EVENTS = make_events(90)
SMALL: dict[str, dict[str, Any]] = {}
"""Settings of [learner] for learners whose defaults are too large or too sure for 90 events."""


def site_of(algorithm: str, folder: Path) -> Site:
    folder.mkdir()
    site = Site(folder, f"log:{folder}/clicks.log")
    site.settings |= {"learner.algorithm": algorithm, "learner.dedupe_window": 50}
    site.settings |= {"space.warmup_objects": 20}  # full at the first start, whatever comes later
    site.settings |= {f"learner.{key}": value for key, value in SMALL.get(algorithm, {}).items()}
    return site


def arrays_of(site: Site) -> dict[str, bytes]:
    loaded = site.versions.load(site.newest().number)
    return {name: array.tobytes() for name, array in loaded.arrays.items()}


@pytest.fixture(params=sorted(LEARNERS))
def algorithm(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_name_has_keys_and_a_learner() -> None:
    assert LEARNERS.keys() == ALGORITHMS.keys()


def test_resumed_equals_uninterrupted_and_replay_agrees(algorithm: str, tmp_path: Path) -> None:
    events = [with_nan(event) if n % 13 == 5 else event for n, event in enumerate(EVENTS)]
    at_once = site_of(algorithm, tmp_path / "once")
    at_once.feed(events)
    assert at_once.learn() == 0
    resumed = site_of(algorithm, tmp_path / "resumed")
    for start in range(0, 90, 30):
        resumed.feed(events[start : start + 30])
        assert resumed.learn() == 0
    assert arrays_of(at_once) == arrays_of(resumed)
    first = resumed.versions.load(0)
    changed = [name for name, held in arrays_of(resumed).items() if held != first.arrays[name].tobytes()]
    assert any("." not in name for name in changed), "it learned something"
    with closing(open_source(resumed.address)) as source:
        found = replay(resumed.versions, source, None, 0, resumed.newest().number)
    assert found.equal, found
    assert found.difference is None


def test_a_version_is_served_in_its_form(algorithm: str, tmp_path: Path) -> None:
    site = site_of(algorithm, tmp_path / "site")
    site.feed(EVENTS)
    site.learn()
    rows = np.random.default_rng(3).standard_normal((9, DIM)).astype(np.float32)
    before, after = (form_of(site, number).scores(rows, rows) for number in (0, site.newest().number))
    assert np.isfinite(before).all()
    assert np.isfinite(after).all()
    assert not np.array_equal(before, after)
    again = form_of(site, site.newest().number).scores(rows, rows)
    assert np.array_equal(after, again), "read back as it was made"


@pytest.mark.usefixtures("steps_are_waited_for")
def test_a_copy_that_takes_the_steps_has_the_bits_of_every_version(algorithm: str, tmp_path: Path) -> None:
    site = site_of(algorithm, tmp_path / "site")
    for start in range(0, 90, 30):
        site.feed(EVENTS[start : start + 30])
        site.learn()
    if not by_steps(algorithm):
        with pytest.raises(TopicMissing):
            values_of(site.address.steps)
        return
    copy = learner_of(site.versions.load(0))
    digests = {}
    for segment in segments(values_of(site.address.steps)):
        body = segment.body
        if isinstance(body, RankOneSteps | Triplets):
            if len(body):
                copy.replay(learner_steps(body))
            state = copy.state()
            if body.cut:
                digests[body.last] = state_digest(algorithm, state, lambda name: array_digest(state[name]))
        elif isinstance(body, Base) and body.records in digests:
            assert body.digest == digests[body.records]
    assert max(digests) == 90
    assert digest_of(site.newest()) == digests[90]


def test_two_versions_are_compared(algorithm: str, tmp_path: Path) -> None:
    site = site_of(algorithm, tmp_path / "site")
    site.feed(EVENTS)
    site.learn()
    found = compare(
        site.versions, (0, site.newest().number), ServingConfig(), None, CompareOptions(queries=0)
    )
    if not folds(form_of(site, 0)):
        assert any(one.startswith("W: ") for one in found.skipped)
        return
    assert found.relative is not None
    assert found.relative > 0
    assert found.steps
    assert found.steps[0].first.startswith("x[")


def form_of(site: Site, number: int) -> Any:
    version: Version = site.versions.load(number)
    return serving_form(site.versions, version, ServingConfig())
