"""A folder that was emptied, or put back from a copy, under a server: told, and answers go on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from checkpoints import LocalStore, VersionStore
from tests.harness.waiting import until

from .world import World, serves


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(store=LocalStore(tmp_path / "folder"))
    made.learn(20)
    return made


def put_back(world: World, copy: Path) -> None:
    """The folder as it was when it was copied; in one step, as far as a reader sees."""
    root = world.versions.store.root
    root.rename(copy.with_name("away"))
    shutil.copytree(copy, root)


def test_an_older_copy_is_told_of_and_the_new_line_is_served_when_it_is_there(world, tmp_path) -> None:
    world.publish(tell=False)
    shutil.copytree(world.versions.store.root, copy := tmp_path / "copy")
    world.learn(20)
    last = world.publish(tell=False)
    replica = world.replica(steps=False)
    replica.start()
    serves(replica, "2")
    assert replica.status().model.line == last.line
    with capture_logs() as told:
        put_back(world, copy)
        until(lambda: "an older copy was put in its place" in replica.status().why_not_newer)
    assert last.name in replica.status().why_not_newer
    assert sum("older copy" in line["event"] for line in told) == 1
    assert (replica.status().folder, replica.status().folder_losses) == ("lacks", {"lacks": 1})
    serves(replica, "2")  # what answers goes on answering
    world.epoch = world.versions.claim(after=last.number, line="f" * 16)
    newest = world.publish(tell=False)
    serves(replica, str(newest.number))
    assert replica.status().model.line == "f" * 16
    until(lambda: replica.status().why_not_newer == "")  # a moment after it is served
    assert (replica.status().folder, replica.status().folder_losses) == ("", {"lacks": 1})
    replica.close()


def test_a_folder_that_is_gone_is_told_of_until_it_is_there_again(world, tmp_path) -> None:
    world.publish(tell=False)
    replica = world.replica(steps=False)
    replica.start()
    serves(replica, "1")
    root = world.versions.store.root
    root.rename(tmp_path / "away")
    until(lambda: replica.status().folder == "gone")
    until(lambda: "mount it again" in replica.status().why_not_newer)
    serves(replica, "1")
    (tmp_path / "away").rename(root)
    until(lambda: replica.status().folder == "")
    until(lambda: replica.status().why_not_newer == "")
    assert replica.status().folder_losses == {"gone": 1}
    replica.close()


def test_another_state_under_the_number_that_is_served_is_loaded(world, tmp_path) -> None:
    shutil.copytree(world.versions.store.root, copy := tmp_path / "copy")
    world.publish(tell=False)
    replica = world.replica(steps=False)
    replica.start()
    serves(replica, "1")
    world.learn(20)
    other = VersionStore(LocalStore(copy))
    epoch = other.claim(line="e" * 16)
    epoch.next_number = 1
    shutil.rmtree(copy / "versions" / "0000000001")  # its claim
    world.versions, kept = other, world.versions
    world.epoch = epoch
    world.publish(tell=False)
    world.versions = kept
    put_back(world, copy)
    until(lambda: replica.status().model.line == "e" * 16)
    assert str(replica.status().model) == "1"
    assert replica.status().model.total == 40
    replica.close()


def test_a_line_is_followed_over_steps(world) -> None:
    replica = world.replica()
    replica.start()
    first = world.publish()
    serves(replica, "1")
    assert replica.status().model.line == first.line
    world.learn(20)
    until(lambda: replica.status().model.behind == 20)
    assert replica.status().model.line == first.line
    world.epoch.line = "d" * 16
    world.publish()
    serves(replica, "2")
    assert replica.status().model.line == "d" * 16
    replica.close()
