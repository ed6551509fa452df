"""The step log is left, the last good state answers, and the replica begins again from a version."""

from __future__ import annotations

import threading

import numpy as np
from scipy import sparse

from daemon.replica import buffer_writer as desk
from daemon.replica import replica as follower
from daemon.replica.settings import Hooks
from learners import as_block
from streams.log import database
from streams.open import memory_path
from streams.steps.segment import Break, RankOneSteps
from tests.harness.waiting import until

from .watching import W_of, formed_at, goes_on, in_two, lost
from .world import World, column_of, serves


def test_a_missing_segment_is_a_gap_and_the_last_good_state_answers_until_the_next_version(world, started):
    replica = started()
    world.learn(20)
    serves(replica, "0+20")
    good = world.learner.W.copy()
    world.skip_a_segment()
    world.learn(20)
    lost(replica, "gap")
    W, model = W_of(replica)
    assert str(model) == "0+20"
    assert W.tobytes() == good.tobytes()
    assert replica.status().following == "versions"
    goes_on(world, replica)


def test_a_broken_chain_is_noticed(world, started):
    replica = started()
    world.learn(20)
    serves(replica, "0+20")
    world.chain = b"x" * 32
    world.learn(20)
    lost(replica, "chain")
    assert str(W_of(replica)[1]) == "0+20"
    goes_on(world, replica)


def test_what_the_learner_left_out_is_no_error_of_the_replica(world, started):
    replica = started()
    world.learn(20)
    world.send(Break(world.records, "rate"))
    lost(replica, "break")
    assert str(W_of(replica)[1]) == "0+20"
    world.learn(20, tell=False)
    goes_on(world, replica)


def test_a_state_that_is_not_the_versions_is_loaded_anew(world, started):
    replica = started()
    world.learn(20)
    serves(replica, "0+20")
    for side in (replica._sides.active, replica._sides.idle):
        side.buffers.state["W"][3, 3] += 1e-6  # what must not happen: a bit of W is another one
    manifest = world.publish()
    lost(replica, "digest")
    serves(replica, str(manifest.number))
    assert W_of(replica)[0].tobytes() == world.learner.W.tobytes()
    world.learn(10)
    serves(replica, f"{manifest.number}+10")


def test_a_digest_that_lies_is_not_believed(world, started):
    replica = started()
    world.learn(20)
    serves(replica, "0+20")
    manifest = world.capture()
    world.base(manifest, digest="0" * 32)
    lost(replica, "digest")
    serves(replica, str(manifest.number))
    assert replica.status().swaps["version"] == 2


def test_a_cut_that_retention_took_is_a_gap(world, started):
    world.learn(20)
    world.publish()
    world.learn(20)
    database.retain(memory_path(world.topic), "steps", None, 1, None)
    world.learn(20)
    replica = started()
    serves(replica, "1")
    lost(replica, "gap")
    goes_on(world, replica)


def test_steps_of_another_dimension_fall_back(world, started):
    replica = started()
    serves(replica, "0")
    other = World(dim=world.dim + 1, kind=world.kind)
    other.sink, other.place, other.chain = world.sink, world.place, world.chain
    other.learn(5)
    lost(replica, "steps")
    assert str(W_of(replica)[1]) == "0"


def test_a_version_whose_base_never_comes_is_loaded_after_a_while(world, started, monkeypatch):
    monkeypatch.setattr(follower, "RELABEL_WAIT_S", 0.3)
    replica = started()
    world.learn(20)
    serves(replica, "0+20")
    manifest = world.capture()
    serves(replica, str(manifest.number))
    assert replica.status().swaps["version"] == 2
    world.learn(10)
    serves(replica, f"{manifest.number}+10")


def test_after_a_mistake_midway_the_version_is_loaded_and_followed_again(world, started, monkeypatch):
    monkeypatch.setattr(follower, "AFTER_BUG_S", 0.01)
    replica = started()
    world.learn(20)
    manifest = world.publish()
    serves(replica, "1")
    digest = desk.array_digest
    broken = [True]

    def once(array):
        if broken:
            broken.clear()
            raise RuntimeError("a mistake")
        return digest(array)

    monkeypatch.setattr(desk, "array_digest", once)
    world.learn(20)
    newer = world.capture()
    lost(replica, "error")
    world.base(newer)
    serves(replica, str(newer.number))
    world.learn(10)
    serves(replica, f"{newer.number}+10")
    assert W_of(replica)[0].tobytes() == world.learner.W.tobytes()
    assert manifest.number == 1


