"""What a replica gives its readers and hooks, and how it behaves when they misbehave."""

from __future__ import annotations

import threading
import time
import tracemalloc

import numpy as np
import pytest

from checkpoints import VersionStore
from daemon.replica.explore import VersionCache
from daemon.replica.loading import BufferArrays, load_form, load_state
from daemon.replica.refine import rest
from daemon.replica.settings import Hooks, read_space
from daemon.replica.view import ModelId, NotServing
from daemon.versions.contents import pack
from daemon.versions.forms import MatrixForms
from daemon.versions.restore import settings_digest
from learners import SpaceMap, ViewConfig, as_block
from tests.harness.memory_store import MemoryStore
from tests.harness.waiting import until

from .world import SPACE, World, serves


@pytest.fixture
def world():
    return World()


def test_a_model_is_named_by_its_version_and_what_is_behind_it():
    assert str(ModelId(12)) == "12"
    assert str(ModelId(12, 3400, 5, 90_000)) == "12+3400"


def test_before_anything_is_served_the_reason_is_told(world):
    replica = world.replica("best", steps=False)
    with pytest.raises(NotServing, match="nothing is served as best yet"), replica.read():
        pass
    replica.start()
    try:
        until(lambda: replica.status().why_not_newer == "best means no version that is there")
        with pytest.raises(NotServing, match="best means no version"), replica.read():
            pass
    finally:
        replica.close()
    assert replica.status().model is None


def test_hooks_are_called_off_the_path_before_the_flip_and_in_order(world):
    seen, readable = [], []

    def prepare(view):
        seen.append(("prepare", str(view.model), threading.current_thread().name))
        return f"norms of {view.model}"

    def warm(view):
        seen.append(("warm", view.prepared, threading.current_thread().name))
        readable.append(replica.status().model)

    def flipped(flip):
        seen.append(("flipped", str(flip.model), flip.result))

    world.learn(10)
    world.publish()
    replica = world.replica(steps=False, hooks=Hooks(prepare, warm, flipped))
    replica.start()
    try:
        serves(replica, "1")
        until(lambda: len(seen) == 3)
        assert seen == [
            ("prepare", "1", "tripletd-replica-latest"),
            ("warm", "norms of 1", "tripletd-replica-latest"),
            ("flipped", "1", "version"),
        ]
        assert readable == [None], "nothing answers before it is warm"
        with replica.read() as view:
            assert (view.prepared, view.formed, view.dim, view.normalised) == ("norms of 1", 10, 12, True)
        assert set(replica.status().swap_seconds) == {"load", "form", "prepare", "warm", "flip"}
    finally:
        replica.close()


def test_a_reader_who_never_leaves_is_named_and_nobody_waits_for_him_without_end(world):
    replica, leave, inside = world.replica(steps=True), threading.Event(), threading.Event()

    def stay():
        with replica.read() as view:
            held = view.fold(world.rows(1, 1))
            inside.set()
            leave.wait(30)
            stayed.append(np.array_equal(held, view.fold(world.rows(1, 1))))

    stayed = []
    replica.start()
    try:
        serves(replica, "0")
        reader = threading.Thread(target=stay, name="who-stays")
        reader.start()
        inside.wait(10)
        world.learn(20)
        serves(replica, "0+20")
        until(lambda: replica.status().stuck, "a stuck reader is reported")
        assert replica.status().stuck[0].startswith("who-stays")
        world.learn(20)
        with replica.read() as view:  # others are answered, by the newest state that could be reached
            assert str(view.model) == "0+20"
        time.sleep(0.6)  # some turns of the follower, none of which may touch what is read
        leave.set()
        serves(replica, "0+40")
        assert replica.status().stuck == ()
        assert replica.status().fallbacks == {}
        reader.join(10)
        assert stayed == [True]
    finally:
        leave.set()
        replica.close()


