"""What is loaded holds finite numbers everywhere, and brings its own form where none is worth carrying on."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from daemon.replica.loading import BufferArrays, VersionRejected, check_finite, load_form, load_state
from daemon.replica.settings import FollowSettings, Hooks
from daemon.versions.forms import MatrixForms
from tests.harness.waiting import until

from .watching import formed_at
from .world import World, serves


@pytest.mark.parametrize("row", [0, 255, 256, 599])
def test_a_number_that_is_not_finite_is_found_in_every_row(row):
    matrix = np.zeros((600, 600), np.float32)
    check_finite(matrix, "W")
    matrix[row, 599] = np.inf
    with pytest.raises(VersionRejected) as refused:
        check_finite(matrix, "W")
    assert refused.value.reason == "not_finite"


def test_a_form_that_comes_out_with_nan_is_refused(monkeypatch):
    world = World()
    world.learn(20)
    world.publish()
    made = MatrixForms.make

    def spoiled(*how):
        form = made(*how)
        return replace(form, matrix=np.full_like(form.matrix, np.nan))

    monkeypatch.setattr(MatrixForms, "make", spoiled)
    buffers = BufferArrays.of(world.shelf.space, world.serving)
    state = load_state(world.shelf, 1, buffers)
    with pytest.raises(VersionRejected) as refused:
        load_form(world.shelf, state, buffers)
    assert refused.value.reason == "not_finite"


def test_the_form_of_the_untrained_version_is_not_carried_on_to_a_loaded_one(world):
    replica = world.replica(following=FollowSettings(look_every_s=0.02, refine_every_s=1e6))
    replica.start()
    try:
        world.learn(20)
        serves(replica, "0+20")
        world.skip_a_segment()
        world.learn(20)
        world.publish()
        serves(replica, "1")
        assert formed_at(replica) == 40
    finally:
        replica.close()


def test_what_was_prepared_of_a_version_is_not_given_to_the_next_one(world):
    inside, go_on = threading.Event(), threading.Event()

    def prepare(view):
        if "refine" in threading.current_thread().name:
            inside.set()
            go_on.wait(10)
        return str(view.model)

    replica = world.replica(steps=False, hooks=Hooks(prepare=prepare))
    replica.start()
    try:
        serves(replica, "0")
        replica.prepare_again()
        assert inside.wait(10)
        world.learn(20)
        world.publish(tell=False)
        serves(replica, "1")
        go_on.set()
        until(lambda: not replica._follower._work and replica._sides.drain(0), "the work was looked at")
        replica.prepare_again()  # and once more, so that a turn has passed
        until(lambda: replica.status().swaps.get("refine"))
        with replica.read() as view:
            assert (str(view.model), view.prepared) == ("1", "1")
        assert replica.status().swaps["refine"] == 1, "that of version 0 was dropped"
    finally:
        go_on.set()
        replica.close()
