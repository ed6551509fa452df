"""A record at which the learner died twice is a dead letter, and all others are learned as without it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import numpy as np
import pytest

from daemon.exits import EX_OK
from daemon.learn import loop
from daemon.learn.replay.replay import replay
from daemon.learn.step import Assembler
from streams.open import open_source
from streams.source import RecordBatch
from tests.daemon.learn.conftest import Site, make_events

FATAL = 23
EVENTS = make_events(60)
Deadly = Callable[[], None]


class Died(Exception):
    """A bug that one record brings to light."""


@pytest.fixture(params=["decode", "step"])
def deadly(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Deadly:
    """Decoding, or learning, a batch that has the fatal record ends the learner from now on."""
    assemble, step = Assembler.__call__, loop.step

    def check(batch: RecordBatch) -> None:
        if EVENTS[FATAL] in batch.values:
            raise Died(f"{len(batch)} records")

    def decode(self, batch):
        check(batch)
        return assemble(self, batch)

    def learn(state, ready, topic):
        check(ready.polled)
        return step(state, ready, topic)

    def make() -> None:
        if request.param == "decode":
            monkeypatch.setattr(Assembler, "__call__", decode)
        else:
            monkeypatch.setattr(loop, "step", learn)

    return make


def test_it_is_left_out_after_two_deaths_alone_and_replays(
    new_site: Callable[..., Site], deadly: Deadly
) -> None:
    site, plain = new_site(log=True), new_site(log=True)
    site.feed(EVENTS)
    plain.feed([event for event in EVENTS if event is not EVENTS[FATAL]])
    assert plain.learn(stream__poll_records=9) == EX_OK
    deadly()
    said = []
    for _ in range(3):
        with pytest.raises(Died) as died:
            site.learn(stream__poll_records=9)
        said.append(str(died.value))
    assert said[1:] == ["1 records", "1 records"]
    assert site.learn(stream__poll_records=9) == EX_OK
    (letter,) = site.dead()
    assert (letter.offset, letter.reason, letter.value) == (FATAL, "suspect", EVENTS[FATAL])
    newest, whole = site.newest(), plain.newest()
    assert newest.state_hash == whole.state_hash
    assert newest.counters["poison.suspect"] == 1
    assert {"control": "suspect", "partition": 0, "from": FATAL, "to": FATAL + 1} in newest.schedule
    with closing(open_source(site.address)) as source:
        found = replay(site.versions, source, None, 0, newest.number)
    assert found.equal
    assert found.difference is None
    assert site.learn() == EX_OK  # and goes on from there
    assert len(site.dead()) == 1


def test_a_batch_that_is_taken_one_at_a_time_gives_the_same_bits(
    new_site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    site, plain = new_site(log=True), new_site(log=True)
    for one in (site, plain):
        one.feed(EVENTS)
    step, seen = loop.step, []

    def once(state, ready, topic):
        seen.append(len(ready.polled))
        if len(seen) == 2:
            raise Died
        return step(state, ready, topic)

    monkeypatch.setattr(loop, "step", once)
    with pytest.raises(Died):
        site.learn(stream__poll_records=20)
    seen.append(0)
    assert site.learn(stream__poll_records=20) == EX_OK
    assert seen.count(1) >= 20, "those that were in hand are taken one at a time"
    assert plain.learn() == EX_OK
    arrays = [one.versions.load(one.newest().number).arrays for one in (site, plain)]
    assert all(np.array_equal(array, arrays[1][name]) for name, array in arrays[0].items())
    assert site.dead() == []
