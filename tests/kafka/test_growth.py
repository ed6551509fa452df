"""Partitions added to a topic are growth: the same log, and all of it is learned once."""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from daemon.cli import main
from daemon.exits import EX_OK
from daemon.serve.items.topic import ItemTopic
from daemon.validate.holdout import Holdout
from streams.codec import encode_impression
from streams.event import Impression, ObjectRef, SpaceSpec, ViewSpec
from streams.open import ensure_topic, open_sink, open_source
from streams.source import GrowingSource, OutRecord, parse_address
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.control import add_partitions, delete_records, fresh_topic
from tests.harness.kafka.fixtures import ONE_AT_A_TIME
from tests.harness.kafka.traffic import event
from tests.harness.kill.forks import Forks
from tests.harness.kill.learners import Learner, catch_up, wait_until
from tests.harness.kill.site import SPARSE, Site, make_site

pytestmark = ONE_AT_A_TIME


@pytest.fixture
def site(kafka: Cluster, tmp_path: Path) -> Site:
    """A learner's site on a topic of its own, of one partition."""
    return make_site(tmp_path, kafka.address(fresh_topic()), every="200ms")


def write(site: Site, first: int, count: int, partitions: int = 1) -> None:
    """Events first .. first + count - 1, dealt out over the partitions."""
    rng = np.random.default_rng(first)
    with closing(open_sink(site.address)) as sink:
        sink.send([OutRecord(event(rng, n), partition=n % partitions) for n in range(first, first + count)])


def has_learned(learner: Learner, count: int) -> None:
    """Wait until it has applied so many events."""
    wait_until(lambda: learner.metric("tripletd_events_total") >= count, learner)


def everything_was_learned_once(site: Site, count: int) -> None:
    """The newest version has every record of three partitions, no event twice, and replays to its hash."""
    newest = site.newest()
    assert newest.counters["records"] == count
    assert newest.counters.get("duplicate", 0) == 0
    assert {p: at.next_offset for p, at in newest.positions.items()} == site.ends()
    assert newest.stream["partitions"] == 3
    versions = site.versions
    entries = [entry for n in versions.versions() for entry in versions.manifest(n).schedule]
    grown = [entry for entry in entries if isinstance(entry, dict)]
    assert grown == [{"control": "partitions", "from": 1, "to": 3}]
    assert main(["replay", "--verify", "--from", "0", "--config", str(site.config)]) == EX_OK


def test_partitions_added_under_a_running_learner_are_learned_by_it(
    kafka: Cluster, forks: Forks, site: Site
) -> None:
    write(site, 0, 300)
    with forks(site) as learner:
        has_learned(learner, 300)
        add_partitions(kafka, site.address.topic, 3)
        write(site, 300, 300, partitions=3)
        has_learned(learner, 600)
        wait_until(lambda: learner.get("readyz")[0] == 200, learner)
        write(site, 600, 90, partitions=3)
        has_learned(learner, 690)
        learner.signal(signal.SIGTERM)
        assert learner.wait() == EX_OK, learner.said()
        assert "Traceback" not in learner.said(), learner.said()
        assert "partitions were added" in learner.said()
    everything_was_learned_once(site, 690)


def test_partitions_added_while_the_learner_is_down_are_learned_at_the_next_start(
    kafka: Cluster, forks: Forks, site: Site
) -> None:
    write(site, 0, 300)
    catch_up(site, forks)
    add_partitions(kafka, site.address.topic, 3)
    write(site, 300, 300, partitions=3)
    catch_up(site, forks)
    everything_was_learned_once(site, 600)


def test_a_learner_killed_right_after_growth_repeats_nothing(
    kafka: Cluster, forks: Forks, tmp_path: Path
) -> None:
    site = make_site(tmp_path, kafka.address(fresh_topic()), every="1h")
    write(site, 0, 300)
    with forks(site) as learner:
        has_learned(learner, 300)
        add_partitions(kafka, site.address.topic, 3)
        write(site, 300, 300, partitions=3)
        has_learned(learner, 600)
        learner.kill()
    catch_up(site, forks)
    everything_was_learned_once(site, 600)


