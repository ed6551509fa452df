"""kill -9 at random moments leaves no trace: nothing lost or repeated, the same bits. `make soak`: many."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.control import fresh_topic
from tests.harness.kafka.fixtures import OWN_NODE
from tests.harness.kill.brokers import OneNode
from tests.harness.kill.events import Feeder, Pace
from tests.harness.kill.forks import Forks
from tests.harness.kill.learners import as_users_start, catch_up
from tests.harness.kill.random_kills import Plan, random_kills
from tests.harness.kill.site import (
    CAPPED,
    DENSE,
    KEYED,
    OTHERS,
    PROJECTED,
    SPARSE,
    SYMMETRIC,
    embedded,
    make_site,
)
from tests.kill.conftest import StreamIn

SEED = 1

pytestmark = pytest.mark.kill

PLANS = [
    Plan(4, SPARSE, poll_records=1, pace=Pace(pause_s=0.03)),  # it must be able to catch up
    Plan(4, DENSE, poll_records=7),
    Plan(4, SYMMETRIC, poll_records=500, every="1h", every_events=97),
    Plan(3, PROJECTED, poll_records=5000, pace=Pace(0.02)),
    Plan(5, SPARSE, poll_records=50, partitions=3),
    Plan(4, CAPPED, poll_records=30),
    Plan(4, KEYED, poll_records=30),
    *(Plan(2, case, poll_records=50) for case in OTHERS),
]


ON_KAFKA = [Plan(3, DENSE, poll_records=7), Plan(3, SYMMETRIC, every="1h", every_events=97, partitions=2)]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_killed_at_random(tmp_path: Path, forks: Forks, plan: Plan) -> None:
    random_kills(tmp_path, embedded(tmp_path), plan, SEED, forks).check()


@pytest.mark.parametrize("plan", ON_KAFKA, ids=str)
def test_killed_at_random_on_kafka(tmp_path: Path, kafka_in: StreamIn, forks: Forks, plan: Plan) -> None:
    random_kills(tmp_path, kafka_in(tmp_path), plan, SEED, forks).check()


def test_killed_as_a_user_starts_it(tmp_path: Path) -> None:
    random_kills(tmp_path, embedded(tmp_path), Plan(1, SPARSE), SEED, as_users_start).check()


def test_an_event_sent_again_across_a_kill_changes_w_once(
    tmp_path: Path, stream_in: StreamIn, forks: Forks
) -> None:
    again = Plan(3, SPARSE, pace=Pace(again=0.5))
    tally = random_kills(tmp_path, stream_in(tmp_path), again, SEED, forks)
    tally.check()
    repeated, once = (make_site(tmp_path / name, stream_in(tmp_path / name)) for name in ("repeated", "once"))
    for site, share in ((repeated, 0.5), (once, 0.0)):
        with Feeder(site, SEED, Pace(0, again=share), limit=500) as feeder:
            feeder.join()
    many, single = catch_up(repeated, forks), catch_up(once, forks)
    assert many.counters["duplicate"] > 0 == single.counters["duplicate"]
    assert many.state_hash == single.state_hash


class TestOfBroker:
    """Learner and broker die at random, together or one after the other."""

    pytestmark = OWN_NODE

    def test_broker_killed_among_them(self, tmp_path: Path, forks: Forks, kafka_node: Cluster) -> None:
        plan, broker = Plan(2, SPARSE, broker_share=1.0), OneNode(kafka_node)
        random_kills(tmp_path, kafka_node.address(fresh_topic()), plan, SEED, forks, broker).check()
