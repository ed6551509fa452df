"""A replica of one model per key: followed by steps, it has every model of every version, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.exits import EX_OK
from daemon.replica.view import ModelId
from daemon.versions.algorithms import state_digest
from daemon.versions.restore import learner_of
from learners.keyed import CLOCK, Keyed
from tests.daemon.learn.conftest import Site
from tests.daemon.learn.test_keys import KEYS, clicks, drawn
from tests.harness.waiting import until

from .test_any_learner import replica_of


@pytest.mark.parametrize("algorithm", ["soml-tg", "oasis"])
def test_it_has_the_models_of_every_version_by_steps_alone(algorithm: str, tmp_path: Path) -> None:
    site = Site(tmp_path, f"log:{tmp_path}/clicks.log")
    site.settings |= {"learner.algorithm": algorithm, "steps.every": "10ms", "stream.poll_records": 16}
    site.settings |= {key.replace("__", "."): value for key, value in KEYS.items()}
    site.settings |= {"checkpoints.every_events": 40}
    events = clicks(drawn(200))
    site.feed(events[:20])
    assert site.learn() == EX_OK
    replica = replica_of(site)
    replica.start()
    try:
        for start in (0, 20, 110):
            if start:
                site.feed(events[start : start + 90])
                assert site.learn() == EX_OK
            newest = site.newest()
            wanted = ModelId(newest.number, 0, newest.watermark, int(newest.counters["records"]), newest.line)
            until(lambda: replica.status().model == wanted, lambda: f"{wanted}, not {replica.status()}")
            learner = learner_of(site.versions.load(newest.number))
            assert isinstance(learner, Keyed)
            with replica._sides.read() as side:
                held = side.learner
                assert isinstance(held, Keyed)
                assert held.events() == learner.events()
                for name, array in learner.state().items():
                    assert name == CLOCK or held.state()[name].tobytes() == array.tobytes(), name
    finally:
        replica.close()
    status = replica.status()
    assert (status.fallbacks, status.refusals) == ({}, {})
    assert status.swaps["version"] == 1, "one load at the start, then steps alone"
    assert site.newest().counters["evicted"] > 0


def test_copies_are_compared_by_whose_models_they_are_too() -> None:
    names = ["G", "violated", "key_name", "key_last", "key_events", CLOCK]
    same = {name: f"{n:032x}" for n, name in enumerate(names)}

    def digest(changed: str) -> str:
        return state_digest("soml-da", names, lambda name: "f" * 32 if name == changed else same[name])

    assert digest(CLOCK) == digest("")
    assert len({digest(name) for name in names if name != CLOCK} | {digest("")}) == len(names)
