"""A replica follows a real learner step by step: bit for bit, relabelled at bases, and falling back."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from checkpoints.errors import Damaged
from daemon.objects.mapped import as_blocks
from daemon.replica import desk, follower, refusals
from daemon.replica.settings import Hooks
from streams import memory
from streams.source import OutRecord
from streams.steps.segment import Break
from tests.waiting import until

from .world import World, column_of, serves


@pytest.fixture(params=["dense", "sparse"])
def world(request: pytest.FixtureRequest) -> World:
    return World(kind=request.param)


@pytest.fixture
def started(world):
    replicas = []

    def start(**how):
        replicas.append(world.replica(**how))
        replicas[-1].start()
        return replicas[-1]

    yield start
    for replica in replicas:
        replica.close()


def W_of(replica):
    with replica.read() as view:
        return view.form.state_matrix.copy(), view.model


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


def test_both_sides_hold_the_same_after_settling(world, started):
    replica = started()
    world.learn(30)
    serves(replica, "0+30")
    until(lambda: replica._sides.idle.buffers.W.tobytes() == world.learner.W.tobytes(), "idle side")
    assert replica._sides.active.buffers.W.tobytes() == world.learner.W.tobytes()


def lost(replica, reason):
    return until(lambda: replica.status().fallbacks.get(reason), f"fall back: {reason}; {replica.status()}")


def goes_on(world, replica):
    """After a fall back: the next version is loaded, and steps are followed again from there."""
    manifest = world.publish()
    serves(replica, str(manifest.number))
    assert replica.status().swaps["version"] >= 2
    until(lambda: replica.status().following == "steps", "following again")
    world.learn(10)
    serves(replica, f"{manifest.number}+10")
    assert W_of(replica)[0].tobytes() == world.learner.W.tobytes()


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
        side.buffers.W[3, 3] += 1e-6  # what must not happen: a bit of W is another one
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
        if faults and threading.current_thread().name == "replica-latest":
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


def test_a_cut_that_retention_took_is_a_gap(world, started):
    world.learn(20)
    world.publish()
    world.learn(20)
    memory.retain(world.topic, "steps", None, 1, None)
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


def test_a_projection_of_the_learner_is_taken_too(started_of):
    world, replica = started_of(psd_every=15)
    world.learn(40)
    serves(replica, "0+40")
    assert W_of(replica)[0].tobytes() == world.learner.W.tobytes()
    world.publish()
    serves(replica, "1")
    assert replica.status().fallbacks == {}


def test_a_learner_that_keeps_W_symmetric_is_followed_bit_for_bit(started_of):
    world, replica = started_of(symmetric="online")
    world.learn(40)
    serves(replica, "0+40")
    assert W_of(replica)[0].tobytes() == world.learner.W.tobytes()


@pytest.fixture
def started_of(started, request):
    replicas = []

    def start(**learner):
        world = World(**learner)
        replicas.append(world.replica())
        replicas[-1].start()
        serves(replicas[-1], "0")
        return world, replicas[-1]

    yield start
    for replica in replicas:
        replica.close()


def test_a_log_that_is_not_there_yet_is_opened_when_it_comes(world):
    memory.delete_topic(world.topic, "steps")
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


def test_a_version_whose_base_never_comes_is_loaded_after_a_while(world, started, monkeypatch):
    monkeypatch.setattr(follower, "PATIENCE_S", 0.3)
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
    monkeypatch.setattr(follower, "PATIENCE_S", 0.2)
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
        assert prepared.count("replica-latest") == 1, "at the start alone"
        queries = world.rows(3, 4)
        with replica.read() as view:
            total, formed = view.model.total, view.formed
            assert view.prepared == formed
            assert np.allclose(view.fold(queries), world.wanted_fold(queries, total, formed), atol=1e-4)
        until(lambda: formed_at(replica) == 40, "and the form is made in its turn")
    finally:
        replica.close()


def formed_at(replica):
    with replica.read() as view:
        return view.formed


def in_two(world, events=20):
    """A record whose steps come in two segments: the first is sent, the second is what this returns."""
    sent = []
    world.send, whole = sent.append, world.send
    world.learn(events)
    world.send = whole
    (steps,) = sent
    half = len(steps.tau) // 2
    blocks = as_blocks({"query": steps.query, "error": steps.error})
    parts = []
    for part in (slice(0, half), slice(half, None)):
        rows = np.arange(len(steps.tau))[part]
        columns = {name: column_of(block.take(rows)) for name, block in blocks.items()}
        parts.append(replace(steps, tau=steps.tau[part], **columns))
    world.send(replace(parts[0], last=steps.first))
    return lambda: world.send(replace(parts[1], timestamps=steps.timestamps[:0]))


def test_nobody_sees_half_a_record_also_when_a_form_is_made_meanwhile(world, started):
    replica = started()
    world.learn(20)
    serves(replica, "0+20")
    before = world.W_at[20]
    until(lambda: formed_at(replica) == 20, "refined")
    rest = in_two(world)
    for _ in range(3):
        refined = replica.status().swaps["refine"]
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


def test_a_break_within_a_record_drops_its_half(world, started):
    replica = started()
    world.learn(20)
    serves(replica, "0+20")
    in_two(world)
    world.send(Break(20, "rate"))
    lost(replica, "break")
    assert W_of(replica)[0].tobytes() == world.W_at[20].tobytes()
    goes_on(world, replica)


def test_a_refused_load_within_a_record_leaves_the_log(world, started, monkeypatch):
    monkeypatch.setattr(follower, "PATIENCE_S", 0.2)
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
