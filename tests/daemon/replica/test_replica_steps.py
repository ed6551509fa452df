"""A replica follows a real learner step by step: bit for bit, and relabelled at bases."""

from __future__ import annotations

import time

import numpy as np
import pytest

from daemon.replica import replica as follower
from daemon.replica.settings import Hooks
from learners.psd import project_psd
from streams.open import memory_path
from streams.source import OutRecord
from streams.steps.segment import RankOneSteps
from tests.harness.topics import delete_of_log
from tests.harness.waiting import until

from .watching import W_of, formed_at, in_two
from .world import column_of, serves


def test_W_is_the_learners_bit_for_bit_at_every_base_and_in_between(world, started):
    replica = started()
    serves(replica, "0")
    for number in range(1, 6):
        world.learn(30)
        world.learn(10)
        serves(replica, f"{number - 1}+40")
        assert W_of(replica)[0].tobytes() == world.learner.W.tobytes()
        manifest = world.publish()
        model = serves(replica, str(number))
        W, seen = W_of(replica)
        assert seen == model
        assert W.tobytes() == world.versions.load(number).arrays["W"].tobytes()
        assert (model.total, model.watermark) == (world.records, world.watermark)
        assert manifest.number == number
    status = replica.status()
    assert status.swaps["version"] == 1, "bases are relabelled, not loaded"
    assert status.swaps["relabel"] == 5
    assert status.following == "steps"
    assert status.fallbacks == {}


def test_a_base_that_comes_alone_renames_what_answers(world, started):
    replica = started()
    world.learn(20)
    serves(replica, "0+20")
    flips = replica.status().swaps["steps"]
    manifest = world.capture()
    until(lambda: replica.status().swaps["steps"] > flips, "the cut was heard")
    assert str(W_of(replica)[1]) == "0+20"
    world.base(manifest)
    serves(replica, "1")
    assert str(W_of(replica)[1]) == "1"


def test_both_sides_hold_the_same_after_settling(world, started):
    replica = started()
    world.learn(30)
    serves(replica, "0+30")
    until(lambda: replica._sides.idle.buffers.state["W"].tobytes() == world.learner.W.tobytes(), "idle side")
    assert replica._sides.active.buffers.state["W"].tobytes() == world.learner.W.tobytes()


def test_rubbish_between_segments_and_segments_sent_twice_change_nothing(world, started):
    replica = started()
    world.learn(20)
    world.sink.send([OutRecord(b"rubbish"), OutRecord(None)])
    before = world.place, world.chain, world.records, world.learner.clone()
    world.learn(10)
    world.place, world.chain, world.records, world.learner = before
    world.learn(10)
    world.learn(10)
    serves(replica, "0+40")
    assert W_of(replica)[0].tobytes() == world.learner.W.tobytes()
    assert replica.status().fallbacks == {}


def test_a_replica_that_starts_late_finds_the_cut_of_the_newest_version(world, started):
    for _ in range(3):
        world.learn(20)
        world.publish()
    world.learn(5)
    replica = started()
    serves(replica, "3+5")
    assert W_of(replica)[0].tobytes() == world.learner.W.tobytes()
    assert replica.status().swaps["version"] == 1


def test_a_projection_of_the_learner_is_taken_too(started_of):
    world, replica = started_of(psd_every=15)
    world.learn(40)
    serves(replica, "0+40")
    assert W_of(replica)[0].tobytes() == world.learner.W.tobytes()
    world.publish()
    serves(replica, "1")
    assert replica.status().fallbacks == {}


def test_a_projection_without_a_step_before_it_is_taken_too(world, started):
    replica = started()
    world.learn(20)
    world.learner.W[...] = project_psd(world.learner.W)
    none, empty = np.zeros(0, np.float32), column_of(world.rows(0, 0))
    world.send(RankOneSteps(20, 21, None, np.zeros(1, np.int64), none, empty, empty, project=True))
    serves(replica, "0+21")
    assert W_of(replica)[0].tobytes() == world.learner.W.tobytes()