@pytest.mark.parametrize("steps", [True, False])
def test_what_is_prepared_is_made_again_on_request(world, steps):
    counted = []

    def prepare(view):
        counted.append(threading.current_thread().name)
        return len(counted)

    replica = world.replica(steps=steps, hooks=Hooks(prepare=prepare))
    replica.start()
    try:
        serves(replica, "0")
        before = len(counted)
        replica.prepare_again()
        until(lambda: len(counted) > before)

        def newest():
            with replica.read() as view:
                return view.prepared == len(counted)

        until(newest)
        assert counted[-1] == "tripletd-refine-latest"
    finally:
        replica.close()


def test_hooks_that_fail_later_do_not_stop_a_replica(world):
    def prepare(view):
        if view.model.total:
            raise RuntimeError("no")

    def flipped(flip):
        raise RuntimeError("no")

    replica = world.replica(hooks=Hooks(prepare=prepare, flipped=flipped))
    replica.start()
    try:
        serves(replica, "0")
        for n in range(1, 4):
            world.learn(10)
            serves(replica, f"0+{10 * n}")
    finally:
        replica.close()


def test_refining_measures_what_carrying_over_cost_and_takes_the_new_form(world):
    items = world.rows(50, 40)
    replica = world.replica(hooks=Hooks(sample=lambda n: items))
    replica.start()
    try:
        serves(replica, "0")
        for n in range(1, 30):
            world.learn(10)
            serves(replica, f"0+{10 * n}")
            if replica.status().carried is not None:
                break
            until(lambda: replica.status().swaps.get("refine", 0) >= min(n, 2))
        carried = replica.status().carried
        assert carried is not None
        assert carried.fold > 0
        assert carried.norms > 0
        assert 0 <= carried.overlap <= 1
        until(lambda: refined(replica) == world.records)
        queries = world.rows(51, 4)
        with replica.read() as view:
            exact = world.exact_form(world.records).fold(queries)
            assert np.allclose(view.fold(queries), exact, atol=1e-4)
    finally:
        replica.close()


def refined(replica):
    with replica.read() as view:
        return view.formed


def test_closing_takes_no_longer_than_it_must_and_leaves_what_was_served(world):
    replica = world.replica()
    replica.start()
    serves(replica, "0")
    replica.close()
    assert not any(not thread.ended(0) for thread in replica.threads)
    with replica.read() as view:
        assert str(view.model) == "0"
    world.replica().close()  # never started


@pytest.mark.parametrize(
    ("spent", "elapsed", "share", "wanted"),
    [(1.0, 1.0, 0.25, 3.0), (1.0, 5.0, 0.25, 0.0), (0.0, 0.1, 0.5, 0.0), (2.0, 2.0, 1.0, 0.0)],
)
def test_work_keeps_to_its_share_of_a_core(spent, elapsed, share, wanted):
    assert rest(spent, elapsed, share) == wanted


