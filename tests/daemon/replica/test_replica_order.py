"""What orders lists while steps are followed: the arm of the newest version, without another form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from daemon.replica.loading import BufferArrays, VersionRejected, answers_of, load_order, load_state
from daemon.replica.replica import Replica
from daemon.replica.settings import VersionSource
from daemon.versions.order import Answering, OrderChoice
from learners.maps.base import OwnRanking
from tests.harness.waiting import until

from .world import World, serves

ARM = {"name": "all", "pairs": "all", "random": True, "C": 0.05, "geometry": "own"}
CHOICE = OrderChoice("all", 3.0, 40)


class ArmedWorld(World):
    """Versions have arms, of which one is twice the number of the version times I and the other is not."""

    def arrays(self) -> dict[str, np.ndarray]:
        eye = np.eye(self.dim, dtype=np.float32)
        number = np.float32(self.epoch.next_number)
        return super().arrays() | {"arms.all.W": number * eye, "arms.other.W": np.float32(np.nan) * eye}

    def meta(self, **changes: Any) -> Any:
        found = super().meta(**changes)
        arms = [ARM, ARM | {"name": "other"}]
        return replace(found, learner={**found.learner, "config": {**found.learner["config"], "arms": arms}})

    @property
    def shelf(self) -> VersionSource:
        found = super().shelf
        own = OwnRanking("cosine", np.full(self.dim, 2, np.float32))
        return replace(found, space=replace(found.space, own=own))

    def judged(self, version: int, order: OrderChoice | None = CHOICE, reach: bool = False) -> None:
        measures = {"order": None if order is None else order.to_json(), "reach": reach}
        self.ledger.append({"kind": "PROMOTE", "alias": "best", "version": version, "measures": measures})


@pytest.fixture
def armed() -> Iterator[tuple[ArmedWorld, Callable[..., Replica]]]:
    world, replicas = ArmedWorld(), list[Replica]()

    def start(**how: Any) -> Replica:
        replicas.append(world.replica(**how))
        replicas[-1].start()
        return replicas[-1]

    yield world, start
    for one in replicas:
        one.close()


def ordered(replica: Replica) -> np.ndarray | None:
    """The diagonal of what orders lists."""
    with replica.read() as view:
        return None if view.order is None else view.order.matrix.diagonal().copy()


def test_latest_goes_on_by_steps_while_its_order_comes_from_the_newest_version(
    armed: tuple[ArmedWorld, Callable[..., Replica]],
) -> None:
    world, start = armed
    world.learn(20)
    world.publish()
    world.learn(10)
    replica = start()
    serves(replica, "1+10")
    assert ordered(replica) is None
    world.judged(1)
    until(lambda: ordered(replica) is not None)
    assert str(replica.status().model) == "1+10", "nothing was loaded again"
    assert replica.status().swaps["version"] == 1
    np.testing.assert_allclose(ordered(replica), 2 * 1 + 3 * 2)  # the metric is 2
    assert replica.status().answers == Answering(CHOICE, True), "who asks latest wants what was learned"
    world.learn(5)
    serves(replica, "1+15")
    np.testing.assert_allclose(ordered(replica), 8)
    world.publish()
    serves(replica, "2")
    until(lambda: np.allclose(ordered(replica), 2 * 2 + 3 * 2))
    world.judged(2, None, reach=True)
    until(lambda: ordered(replica) is None)
    assert replica.status().swaps["version"] == 1


def test_only_the_array_of_the_chosen_arm_is_kept(armed: tuple[ArmedWorld, Any]) -> None:
    world, _ = armed
    world.publish()
    source = world.shelf
    buffers = BufferArrays.of(source.space, source.serving)
    assert load_state(source, 1, buffers).order is None
    state = load_state(source, 1, buffers, Answering(CHOICE, False))  # the other arm is not finite
    assert state.order is not None
    np.testing.assert_allclose(state.order.matrix, 8 * np.eye(world.dim))
    with pytest.raises(VersionRejected, match="not finite"):
        load_order(source, 1, Answering(replace(CHOICE, arm="other")))
    assert load_order(source, 1, Answering(replace(CHOICE, arm="gone"))) is None
    with pytest.raises(VersionRejected, match="no arm gone"):
        load_order(source, 1, Answering(replace(CHOICE, arm="gone"), reach=False))


def test_latest_searches_whatever_was_shown_of_it(armed: tuple[ArmedWorld, Any]) -> None:
    world, _ = armed
    world.judged(0)
    entries = world.ledger.poll()
    assert answers_of("stable", entries, 0) == Answering(CHOICE, False)
    assert answers_of("latest", entries, 0) == Answering(CHOICE, True)
