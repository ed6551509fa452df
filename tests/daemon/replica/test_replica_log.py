"""Where a replica reads in the step log: behind the cut wherever it is, and in a topic that was made anew."""

from __future__ import annotations

from daemon.replica import replica as follower
from daemon.replica import step_applier as listener
from streams.log import database
from streams.open import MemorySink, memory_path
from tests.harness.topics import delete_of_log
from tests.harness.waiting import until

from .watching import W_of, goes_on, lost
from .world import serves


def test_a_cut_from_long_before_its_version_was_written_is_found(world, started, monkeypatch):
    monkeypatch.setattr(listener, "BACK_MS", -60_000)  # as if the version had taken a minute to be written
    world.learn(20)
    world.publish()
    world.learn(5)
    replica = started()
    serves(replica, "1")
    until(lambda: replica.status().following == "steps" or world.learn(5))  # the first may come too early
    serves(replica, f"1+{world.records - 20}")
    assert W_of(replica)[0].tobytes() == world.learner.W.tobytes()
    assert replica.status().fallbacks == {}


def test_a_base_alone_tells_that_its_cut_was_before(world, started, monkeypatch):
    world.learn(20)
    manifest = world.capture()
    world.learn(5)
    monkeypatch.setattr(listener, "BACK_MS", -60_000)
    replica = started()
    serves(replica, "1")
    until(lambda: replica.status().following == "steps" or world.base(manifest))  # and nobody clicks
    serves(replica, "1+5")


def test_while_the_log_is_lost_a_newer_version_is_loaded_without_waiting_for_its_base(
    world, started, monkeypatch
):
    monkeypatch.setattr(follower, "RELABEL_WAIT_S", 1e6)
    replica = started()
    world.learn(20)
    serves(replica, "0+20")
    world.skip_a_segment()
    world.learn(20)
    lost(replica, "gap")
    goes_on(world, replica)


def test_a_topic_that_was_made_anew_is_left_and_the_next_version_is_loaded_at_once(
    world, started, monkeypatch
):
    monkeypatch.setattr(follower, "RELABEL_WAIT_S", 1e6)
    replica = started()
    world.learn(20)
    serves(replica, "0+20")
    delete_of_log(memory_path(world.topic), "steps")
    database.ensure_topic(memory_path(world.topic), "steps", 1)
    world.sink = MemorySink(world.topic, "steps")
    lost(replica, "log")
    world.learn(10)
    assert str(W_of(replica)[1]) == "0+20"
    goes_on(world, replica)