class TestLoading:
    def test_an_attached_form_is_read_into_the_buffer(self, world, monkeypatch) -> None:
        world.learn(20)
        world.publish()
        form = world.exact_form(20)
        meta = {"settings_digest": settings_digest(world.serving)}
        world.versions.attach(1, "serving", form.arrays(), meta)
        monkeypatch.setattr(MatrixForms, "make", None)
        buffers = BufferArrays.of(world.shelf.space, world.serving)
        state = load_state(world.shelf, 1, buffers)
        assert load_form(world.shelf, state, buffers).matrix is buffers.matrix
        assert buffers.matrix.tobytes() == form.matrix.tobytes()
        assert buffers.state["W"].tobytes() == world.learner.W.tobytes()

    def test_a_form_made_with_other_settings_is_not_used(self, world) -> None:
        world.learn(20)
        world.publish()
        wrong = {"matrix": np.zeros((12, 12), np.float32), **_pairs(12)}
        world.versions.attach(1, "serving", wrong, {"settings_digest": "of others"})
        buffers = BufferArrays.of(world.shelf.space, world.serving)
        state = load_state(world.shelf, 1, buffers)
        assert load_form(world.shelf, state, buffers).matrix is buffers.matrix
        assert np.allclose(buffers.matrix, world.exact_form(20).matrix)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"matrix": np.full((12, 12), np.nan, np.float32)},
            {"matrix": np.zeros((13, 13), np.float32)},
            {"matrix": np.zeros((12, 12))},
        ],
    )
    def test_an_attached_form_that_does_not_fit_is_made_anew(self, world, wrong) -> None:
        world.learn(20)
        world.publish()
        meta = {"settings_digest": settings_digest(world.serving)}
        world.versions.attach(1, "serving", wrong | _pairs(12), meta)
        buffers = BufferArrays.of(world.shelf.space, world.serving)
        state = load_state(world.shelf, 1, buffers)
        load_form(world.shelf, state, buffers)
        assert np.allclose(buffers.matrix, world.exact_form(20).matrix)

    def test_nothing_of_the_size_of_W_is_allocated(self) -> None:
        world = World(dim=500)
        world.learn(3)
        world.publish()
        meta = {"settings_digest": settings_digest(world.serving)}
        world.versions.attach(1, "serving", world.exact_form(3).arrays(), meta)
        buffers, shelf = BufferArrays.of(world.shelf.space, world.serving), world.shelf
        state = load_state(shelf, 1, buffers)
        tracemalloc.start()
        try:
            state = load_state(shelf, 1, buffers)
            load_form(shelf, state, buffers)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 4 * 500 * 500


def _pairs(dim):
    return {
        "correction_vectors": np.zeros((dim, 0), np.float32),
        "correction_values": np.zeros(0, np.float32),
        "normalised": np.array(True, np.uint8),
    }


class TestExplorer:
    def test_versions_by_number_few_at_a_time(self, world) -> None:
        for _ in range(3):
            world.learn(10)
            world.publish()
        opened = []
        explorer = VersionCache(world.shelf, Hooks(prepare=lambda view: opened.append(view.model.version)))
        queries = world.rows(9, 3)
        for number in (1, 2, 1, 3, 1, 2):
            with explorer.read(number) as view:
                total = 10 * number
                assert view.model.version == number
                assert np.allclose(view.fold(queries), world.wanted_fold(queries, total, total), atol=1e-4)
        assert opened == [1, 2, 3, 2], "1 and then 3 were the ones not asked for longest"

    def test_all_places_being_read_and_no_such_version(self, world) -> None:
        world.learn(10)
        world.publish()
        explorer = VersionCache(world.shelf, room=1)
        with (
            pytest.raises(NotServing, match=r"version 9 cannot be opened.*no such version"),
            explorer.read(9),
        ):
            pass
        with explorer.read(1), explorer.read(1), pytest.raises(NotServing, match="ask again"):
            explorer.read(0).__enter__()
        with explorer.read(0) as view:
            assert view.model.version == 0


class TestOrigin:
    def test_space_and_map_of_the_newest_version_that_can_be_read(self) -> None:
        world = World()
        fitted = SpaceMap({"x": ViewConfig("standardise")}).fit({"x": as_block(np.eye(12))})
        arrays = pack(world.learner.state(), {}, fitted.arrays(), {})
        meta = world.meta(map={"id": fitted.id, "spec": fitted.spec()})
        world.versions.publish(world.epoch, arrays, meta)
        told = []
        world.versions.publish(world.epoch, arrays, world.meta(map={"id": "x", "spec": {"format": 99}}))
        found = read_space(world.versions, told.append)
        assert found is not None
        space, read = found
        assert (space.space, space.map_id, space.dim, space.columns) == (
            SPACE,
            fitted.id,
            12,
            {"x": range(12)},
        )
        assert read.id == fitted.id

    def test_none_without_a_version(self) -> None:
        assert read_space(VersionStore(MemoryStore())) is None
