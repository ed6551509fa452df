"""Learners that restart, die, share the step log or begin anew: whose steps a replica takes."""

from __future__ import annotations

import threading

from checkpoints.store import Damaged
from daemon.replica import loading as refusals
from streams.steps.segment import Break

from .watching import W_of, in_two, lost
from .world import World, serves


def test_a_restarted_learner_is_followed_from_the_version_it_began_from(world, started):
    replica = started()
    world.learn(20)
    manifest = world.publish()
    serves(replica, "1")
    world.learn(20)
    serves(replica, "1+20")
    world.restart(manifest.number)  # the 20 are learned again, or others in their place
    lost(replica, "writer")
    serves(replica, "1")
    world.learn(30)
    serves(replica, "1+30")
    assert W_of(replica)[0].tobytes() == world.learner.W.tobytes()


def test_a_restarted_learner_at_the_replicas_own_state_needs_no_load(world, started):
    replica = started()
    world.learn(20)
    manifest = world.publish()
    serves(replica, "1")
    world.restart(manifest.number)
    world.learn(10)
    serves(replica, "1+10")
    assert replica.status().swaps["version"] == 1
    assert replica.status().fallbacks == {}


def test_a_writer_that_was_succeeded_is_not_listened_to(world, started):
    replica = started()
    world.learn(20)
    old, learner = (world.place, world.chain), world.learner
    manifest = world.publish()
    world.restart(manifest.number)
    new = world.place, world.chain
    world.place, world.chain = old
    world.send(Break(20, "error"))
    world.place, world.chain = new
    world.learn(10)
    serves(replica, "1+10")
    assert learner is not world.learner
    assert replica.status().fallbacks == {}


def beside(world):
    """A learner with a folder of its own, at the same epoch, that tells its steps to the same log."""
    other = World(dim=world.dim, kind=world.kind, C=0.01)
    other.topic, other.sink = world.topic, world.sink
    other.restart_log(0)
    return other


def test_a_folder_that_was_emptied_is_not_followed_by_the_steps_of_before(world, started):
    world.learn(20)
    world.publish()
    world.learn(20)
    anew = beside(world)
    anew.learn(20)
    replica = anew.replica()
    replica.start()
    try:
        serves(replica, "0+20")
        assert W_of(replica)[0].tobytes() == anew.learner.W.tobytes()
        anew.publish()
        serves(replica, "1")
        anew.learn(10)
        serves(replica, "1+10")
        assert W_of(replica)[0].tobytes() == anew.learner.W.tobytes()
        assert replica.status().fallbacks == {}
    finally:
        replica.close()


def test_two_folders_that_share_a_step_log_do_not_disturb_each_other(world, started):
    other, mine = beside(world), started()
    theirs = other.replica()
    theirs.start()
    try:
        for number in range(1, 4):
            for one in (world, other, other, world):
                one.learn(10)
            for one, replica in ((other, theirs), (world, mine)):
                one.publish()
                one.learn(10)
                serves(replica, f"{number}+10")
                assert W_of(replica)[0].tobytes() == one.learner.W.tobytes()
        assert mine.status().fallbacks == theirs.status().fallbacks == {}
        assert mine.status().swaps["version"] == theirs.status().swaps["version"] == 1
    finally:
        theirs.close()


def test_a_learner_killed_within_a_record_is_followed_without_its_half(world, started):
    replica = started()
    world.learn(20)
    manifest = world.publish()
    serves(replica, "1")
    in_two(world)  # the other half is never sent
    world.restart(manifest.number)
    lost(replica, "writer")
    world.learn(30)
    serves(replica, "1+30")
    assert W_of(replica)[0].tobytes() == world.learner.W.tobytes()


def test_the_version_to_begin_anew_from_is_tried_until_it_loads(world, started, monkeypatch):
    monkeypatch.setattr(refusals, "FIRST_RETRY_S", 0.05)
    replica = started()
    world.learn(20)
    manifest = world.publish()
    serves(replica, "1")
    world.learn(20)
    serves(replica, "1+20")
    whole, faults = world.versions.load, [Damaged("unreadable", "state", "cannot be read")] * 2

    def load(number, *destination):
        if faults and threading.current_thread().name == "tripletd-replica-latest":
            raise faults.pop()
        return whole(number, *destination)

    world.versions.load = load
    world.restart(manifest.number)
    serves(replica, "1")
    world.learn(30)
    serves(replica, "1+30")
    assert W_of(replica)[0].tobytes() == world.learner.W.tobytes()
    assert not faults


def test_a_cut_that_was_sent_twice_needs_no_load(world, started):
    replica = started()
    world.learn(20)
    serves(replica, "0+20")
    send = world.sink.send
    world.sink.send = lambda records: (send(records), send(records))  # it was not known whether it arrived
    manifest = world.capture()
    world.base(manifest)
    serves(replica, "1")
    assert replica.status().swaps["version"] == 1