def test_falling_back_carries_the_form_on_instead_of_making_one(world):
    prepared = []

    def prepare(view):
        prepared.append(threading.current_thread().name)
        return view.model.total

    replica = world.replica(hooks=Hooks(prepare=prepare))
    replica.start()
    try:
        world.learn(20)
        until(lambda: replica.status().swaps.get("refine"), "refined once")
        world.skip_a_segment()
        world.learn(20)
        manifest = world.publish()
        serves(replica, str(manifest.number))
        assert prepared.count("tripletd-replica-latest") == 1, "at the start alone"
        queries = world.rows(3, 4)
        with replica.read() as view:
            total, formed = view.model.total, view.formed
            assert view.prepared == formed
            assert np.allclose(view.fold(queries), world.wanted_fold(queries, total, formed), atol=1e-4)
        until(lambda: formed_at(replica) == 40, "and the form is made in its turn")
    finally:
        replica.close()


def test_a_break_within_a_record_drops_its_half(world, started):
    replica = started()
    world.learn(20)
    serves(replica, "0+20")
    in_two(world)
    world.send(Break(20, "rate"))
    lost(replica, "break")
    assert W_of(replica)[0].tobytes() == world.W_at[20].tobytes()
    refined = replica.status().swaps.get("refine", 0)
    replica.prepare_again()
    until(lambda: replica.status().swaps.get("refine", 0) > refined, "what is prepared can be made anew")
    goes_on(world, replica)


def test_of_steps_that_fail_midway_nothing_is_shown(world, started):
    replica = started()
    serves(replica, "0")
    held, send = [], world.sink.send
    world.sink.send = held.extend
    world.learn(20)
    values = np.ones((2, world.dim), np.float32)
    values[1, 0] = 1e19  # the first of these is taken, the second is more than a step takes
    rows = column_of(as_block(values if world.kind == "dense" else sparse.csr_array(values)))
    world.learn(5, tell=False)
    world.send(RankOneSteps(20, 25, 1, np.zeros(0, np.int64), np.full(2, 0.1, np.float32), rows, rows))
    world.sink.send = send
    send(held)  # in one poll
    lost(replica, "steps")
    W, model = W_of(replica)
    assert W.tobytes() == world.W_at[model.total].tobytes()
    goes_on(world, replica)


def test_a_version_loaded_within_a_record_brings_its_events_unseen(world, monkeypatch):
    monkeypatch.setattr(follower, "RELABEL_WAIT_S", 0.1)
    told = []
    replica = world.replica(hooks=Hooks(flipped=told.append))
    replica.start()
    try:
        world.learn(20)
        serves(replica, "0+20")
        in_two(world)
        manifest = world.capture(tell=False)
        serves(replica, str(manifest.number))
        world.publish()
        goes_on(world, replica)
    finally:
        replica.close()
    times = np.concatenate([flip.event_times for flip in told]) - 1_000_001
    assert times.tolist() == [*range(20), *range(40, 50)]


def test_a_refused_load_leaves_the_followed_state_as_it_was(world, started, monkeypatch):
    monkeypatch.setattr(follower, "RELABEL_WAIT_S", 0.1)
    replica = started()
    world.learn(20)
    serves(replica, "0+20")
    world.learner.W[0, 0], kept = np.nan, world.learner.W[0, 0]
    world.capture(tell=False)
    until(lambda: replica.status().refusals.get("not_finite"))
    world.learner.W[0, 0] = kept
    for total in (30, 40):
        world.learn(10)
        serves(replica, f"0+{total}")
        assert W_of(replica)[0].tobytes() == world.learner.W.tobytes()
    assert replica.status().fallbacks == {}


def test_a_refused_load_within_a_record_leaves_the_log(world, started, monkeypatch):
    monkeypatch.setattr(follower, "RELABEL_WAIT_S", 0.2)
    replica = started()
    world.learn(20)
    serves(replica, "0+20")
    rest = in_two(world)
    world.learner.W[0, 0], kept = np.nan, world.learner.W[0, 0]
    world.capture(tell=False)
    until(lambda: replica.status().refusals.get("not_finite"))
    world.learner.W[0, 0] = kept
    lost(replica, "error")
    rest()
    assert W_of(replica)[0].tobytes() == world.W_at[20].tobytes()
    goes_on(world, replica)
