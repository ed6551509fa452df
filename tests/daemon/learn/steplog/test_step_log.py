"""The learner on an embedded log: what its step log tells gives its versions again, bit for bit."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daemon.exits import EX_OK
from daemon.learn.resume.origin import LearnOptions
from daemon.learn.steplog import publisher as steplog
from learners import OasisConfig
from streams.codec import encode_event
from streams.errors import StreamUnavailable, TopicMissing
from streams.event import Event, ObjectRef, SparseVector
from streams.open import open_sink, open_source
from streams.source import OutRecord
from streams.steps.segment import Base, RankOneSteps, Segment
from tests.daemon.learn.conftest import DIM, Site, make_events, with_nan
from tests.harness import forked
from tests.harness.waiting import until

from .following import bodies, followed, segments, values_of

ROOT = Path(__file__).parents[4]
CONFIGS: dict[str, OasisConfig] = {
    "plain": OasisConfig(),
    "symmetric": OasisConfig(symmetric="online"),
    "projected": OasisConfig(psd_every=35),
}
Sites = Callable[..., Site]


def told(site: Site) -> list[Segment]:
    return list(segments(values_of(site.address.steps)))


def sparse_events(count: int) -> list[bytes]:
    rng = np.random.default_rng(5)

    def vector() -> SparseVector:
        chosen = np.sort(rng.choice(DIM, 4, replace=False)).astype(np.int32)
        return SparseVector(chosen, rng.standard_normal(4).astype(np.float32))

    objects = ([ObjectRef(x=vector()) for _ in range(3)] for _ in range(count))
    return [encode_event(Event(f"s{n}", 1000 + n, *three)) for n, three in enumerate(objects)]


def assert_replayed(site: Site, first: int, last: int, config: OasisConfig) -> None:
    """Replaying from version `first` reaches `last`, and every version on the way that was told."""
    reached = followed(site.versions.load(first), told(site), config)
    assert last in reached
    for number, W in reached.items():
        assert W.tobytes() == site.versions.load(number).arrays["W"].tobytes()


@pytest.mark.usefixtures("steps_are_waited_for")
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_replaying_the_step_log_gives_every_version(new_site: Sites, kind: str, config: OasisConfig) -> None:
    site = new_site(log=True)
    site.settings["space.views.x.kind"] = kind
    events = make_events(300) if kind == "dense" else sparse_events(300)
    if kind == "dense":
        events[17] = with_nan(events[17])
    events[40:40] = [events[3], b"poison"]
    site.feed(events)
    settings: dict[str, Any] = {"symmetric": config.symmetric, "psd_every": config.psd_every}
    learner = {f"learner__{name}": value for name, value in settings.items()}
    assert site.learn(checkpoints__every_events=50, stream__poll_records=16, **learner) == EX_OK
    newest = site.newest()
    assert newest.counters["records"] == 302
    assert_replayed(site, 0, newest.number, config)
    steps = bodies(told(site), RankOneSteps)
    assert sum(map(len, steps)) == newest.counters["updated"]
    times = [int(ts) for body in steps for ts in body.timestamps]
    learned = [1000 + n for n in range(300) if not (kind == "dense" and n == 17)]
    assert times == learned
    assert steps[-1].watermark == newest.watermark
    assert any(body.project for body in steps) == bool(config.psd_every)


@pytest.mark.usefixtures("steps_are_waited_for")
def test_a_restart_is_another_epoch_that_begins_at_the_version_it_goes_on_from(new_site: Sites) -> None:
    site = new_site(log=True)
    site.feed(make_events(40))
    assert site.learn() == EX_OK
    between = site.newest()
    sink = open_sink(site.address)
    sink.send([OutRecord(value) for value in make_events(40, seed=1)])
    sink.close()
    assert site.learn() == EX_OK
    first, second = (one for one in told(site) if one.place.seq == 0)
    assert (first.place.epoch, first.place.run) == (0, 0)
    assert (second.place.epoch, second.place.run) == (site.newest().epoch, between.number)
    assert isinstance(second.body, Base)
    assert (second.body.number, second.body.records) == (between.number, 40)
    assert_replayed(site, between.number, site.newest().number, OasisConfig())
    reached = followed(site.versions.load(0), told(site))
    assert list(reached) == [between.number], "another epoch is no continuation of what was followed"


def test_without_a_step_log_nothing_is_written(new_site: Sites) -> None:
    site = new_site(log=True)
    site.feed(make_events(10))
    assert site.learn(steps__enabled=False) == EX_OK
    assert not Path(site.address.steps.path).exists()


def test_a_step_log_that_stands_still_changes_nothing_and_nobody_waits_for_it(
    new_site: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, stuck, release = new_site(log=True), new_site(log=True), threading.Event()
    for site in (usual, stuck):
        site.feed(make_events(60))
    assert usual.learn() == EX_OK

    def stands(address: object) -> object:
        release.wait(120)
        raise StreamUnavailable("never")

    monkeypatch.setattr(steplog, "open_steps", stands)
    try:
        assert stuck.learn() == EX_OK
        assert not release.is_set()
    finally:
        release.set()
    ours, theirs = (site.versions.load(site.newest().number).arrays for site in (usual, stuck))
    assert ours["W"].tobytes() == theirs["W"].tobytes()


@pytest.mark.parametrize("what", ["rubbish", "a folder", "a pipe", "a damaged log"])
def test_whatever_lies_where_the_step_log_should_be_the_learner_learns(new_site: Sites, what: str) -> None:
    site, short = new_site(log=True), {"checkpoints__every_events": 20, "steps__retention_bytes": "1B"}
    site.feed(make_events(60))
    path = Path(site.address.steps.path)
    if what == "rubbish":
        path.write_bytes(b"rubbish" * 5000)
    elif what == "a folder":
        path.mkdir()
    elif what == "a pipe":
        os.mkfifo(path)
    else:
        assert site.learn(**short) == EX_OK
        path.write_bytes(path.read_bytes()[:100] + b"rubbish" * 5000)
        sink = open_sink(site.address)
        sink.send([OutRecord(value) for value in make_events(60, seed=1)])
        sink.close()
    assert site.learn(**short) == EX_OK
    assert site.newest().counters["records"] == (120 if what == "a damaged log" else 60)


@pytest.mark.usefixtures("steps_are_waited_for")
def test_retention_leaves_what_a_replica_of_the_last_version_but_one_needs(new_site: Sites) -> None:
    site = new_site(log=True)
    site.feed(make_events(200))
    for part in range(4):
        options = LearnOptions(exit_when_caught_up=True)
        assert site.learn(options, steps__retention_bytes="1B", checkpoints__every_events=20) == EX_OK
        sink = open_sink(site.address)
        sink.send([OutRecord(value) for value in make_events(100, seed=part + 1)])
        sink.close()
    source = open_source(site.address.steps)
    start, _ = source.bounds()[0]
    source.close()
    assert start > 0, "the oldest segments went"
    newest = site.newest()
    assert newest.parent is not None
    epoch = [one for one in told_of_last_epoch(site) if isinstance(one.body, Base)]
    assert epoch[-1].body.number == newest.number  # type: ignore[union-attr]


def told_of_last_epoch(site: Site) -> list[Segment]:
    """The segments that are still there, of the newest epoch, from its beginning or what is left of it."""
    from streams.steps.codec import Joiner

    joiner = Joiner()
    found = [segment for value in values_of(site.address.steps) if (segment := joiner.feed(value))]
    return [one for one in found if one.place.epoch == found[-1].place.epoch]


def test_a_learner_process_tells_its_steps_while_it_runs(new_site: Sites) -> None:
    site = new_site(log=True)
    site.feed(make_events(200))
    words = [word for key, value in site.settings.items() for word in ("--set", f"{key}={value}")]
    words += ["--set", "checkpoints.every_events=100", "--set", "steps.every=20ms"]
    process = forked.Popen([sys.executable, "-m", "daemon", "learn", *words], cwd=ROOT)
    try:
        until(lambda: _records_told(site) > 0 or process.poll() is not None)
        assert process.poll() is None
        sink = open_sink(site.address)
        sink.send([OutRecord(value) for value in make_events(30, seed=1)])
        sink.close()
        until(lambda: _last_told(site) >= 230)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == EX_OK
    reached = followed(site.versions.load(0), told(site))
    assert reached
    for number, W in reached.items():
        assert W.tobytes() == site.versions.load(number).arrays["W"].tobytes()


def _records_told(site: Site) -> int:
    with suppress(TopicMissing):  # the process has just begun
        return max((body.records for body in bodies(told(site), Base)), default=0)
    return 0


def _last_told(site: Site) -> int:
    return max((body.last for body in bodies(told(site), RankOneSteps)), default=0)
