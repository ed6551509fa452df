"""A replica of a learner whose steps wait to be added to its matrix: the same bits, and fresh answers."""

from __future__ import annotations

import numpy as np
import pytest

from daemon.replica.loading import lacked
from learners import as_block
from learners.pending import matrix_in
from tests.harness.waiting import until

from .world import World, serves

DIM = 60
"""Room for four steps."""


@pytest.fixture
def world():
    return World(dim=DIM)


def whole(replica):
    """W of the model that answers, every step of it added; and how many wait."""
    with replica.read() as view:
        form = view.form
        return form.pending.with_them(form.state_matrix).copy(), len(form.pending)


def learn_until_some_wait(world):
    """What is compared says something only then."""
    until(lambda: world.learn(1) or len(world.learner.pending) == 3, "three steps wait")


def test_W_is_the_learners_bit_for_bit_and_versions_are_not_loaded(world, started):
    replica = started()
    serves(replica, "0")
    for number in range(1, 5):
        world.learn(30)
        learn_until_some_wait(world)
        serves(
            replica, f"{number - 1}+{world.records - world.versions.manifest(number - 1).counters['records']}"
        )
        W, waiting = whole(replica)
        assert W.tobytes() == world.learner.W.tobytes()
        assert waiting == 3
        world.publish()
        serves(replica, str(number))
        arrays = world.versions.load(number).arrays
        assert matrix_in(arrays).tobytes() == whole(replica)[0].tobytes() != arrays["W"].tobytes()
    status = replica.status()
    assert (status.swaps["version"], status.swaps["relabel"]) == (1, 4)
    assert status.fallbacks == {}


def test_answers_hold_steps_that_wait(world, started):
    replica = started()
    serves(replica, "0")
    world.learn(40)
    learn_until_some_wait(world)
    serves(replica, f"0+{world.records}")
    queries = as_block(np.random.default_rng(0).standard_normal((5, DIM)).astype(np.float32))
    with replica.read() as view:
        folded, formed, total = view.form.fold(queries), view.formed, view.model.total
    wanted = world.wanted_fold(queries, total, formed)
    np.testing.assert_allclose(folded, wanted, atol=2e-4 * np.abs(wanted).max())


def test_a_learner_that_goes_on_from_a_version_is_followed(world, started):
    replica = started()
    serves(replica, "0")
    world.learn(30)
    learn_until_some_wait(world)
    number = world.publish().number
    serves(replica, str(number))
    world.restart(number)
    world.learn(7)
    serves(replica, f"{number}+7")
    assert whole(replica)[0].tobytes() == world.learner.W.tobytes()


def test_a_version_of_an_earlier_release_is_loaded_as_one_without_waiting_steps(world, started):
    world.learn(30)
    plain = world.learner.settled().copy()
    arrays = {name: array for name, array in world.arrays().items() if not name.startswith("pending")}
    manifest = world.versions.publish(world.epoch, arrays, world.meta())
    assert {*lacked(manifest, world.shelf.space)} == {"pending_tau", "pending_pairs", "pending_kind"}
    replica = started(steps=False)
    serves(replica, str(manifest.number))
    state = replica._sides.active.buffers.state
    assert state["W"].tobytes() == plain.tobytes()
    assert not state["pending_tau"].any()
