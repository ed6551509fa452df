"""The right log or no start: what a broker's topic has become is refused, with the gap and a named way on."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from daemon.exits import EX_DATAERR, EX_OK
from streams.errors import LogMismatch, OffsetAhead
from streams.open import open_sink
from streams.partitions import TopicLimits
from streams.source import KafkaSettings, OutRecord
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.control import (
    await_in_sync,
    await_leader,
    create_topic,
    delete_records,
    elect_unclean,
    fresh_topic,
)
from tests.harness.kafka.fixtures import ONE_AT_A_TIME
from tests.harness.kafka.onlookers import Reader
from tests.harness.kafka.traffic import event
from tests.harness.kill.forks import Forks
from tests.harness.kill.learners import Learner, wait_until
from tests.harness.kill.site import Site, make_site
from tests.harness.signals import freeze
from tests.harness.topics import create_topics, delete_topic

pytestmark = ONE_AT_A_TIME

Place = Callable[..., Site]


@pytest.fixture
def site(kafka: Cluster, tmp_path: Path) -> Site:
    """A learner's site on a topic of its own."""
    return make_site(tmp_path, kafka.address(fresh_topic()))


def write(site: Site, first: int, count: int) -> None:
    """Events first .. first + count - 1."""
    rng = np.random.default_rng(first)
    with closing(open_sink(site.address)) as sink:
        sink.send([OutRecord(event(rng, number)) for number in range(first, first + count)])


def learn(forks: Forks, site: Site, *options: str) -> tuple[int, str]:
    """Run a learner up to the end of the topic: its exit code, and what it said."""
    with forks(site, "--exit-when-caught-up", *options) as learner:
        return learner.wait(), learner.said()


def has_learned(learner: Learner, count: int) -> None:
    """Wait until it has applied so many events."""
    wait_until(lambda: learner.metric("tripletd_events_total") >= count, learner)


def refused(outcome: tuple[int, str], *words: str) -> None:
    """It ended as bad data do, with these words and no stack trace."""
    code, said = outcome
    assert code == EX_DATAERR, said
    assert "Traceback" not in said, said
    for word in words:
        assert word in said, said


def test_a_topic_made_anew_is_refused_while_learning_and_at_the_next_start(forks: Forks, site: Site) -> None:
    write(site, 0, 300)
    with forks(site) as learner:
        has_learned(learner, 300)
        delete_topic(site.address)
        create_topics(site.address, 1, TopicLimits())
        write(site, 1000, 400)
        refused((learner.wait(), learner.said()), "re-created", str(site.address))
    kept = site.newest()
    assert kept.counters["records"] <= 300
    refused(
        learn(forks, site),
        "was learned from a topic of this name that was deleted",
        "holds 0 up to 400",
        "--accept-log",
    )
    assert site.newest().state_hash == kept.state_hash
    assert learn(forks, site, "--accept-log", "--start", "earliest")[0] == EX_OK
    assert site.newest().positions[0].next_offset == 400


def test_another_cluster_with_a_topic_of_that_name_is_refused(
    forks: Forks, site: Site, kafka_three: Cluster
) -> None:
    write(site, 0, 200)
    assert learn(forks, site)[0] == EX_OK
    elsewhere = make_site(site.folder, kafka_three.address(site.address.topic))
    write(elsewhere, 0, 200)
    refused(learn(forks, elsewhere), "was learned from another log or cluster", "--accept-log")


def test_records_that_expired_before_they_were_learned_are_a_named_gap(
    kafka: Cluster, forks: Forks, site: Site
) -> None:
    write(site, 0, 200)
    assert learn(forks, site)[0] == EX_OK
    write(site, 200, 300)
    delete_records(kafka, site.address.topic, before=350)
    refused(learn(forks, site), "partition 0: 150 records (200 up to 350)", "--accept-gap")
    assert learn(forks, site, "--accept-gap")[0] == EX_OK
    newest = site.newest()
    assert (newest.counters["records"], newest.positions[0].next_offset) == (350, 500)


@dataclass
class Torn:
    """A learner that has learned 100 records which both replicas have, and 50 that only a dead node has.

    What leads after that is a replica that lacks the 50. The learner is stopped and has not heard of it; a
    reader with the other client beside it has to notice as well.
    """

    site: Site
    learner: Learner
    beside: Reader


@pytest.fixture(scope="module")
def torn(
    forks: Forks, kafka_three: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Torn]]:
    """One for each test, by name, out of one election."""
    unsafe = {"min.insync.replicas": "1", "unclean.leader.election.enable": "false"}
    first, second = kafka_three.nodes[1], kafka_three.nodes[2]
    made: dict[str, Torn] = {}
    with ExitStack() as ends:
        for test in ("missing", "other"):
            topic = fresh_topic()
            for name in (topic, f"{topic}.holdout", f"{topic}.dead"):
                create_topic(kafka_three, name, replicas=[1, 2], configs=unsafe)
            site = make_site(tmp_path_factory.mktemp(test), kafka_three.address(topic), every="200ms")
            beside = Reader(replace(site.address, kafka=KafkaSettings(client="confluent")), "confluent")
            one = made[test] = Torn(site, ends.enter_context(forks(site)), beside)
            beside.start()
            ends.callback(beside.stop)
            write(site, 0, 100)
            has_learned(one.learner, 100)
            await_in_sync(kafka_three, topic, {1, 2})
        second.stop()
        for one in made.values():
            await_in_sync(kafka_three, one.site.address.topic, {1})
            write(one.site, 100, 50)
            has_learned(one.learner, 150)
            wait_until(lambda one=one: one.beside.reached() == 150)
            freeze(one.learner.pid)
        first.kill()
        second.start()
        kafka_three.wait_ready()
        for one in made.values():
            elect_unclean(kafka_three, one.site.address.topic)
            await_leader(kafka_three, one.site.address.topic, 2)
        yield made


def notices(beside: Reader) -> None:
    """Wait until the reader has ended, for the right reason."""
    wait_until(lambda: beside.failed)
    assert isinstance(beside.failed, OffsetAhead | LogMismatch), beside.failed


def test_a_leader_without_the_newest_records_is_noticed(forks: Forks, torn: dict[str, Torn]) -> None:
    """Nothing was written since: the position is past the end."""
    site, learner = torn["missing"].site, torn["missing"].learner
    learner.signal(signal.SIGCONT)
    refused((learner.wait(), learner.said()), "offset 150 is ahead of the log, which ends at 100")
    refused(learn(forks, site), "50 learned records are missing", "unclean election", "--accept-log")
    notices(torn["missing"].beside)


def test_other_records_in_the_place_of_learned_ones_are_noticed(forks: Forks, torn: dict[str, Torn]) -> None:
    """More was written since than was lost: the position exists again, with another record before it."""
    site, learner = torn["other"].site, torn["other"].learner
    write(site, 2000, 100)
    learner.signal(signal.SIGCONT)
    refused((learner.wait(), learner.said()), "offset 149 holds another record", "unclean election")
    refused(learn(forks, site), "another record", "offset 149", "an unclean election", "--accept-log")
    assert site.newest().positions[0].next_offset == 150
    notices(torn["other"].beside)
