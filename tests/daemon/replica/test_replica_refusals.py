"""What must not be served is refused by reason, counted once, and the old version goes on answering."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from checkpoints import LocalStore
from checkpoints.manifest import seal
from daemon.replica import loading as refusals
from daemon.replica.loading import REASONS, RejectedVersions, VersionRejected
from daemon.replica.settings import Hooks
from tests.harness.waiting import until

from .world import World, serves


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(store=LocalStore(tmp_path))
    made.root = tmp_path
    made.learn(20)
    return made


@pytest.fixture
def serving(world):
    """A replica that serves version 1 of `world`, by whole versions."""
    world.publish(tell=False)
    replica = world.replica(steps=False)
    replica.start()
    serves(replica, "1")
    yield replica
    replica.close()


def file_of(world, number, suffix=".safetensors") -> Path:
    (found,) = (world.root / "versions" / f"{number:010d}").glob(f"state-*{suffix}")
    return found


def unsealed(path: Path) -> dict:
    record = json.loads(path.read_bytes())
    record.pop("sha256", None)
    return record


def refused(world, replica, reason, number=2):
    until(lambda: replica.status().refusals.get(reason), f"{reason}: {replica.status()}")
    status = replica.status()
    assert str(status.model) == "1"
    assert dict(status.refusals) == {reason: 1}, "once, whatever the number of looks"
    assert REASONS[reason] in status.why_not_newer
    assert status.behind_since is not None, "something newer is there, and it stands still"
    still_answers(world, replica)


def still_answers(world, replica):
    queries = world.rows(5, 4)
    with replica.read() as view:
        assert view.model.version == 1
        assert np.allclose(view.fold(queries), world.wanted_fold(queries, 20, 20), atol=1e-4)


def bytes_changed(world, replica, at):
    """Version 2 as if its file had been changed before the replica first looked."""
    world.learn(20)
    looked = world.versions.listing.poll
    world.versions.listing.poll = lambda: [0, 1]  # the replica does not see it yet
    world.capture(tell=False)
    at(file_of(world, 2))
    world.versions.listing.poll = looked


def test_a_corrupt_byte(world, serving):
    def flip(path):
        data = bytearray(path.read_bytes())
        data[-5] ^= 1
        path.chmod(0o600)
        path.write_bytes(data)

    bytes_changed(world, serving, flip)
    refused(world, serving, "altered")


def test_a_half_written_version(world, serving):
    def cut(path):
        path.chmod(0o600)
        path.write_bytes(path.read_bytes()[:-64])

    bytes_changed(world, serving, cut)
    refused(world, serving, "truncated")


def test_a_version_whose_file_is_gone(world, serving):
    bytes_changed(world, serving, lambda path: path.unlink())
    refused(world, serving, "missing")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite(world, serving, value):
    world.learner.W[4, 7] = value
    world.capture(tell=False)
    refused(world, serving, "not_finite")


def test_another_shape(world, serving):
    world.learner = World(dim=world.dim + 1).learner
    world.capture(tell=False)
    refused(world, serving, "other_shape")


def test_another_map(world, serving):
    world.learn(20)
    world.capture(tell=False, map={"id": "n" * 64, "spec": {}})
    refused(world, serving, "other_map")


def test_another_space(world, serving):
    world.learn(20)
    world.capture(tell=False, space="photos")
    refused(world, serving, "other_space")


@contextmanager
def spoilt_manifest(world) -> Iterator[Path]:
    """The manifest of version 2, written just now, to be changed before any replica sees it."""
    looked = world.versions.listing.poll
    world.versions.listing.poll = lambda: [0, 1]
    world.capture(tell=False)
    path = world.root / "versions" / f"{2:010d}" / "manifest.json"
    path.chmod(0o600)
    yield path
    world.versions.listing.poll = looked


def test_a_future_format(world, serving):
    world.learn(20)
    with spoilt_manifest(world) as path:
        path.write_bytes(seal(unsealed(path) | {"format": 99}))
    refused(world, serving, "future_format")


def test_a_damaged_manifest(world, serving):
    world.learn(20)
    with spoilt_manifest(world) as path:
        path.write_bytes(path.read_bytes()[:40])
    until(lambda: serving.status().refusals, str(serving.status()))
    assert set(serving.status().refusals) <= {"malformed", "altered", "truncated"}
    still_answers(world, serving)


@pytest.mark.parametrize("phase", ["prepare", "warm"])
def test_a_model_that_cannot_be_made_ready(world, phase):
    def fail(view):
        if view.model.version == 2:
            raise RuntimeError("no norms")
        return "prepared"

    world.publish(tell=False)
    replica = world.replica(steps=False, hooks=Hooks(**{phase: fail}))
    replica.start()
    try:
        serves(replica, "1")
        world.learn(20)
        world.capture(tell=False)
        refused(world, replica, phase)
    finally:
        replica.close()


def test_older_than_what_is_served_unless_a_verdict_says_so(world):
    world.publish(tell=False)
    world.learn(20)
    world.publish(tell=False)
    world.ledger.append({"kind": "PROMOTE", "version": 1, "alias": "stable"})
    replica = world.replica(alias="stable", steps=False)
    replica.start()
    try:
        serves(replica, "1")
        entries = world.ledger.poll
        world.ledger.append({"kind": "PROMOTE", "version": 2, "alias": "stable"})
        serves(replica, "2")
        whole = world.ledger.poll
        world.ledger.poll = lambda **how: whole(**how)[:1]  # the second verdict is lost
        until(lambda: replica.status().refusals.get("older"))
        assert str(replica.status().model) == "2"
        world.ledger.poll = entries
        world.ledger.append({"kind": "ROLLBACK", "version": 1, "alias": "stable"})
        serves(replica, "1")
        assert dict(replica.status().refusals) == {"older": 1}
    finally:
        replica.close()


def test_while_nothing_is_served_the_next_best_is(world):
    world.publish(tell=False)
    world.learner.W[0, 0] = np.nan
    world.capture(tell=False)
    replica = world.replica(steps=False)
    replica.start()
    try:
        serves(replica, "1")
        assert dict(replica.status().refusals) == {"not_finite": 1}
        still_answers(world, replica)
    finally:
        replica.close()


def test_a_version_that_was_repaired_is_taken_after_a_while(world, serving, monkeypatch):
    monkeypatch.setattr(refusals, "FIRST_RETRY_S", 0.05)
    kept = {}

    def take_away(path):
        kept["path"], kept["data"] = path, path.read_bytes()
        path.unlink()

    bytes_changed(world, serving, take_away)
    refused(world, serving, "missing")
    kept["path"].write_bytes(kept["data"])
    kept["path"].chmod(0o400)
    serves(serving, "2")
    assert dict(serving.status().refusals) == {"missing": 1}


def test_a_damaged_form_beside_a_whole_version_is_made_anew(world, serving):
    def damage(path):
        form = world.exact_form(world.records)
        world.versions.attach(2, "serving", form.arrays(), {"settings_digest": "of others"})

    bytes_changed(world, serving, damage)
    serves(serving, "2")
    assert serving.status().refusals == {}


def test_the_wait_between_tries_doubles_up_to_a_limit():
    told, now, waits = RejectedVersions("latest"), 0.0, []
    for _ in range(10):
        told.add(3, VersionRejected("missing", "gone"), now)
        assert 3 in told.barred(now)
        wait = 0.0
        while 3 in told.barred(now + wait):
            wait += 2.5
        waits.append(wait)
        now += wait
    assert waits[:4] == [5.0, 10.0, 20.0, 40.0]
    assert max(waits) == refusals.LONGEST_RETRY_S
    assert told.counts == {"missing": 1}
    told.keep({4})
    assert told.barred(now) == {}