def test_a_learner_that_keeps_W_symmetric_is_followed_bit_for_bit(started_of):
    world, replica = started_of(symmetric="online")
    world.learn(40)
    serves(replica, "0+40")
    assert W_of(replica)[0].tobytes() == world.learner.W.tobytes()


def test_a_log_that_is_not_there_yet_is_opened_when_it_comes(world):
    delete_of_log(memory_path(world.topic), "steps")
    replica = world.replica()
    replica.start()
    try:
        serves(replica, "0")
        world.learn(20, tell=False)
        manifest = world.capture(tell=False)
        serves(replica, str(manifest.number))
        assert replica.status().following == "versions"
    finally:
        replica.close()


def test_only_latest_can_be_followed_step_by_step(world):
    with pytest.raises(ValueError, match="only latest"):
        world.replica(alias="stable")


def test_who_is_told_of_flips_hears_each_event_time_once_and_in_order(world):
    told = []
    replica = world.replica(hooks=Hooks(flipped=told.append))
    replica.start()
    try:
        serves(replica, "0")
        for _ in range(4):
            world.learn(20)
        serves(replica, "0+80")
        world.publish()
        serves(replica, "1")
    finally:
        replica.close()
    times = np.concatenate([flip.event_times for flip in told])
    assert times.tolist() == [1_000_001 + n for n in range(80)]
    totals = [flip.model.total for flip in told]
    assert totals == sorted(totals)
    assert {flip.result for flip in told} <= {"version", "steps", "relabel", "refine"}


def test_an_event_is_told_once_though_the_log_is_read_again_or_it_is_learned_again(world, monkeypatch):
    monkeypatch.setattr(follower, "RELABEL_WAIT_S", 0.2)
    told = []
    replica = world.replica(hooks=Hooks(flipped=told.append))
    replica.start()
    try:
        serves(replica, "0")
        world.learn(20)
        manifest = world.capture()  # nobody says that it is durable: it will be loaded
        world.learn(20)
        serves(replica, "1+20")
        assert replica.status().swaps["version"] == 2
        world.restart(manifest.number)  # and the last 20 are learned again
        world.learn(20)
        world.learn(10)
        serves(replica, "1+30")
    finally:
        replica.close()
    times = np.concatenate([flip.event_times for flip in told])
    assert times.tolist() == [1_000_001 + n for n in range(50)]


def test_other_events_that_a_learner_learns_in_place_of_those_shown_are_told(world):
    told = []
    replica = world.replica(hooks=Hooks(flipped=told.append))
    replica.start()
    try:
        serves(replica, "0")
        world.learn(20)
        serves(replica, "0+20")
        manifest = world.publish()
        serves(replica, "1")
        world.learn(20)
        serves(replica, "1+20")
        world.restart(manifest.number)
        world.learn(10, later=5_000)
        serves(replica, "1+10")
    finally:
        replica.close()
    times = np.concatenate([flip.event_times for flip in told]) - 1_000_001
    assert times.tolist() == [*range(40), *range(5_020, 5_030)]


def test_nobody_sees_half_a_record_also_when_a_form_is_made_meanwhile(world, started):
    replica = started()
    world.learn(20)
    serves(replica, "0+20")
    before = world.W_at[20]
    until(lambda: formed_at(replica) == 20, "refined")
    rest = in_two(world)
    until(lambda: replica._follower._writer.unshown, "the first half is there, and what was made is shown")
    refined = replica.status().swaps["refine"]
    for _ in range(3):
        replica.prepare_again()
        time.sleep(0.15)
        W, model = W_of(replica)
        assert str(model) == "0+20"
        assert W.tobytes() == before.tobytes()
        assert replica.status().swaps["refine"] == refined, "it waits"
    rest()
    serves(replica, "0+40")
    world.learn(10)
    serves(replica, "0+50")
    manifest = world.publish()
    serves(replica, str(manifest.number))
    assert W_of(replica)[0].tobytes() == world.learner.W.tobytes()
    assert replica.status().fallbacks == {}
