"""The right log or no start, on every kind of log: what is refused, in which words, how it is accepted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from checkpoints.manifest import PartitionPosition
from daemon.exits import EX_DATAERR, EX_OK, EX_USAGE, UserError
from daemon.learn.compatible import find_gaps
from daemon.learn.replay.replay import replay
from daemon.learn.resume.origin import LearnOptions
from streams.open import open_source, retain
from streams.partitions import TopicLimits
from tests.daemon.learn.altered import alter_manifest
from tests.daemon.learn.conftest import Site, make_events
from tests.harness.kafka.control import delete_records, fresh_topic
from tests.harness.kafka.transactions import until_ended
from tests.harness.topics import create_topics, delete_topic

LEAVE = LearnOptions(exit_when_caught_up=True)


@dataclass(frozen=True)
class Log:
    """One kind of log: makes sites on it and takes records away."""

    kind: str
    site: Callable[[str], Site]
    expire: Callable[[Site, int], None]


@pytest.fixture(params=["log", "kafka"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    """Each kind of log in turn."""
    kind: str = request.param
    cluster = request.getfixturevalue("kafka") if kind == "kafka" else None

    def site(name: str) -> Site:
        (tmp_path / name).mkdir()
        address = cluster.address(fresh_topic(name)) if cluster else f"log:{tmp_path}/{name}/clicks.log"
        made = Site(tmp_path / name, address)
        create(made)
        return made

    def expire(site: Site, below: int) -> None:
        if kind == "kafka":
            delete_records(cluster, site.address.topic, below)
        else:
            retain(site.address, max_age_s=None, max_bytes=1, before={0: below})

    return Log(kind, site, expire)


def create(site: Site) -> None:
    create_topics(site.address, 1, TopicLimits())


def refused(site: Site, match: str, code: int = EX_DATAERR, **options: Any) -> UserError:
    """Learning is refused in these words, and nothing is written, not even a claim."""
    before = site.versions.store.list()
    with pytest.raises(UserError, match=match) as caught:
        site.learn(replace(LEAVE, **options))
    assert caught.value.code == code
    assert site.versions.store.list() == before
    return caught.value


def records(site: Site) -> int:
    return int(site.newest().counters["records"])


def test_a_topic_created_anew(log: Log) -> None:
    site = log.site("anew")
    site.feed(make_events(8))
    site.learn()
    old = site.newest()
    delete_topic(site.address)
    create(site)
    site.feed(make_events(5, seed=1))
    told = refused(site, "of this name that was deleted; this one was created later")
    assert "topic_id" in told.message
    assert "partition 0: the version stands at 8, this log holds 0 up to 5" in told.message
    assert "--accept-log" in told.remedy
    refused(site, "created later", accept_log=True)  # from where on the new one?
    accept = replace(LEAVE, accept_log=True, start="earliest")
    assert site.learn(accept) == EX_OK
    new = site.newest()
    assert (records(site), new.positions[0].next_offset) == (13, 5)
    assert new.schedule == (
        {
            "control": "log",
            "start": "earliest",
            "from": old.stream,
            "to": new.stream,
            "positions": {"0": 0},
        },
        (0, 0, 5),
    )
    site.feed(make_events(2, seed=2))
    assert site.learn(accept) == EX_OK  # a service is restarted with the same words
    assert (records(site), site.newest().schedule) == (15, ((0, 5, 7),))


def test_another_log(log: Log) -> None:
    site, other = log.site("one"), log.site("other")
    for one, count in ((site, 8), (other, 3)):
        one.feed(make_events(count))
    site.learn()
    site.settings["stream.address"] = other.settings["stream.address"]
    named = "learned from another stream" if log.kind == "kafka" else "learned from another log or cluster"
    told = refused(site, named)
    assert ("stream.topic:" if log.kind == "kafka" else "stream.log_id:") in told.message


def test_another_cluster(log: Log) -> None:
    site = log.site("moved")
    site.feed(make_events(3))
    site.learn()
    newest = site.newest()
    alter_manifest(site, newest.number, stream={**newest.stream, "log_id": "cluster-that-was"})
    assert "'cluster-that-was'" in refused(site, "learned from another log or cluster").message


def test_records_that_expired_before_they_were_learned(log: Log) -> None:
    site = log.site("expired")
    site.feed(make_events(5))
    site.learn()
    site.feed(make_events(10, seed=1))
    log.expire(site, 9)
    told = refused(site, r"partition 0: 4 records \(5 up to 9\)")
    assert "`tripletd learn --accept-gap --exit-when-caught-up`" in told.remedy
    before = site.newest().number
    assert site.learn(replace(LEAVE, accept_gap=True)) == EX_OK
    assert site.newest().schedule == ({"control": "gap", "partition": 0, "from": 5, "to": 9}, (0, 9, 15))
    with closing(open_source(site.address)) as source:
        assert replay(site.versions, source, None, before, site.newest().number).equal


def test_one_record_that_is_gone_is_a_gap() -> None:
    assert find_gaps({0: PartitionPosition(6)}, {0: (6, 9)}, accept=False) == []
    with pytest.raises(UserError, match=r"partition 0: 1 records \(5 up to 6\)"):
        find_gaps({0: PartitionPosition(5)}, {0: (6, 9)}, accept=False)


def test_a_log_that_expired_up_to_the_position_is_no_gap(log: Log) -> None:
    site = log.site("tidy")
    site.feed(make_events(5))
    site.learn()
    log.expire(site, 5)  # with it the record that is compared
    site.feed(make_events(2, seed=1))
    assert site.learn() == EX_OK
    assert site.newest().schedule == ((0, 5, 7),)


def test_a_log_that_lost_its_end(log: Log) -> None:
    site = log.site("shorter")
    site.feed(make_events(5))
    site.learn()
    newest = site.newest()
    alter_manifest(site, newest.number, positions={0: PartitionPosition(9, "0" * 64)})
    told = refused(site, "stands at offset 9 of partition 0, which ends at 5: 4 learned records are missing")
    assert "unclean election" in told.message
    assert site.learn(replace(LEAVE, accept_log=True, start="latest")) == EX_OK
    entry = site.newest().schedule[0]
    assert entry["control"] == "log"
    assert (entry["from"], entry["positions"]) == (entry["to"], {"0": 5})


def test_a_log_whose_newest_records_were_written_anew(log: Log) -> None:
    """An unclean election: the offsets are there, the records are others."""
    site = log.site("rewritten")
    site.feed(make_events(5))
    site.learn()
    newest = site.newest()
    alter_manifest(site, newest.number, positions={0: PartitionPosition(5, "0" * 64)})
    told = refused(site, "partition 0 holds another record .* at offset 4, where the last one was learned")
    assert "unclean election" in told.message
    refused(site, "another record", start="earliest", jump=True)  # a jump is no acceptance
    assert site.learn(replace(LEAVE, accept_log=True, start='offset={"0": 3}')) == EX_OK
    assert site.newest().schedule[1:] == ((0, 3, 5),)
    assert site.newest().counters["duplicate"] == 2  # events that survived are known


def test_accepting_a_log_that_needs_no_acceptance_changes_nothing(log: Log) -> None:
    site = log.site("fine")
    site.feed(make_events(5))
    site.learn()
    site.feed(make_events(2, seed=1))
    assert site.learn(replace(LEAVE, accept_log=True)) == EX_OK
    assert site.newest().schedule == ((0, 5, 7),)
    site.feed(make_events(2, seed=2))
    refused(site, "--start earliest leaves the position", EX_USAGE, accept_log=True, start="earliest")


def test_what_another_log_taught_cannot_be_replayed_from_this_one(log: Log) -> None:
    site = log.site("two")
    site.feed(make_events(4))
    site.learn()
    last = site.newest().number
    delete_topic(site.address)
    create(site)
    site.feed(make_events(3, seed=1))
    site.learn(replace(LEAVE, accept_log=True, start="earliest"))
    with closing(open_source(site.address)) as source:
        assert replay(site.versions, source, None, last, site.newest().number).equal
        with pytest.raises(UserError, match="continued with another log") as told:
            replay(site.versions, source, None, 0, site.newest().number)
    assert f"replay from version {last} on" in told.value.remedy


ON_THE_LOG = pytest.mark.parametrize("log", ["log"], indirect=True)
"""What a folder alone remembers is the same whatever its stream is."""


class TestBranch:
    """`--restart-from` makes its branch once."""

    def branched(self, log: Log) -> tuple[Site, LearnOptions, int]:
        site = log.site("branch")
        for seed in range(3):
            site.feed(make_events(4, seed))
            site.learn()
        root = site.versions.versions()[1]
        options = replace(LEAVE, restart_from=root)
        assert site.learn(options) == EX_OK
        assert site.newest().parent == root
        assert site.newest().schedule == (
            {"control": "branch", "from_version": root, "start": "checkpoint"},
            (0, 4, 12),
        )
        return site, options, root

    def test_a_restart_with_the_same_words_goes_on_with_it(self, log: Log) -> None:
        site, options, root = self.branched(log)
        first = site.newest().number
        with capture_logs() as lines:
            assert site.learn(options) == EX_OK
        assert site.newest().number == first
        assert [line for line in lines if "--again" in line["event"]]
        site.feed(make_events(2, seed=7))
        site.learn(options)
        assert (site.newest().parent, site.newest().schedule) == (first, ((0, 12, 14),))
        assert site.versions.manifest(root).positions[0].next_offset == 4

    @ON_THE_LOG
    def test_again_makes_it_anew(self, log: Log) -> None:
        site, options, root = self.branched(log)
        first = site.newest().number
        assert site.learn(replace(options, again=True)) == EX_OK
        assert site.newest().number > first
        assert site.newest().parent == root

    @ON_THE_LOG
    def test_another_version_is_another_branch(self, log: Log) -> None:
        site, _, root = self.branched(log)
        assert site.learn(replace(LEAVE, restart_from=0)) == EX_OK
        assert (site.newest().parent, records(site)) == (0, 12)
        site.learn(replace(LEAVE, restart_from=root))  # the newest line knows no branch from there
        assert site.newest().parent == root

    @ON_THE_LOG
    def test_it_is_remembered_when_its_first_versions_are_pruned(self, log: Log) -> None:
        site, options, _ = self.branched(log)
        for seed in range(10, 14):
            site.feed(make_events(1, seed))
            site.learn(checkpoints__keep=2)
        kept = site.versions.versions()
        assert len(kept) == 3
        site.feed(make_events(1, seed=20))
        site.learn(options)
        assert site.newest().parent == kept[-1]


@pytest.mark.parametrize("log", ["kafka"], indirect=True)
class TestTransactions:
    """Kafka's transaction markers have offsets and are no records."""

    def test_markers_before_and_after_the_position_are_no_alarm(self, log: Log) -> None:
        site = log.site("markers")
        in_transactions(site, [3, 2])  # offsets 0 1 2 m 4 5 m
        assert site.learn() == EX_OK
        newest = site.newest()
        assert (newest.positions[0].next_offset, records(site)) == (6, 5)
        assert site.learn() == EX_OK
        in_transactions(site, [1])
        assert site.learn() == EX_OK
        assert (site.newest().schedule, records(site)) == (((0, 6, 8),), 6)
        with closing(open_source(site.address)) as source:
            assert replay(site.versions, source, None, 0, site.newest().number).equal

    def test_a_marker_where_a_record_was_learned_is_an_alarm(self, log: Log) -> None:
        """As after an unclean election: nothing follows, or something does."""
        site = log.site("vanished")
        in_transactions(site, [3])
        site.learn()
        alter_manifest(site, site.newest().number, positions={0: PartitionPosition(4, "0" * 64)})
        refused(site, "holds no record any more at offset 3")
        in_transactions(site, [2])
        refused(site, "holds no record any more at offset 3")


def in_transactions(site: Site, sizes: list[int]) -> None:
    """Events written in one transaction each."""
    from kafka import KafkaProducer

    with closing(open_source(site.address)) as source:
        _, end = source.bounds()[0]
    producer = KafkaProducer(
        bootstrap_servers=site.address.path.split(","), transactional_id=f"{site.folder}-{end}"
    )
    producer.init_transactions()
    events = iter(make_events(sum(sizes), seed=end))
    for size in sizes:
        producer.begin_transaction()
        for _ in range(size):
            producer.send(site.address.topic, next(events), partition=0)
        producer.commit_transaction()
    producer.close()
    until_ended(site.address)
