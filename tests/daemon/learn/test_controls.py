"""Whatever changes the state other than the next records is in the schedule, and replay obeys it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from daemon.exits import EX_OK
from daemon.learn import reader
from daemon.learn.replay.replay import replay
from daemon.learn.resume.origin import LearnOptions
from streams.open import MemorySource, open_source
from streams.partitions import TopicLimits
from streams.source import Address, RecordBatch
from tests.daemon.learn.conftest import Site, make_events
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.control import fresh_topic
from tests.harness.topics import create_topics

LEAVE = LearnOptions(exit_when_caught_up=True)
BROKEN = range(12, 17)


class BrokenSource(MemorySource):
    """A log whose offsets `BROKEN` cannot be read, as a source hands that out."""

    def poll(self, max_records: int, timeout_s: float) -> RecordBatch | None:
        position = (self._positions or {}).get(0, 0)
        if position in BROKEN:
            self._positions[0] = BROKEN.stop
            return RecordBatch(0, [BROKEN.stop - 1], [0], [None], [None], [()], "offsets 12 to 16: damaged")
        most = BROKEN.start - position if position < BROKEN.start else max_records
        return super().poll(min(max_records, most), timeout_s)


def test_what_could_not_be_read_stays_unlearned_when_it_can_be_read_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(address: Address) -> MemorySource:
        return BrokenSource(address.path, address.topic)

    with monkeypatch.context() as patch:
        patch.setattr(reader, "open_source", broken)
        site.feed(make_events(30))
        assert site.learn(checkpoints__every_events=15) == EX_OK
        assert site.learn() == EX_OK  # also where the version ends in the damaged stretch
    newest = site.newest()
    assert newest.counters["poison.corrupt_batch"] == 1
    assert newest.counters["records"] == 26
    assert [letter.offset for letter in site.dead()] == [16]
    schedule = [entry for n in site.versions.versions() for entry in site.versions.manifest(n).schedule]
    assert {"control": "damaged", "partition": 0, "from": 12, "to": 17} in schedule
    with closing(open_source(site.address)) as source:  # the broker has mended it
        result = replay(site.versions, source, None, 0, newest.number)
    assert result.equal
    assert result.difference is None


def test_a_version_that_ends_in_a_damaged_stretch_is_continued(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no record to compare: mended or not, it is no other log."""

    def broken(address: Address) -> MemorySource:
        return BrokenSource(address.path, address.topic)

    with monkeypatch.context() as patch:
        patch.setattr(reader, "open_source", broken)
        site.feed(make_events(BROKEN.stop))
        site.learn()
    assert site.newest().positions[0].next_offset == BROKEN.stop
    assert site.newest().positions[0].last_digest is None
    site.feed(make_events(2, seed=1))
    assert site.learn() == EX_OK
    assert site.newest().schedule == ((0, BROKEN.stop, BROKEN.stop + 2),)


def test_stop_and_resume_change_nothing_and_are_no_entry(new_site: Callable[..., Site]) -> None:
    plain, stopped = new_site(), new_site()
    for site in (plain, stopped):
        site.feed(make_events(5))
        site.learn()
        if site is stopped:
            site.ledger.append({"kind": "STOP", "by": "test"})
            site.learn()
            site.ledger.append({"kind": "RESUME", "by": "test"})
        site.feed(make_events(5, seed=1))
        site.learn()
    assert stopped.newest().state_hash == plain.newest().state_hash
    assert stopped.newest().schedule == plain.newest().schedule == ((0, 5, 10),)


def test_a_schedule_of_many_small_runs_replays_from_kafka(site: Site, kafka: Cluster) -> None:
    site = Site(site.folder, kafka.address(fresh_topic("runs")))
    create_topics(site.address, 3, TopicLimits())
    events = make_events(600)
    for start in range(0, 600, 200):
        site.feed(events[start : start + 200], partitions=3)
        site.learn(stream__poll_records=3, stream__partitions=3)
    runs = sum(len(site.versions.manifest(n).schedule) for n in site.versions.versions())
    assert runs > 150
    assigns = []
    with closing(open_source(site.address)) as source:
        assign = source.assign
        source.assign = lambda positions: (assigns.append(positions), assign(positions))[1]
        result = replay(site.versions, source, None, 0, site.newest().number)
    assert result.equal
    assert result.difference is None
    assert result.records == 600
    assert len(assigns) == 3