def test_records_of_an_added_partition_that_expired_unread_are_a_named_gap(
    kafka: Cluster, forks: Forks, site: Site
) -> None:
    write(site, 0, 30)
    catch_up(site, forks)
    add_partitions(kafka, site.address.topic, 3)
    write(site, 30, 300, partitions=3)
    delete_records(kafka, site.address.topic, before=40, partition=2)
    with forks(site, "--exit-when-caught-up") as learner:
        assert learner.wait() != EX_OK
        assert "partition 2: 40 records (0 up to 40)" in learner.said()
    with forks(site, "--exit-when-caught-up", "--accept-gap") as learner:
        assert learner.wait() == EX_OK, learner.said()
    assert site.newest().counters["records"] == 290


def test_the_command_line_of_a_change_of_the_log_goes_on_over_growth(
    kafka: Cluster, forks: Forks, site: Site
) -> None:
    """A service keeps the arguments it was started with; what they asked for was made before the growth."""
    write(site, 0, 50)
    catch_up(site, forks)
    elsewhere = make_site(site.folder, kafka.address(fresh_topic()), case=SPARSE)
    write(elsewhere, 0, 80)
    asked = ("--exit-when-caught-up", "--accept-log", "--start", "earliest")
    with forks(elsewhere, *asked) as learner:
        assert learner.wait() == EX_OK, learner.said()
    add_partitions(kafka, elsewhere.address.topic, 3)
    write(elsewhere, 80, 60, partitions=3)
    with forks(elsewhere, *asked) as learner:
        assert learner.wait() == EX_OK, learner.said()
    assert {p: at.next_offset for p, at in elsewhere.newest().positions.items()} == elsewhere.ends()


def test_a_topic_of_items_that_grows_is_read_on_not_again(kafka: Cluster) -> None:
    address = parse_address(kafka.address(fresh_topic())).items
    ensure_topic(address, 1)
    topic = ItemTopic(lambda: open_source(address), lambda: None)
    found: list[int] = []

    def reads(numbers: range, partitions: int) -> None:
        with closing(open_sink(address)) as sink:
            sink.send([OutRecord(b"%d" % n, partition=n % partitions) for n in numbers])

        def came() -> bool:
            batch = topic.poll(100, 0.1)
            found.extend(map(int, batch.values) if batch is not None else ())
            return len(found) >= numbers.stop

        wait_until(came)

    reads(range(30), 1)
    add_partitions(kafka, address.topic, 3)
    reads(range(30, 90), 3)
    assert sorted(found) == list(range(90))
    assert not topic.restarted
    topic.close()


def test_a_holdout_that_grows_is_read_into_a_window_of_all_its_partitions(kafka: Cluster) -> None:
    address = parse_address(kafka.address(fresh_topic()))
    for each in (address.holdout, address.dead):
        ensure_topic(each, 1)
    space = SpaceSpec("default", (ViewSpec("x", "dense", 2),))
    source = GrowingSource(lambda: open_source(address.holdout))
    holdout = Holdout(source, open_sink(address.dead), space=space, catalog=None, size=1000)

    def impressions(numbers: range, partitions: int) -> None:
        refs = [ObjectRef(x=np.array([1, n], np.float32)) for n in range(3)]
        records = [encode_impression(Impression(f"i{n}", n, refs[0], tuple(refs[1:]), (0,))) for n in numbers]
        with closing(open_sink(address.holdout)) as sink:
            pairs = zip(numbers, records, strict=True)
            sink.send([OutRecord(record, partition=n % partitions) for n, record in pairs])

    def all_of(count: int) -> bool:
        holdout.poll(0.1, lambda seconds, error: False)
        return holdout.caught_up() and len(holdout.window) == count

    impressions(range(20), 1)
    wait_until(lambda: all_of(20))
    add_partitions(kafka, address.holdout.topic, 3)
    impressions(range(20, 80), 3)
    wait_until(lambda: all_of(80))
    assert set(holdout.window.positions) == {0, 1, 2}
    source.close()
