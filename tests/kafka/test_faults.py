"""Whatever happens to the brokers, learning goes on, nothing is lost and nothing counts twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic

import pytest

from tests.harness.kafka.broker_faults import all_faults, readers_of, site_on
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.faults import restarted_leader
from tests.harness.kafka.fixtures import ONE_AT_A_TIME
from tests.harness.kafka.learning import Learning
from tests.harness.kafka.scene import Scene
from tests.harness.waiting import until

pytestmark = ONE_AT_A_TIME

SILENCE_S = 10.0
SILENCE = f"silence of {SILENCE_S:g} s"
FAULTS = {**all_faults(SILENCE_S), "leader restarted": restarted_leader}
OF_SOAK = "rolling restart"
"""What `make soak` has: three restarts, of which one that hands the leadership over is here."""


@dataclass
class Show:
    """A scene that goes on through the tests of this module, until the last one has it end."""

    scene: Scene
    learning: Learning
    over: bool = False

    def end(self) -> None:
        if not self.over:
            self.over = True
            self.scene.__exit__()


@pytest.fixture(scope="module")
def show(kafka_three: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Show]:
    """A writer, a reader with each client and a learner."""
    site = site_on(kafka_three, tmp_path_factory.mktemp("faults"))
    learning = Learning(site)
    show = Show(Scene(kafka_three, site.address, [learning, *readers_of(site)], seed=1), learning)
    show.scene.__enter__()
    yield show
    show.end()


@pytest.mark.parametrize("name", [name for name in FAULTS if name not in (SILENCE, OF_SOAK)])
def test_everybody_reads_on(show: Show, name: str) -> None:
    show.scene.strike(name, FAULTS[name])


def test_a_silent_cluster_turns_readiness_red_and_liveness_stays_green(show: Show) -> None:
    begin = monotonic()
    show.scene.strike(SILENCE, FAULTS[SILENCE])
    until(lambda: show.learning.looks(begin, monotonic())[-1].ready, "it becomes ready again")
    looks = show.learning.looks(begin, monotonic())
    assert not all(look.ready for look in looks), "it said it was ready all the time"
    assert all(look.alive for look in looks)


def test_in_the_end_nothing_is_lost_and_nothing_counts_twice(show: Show) -> None:
    """The learner's last version equals, bit for bit, one that was never disturbed."""
    show.scene.strike("once more", FAULTS["leader moved"])
    show.end()
    rows = show.scene.rows()
    assert {row.onlooker for row in rows} == {"learn", "kafka-python", "confluent"}
    for row in rows:
        print(row)
        assert (row.lost, row.repeated) == (0, 0), row
