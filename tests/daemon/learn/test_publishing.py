"""Versions on a cadence over a store that fails, is slow, or is taken over."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable

import numpy as np
import pytest

from checkpoints.manifest import PartitionPosition, VersionMeta
from checkpoints.publisher import AsyncPublisher, Published
from checkpoints.store import Buffer, CheckpointError, PutResult, WriteFailed
from checkpoints.versions import VersionStore
from daemon.exits import EX_TEMPFAIL, UserError
from daemon.learn.publishing import Cadence, Publishing
from daemon.learn.state import Applied, Progress, Snapshot
from daemon.up.restarts import REFUSED
from tests.harness.memory_store import MemoryStore


class FailingStore(MemoryStore):
    """Refuses puts while `full`; holds them while `gate` is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False
        self.gate = threading.Event()
        self.gate.set()

    def put_new(self, key: str, chunks: Iterable[Buffer], durable: bool = True) -> PutResult:
        self.gate.wait(30)
        if self.full:
            raise WriteFailed(key, "no space left on device")
        return super().put_new(key, chunks, durable)


class Heard:
    """Counts what it hears of versions."""

    def __init__(self) -> None:
        self.versions: list[int] = []
        self.captures: list[Snapshot] = []
        self.failures = 0
        self.skips = 0

    def published(self, result: Published) -> None:
        self.versions.append(result.manifest.number)

    def failed(self, error: CheckpointError) -> None:
        self.failures += 1

    def skipped(self) -> None:
        self.skips += 1


def describe(snapshot: Snapshot, parent: int | None) -> VersionMeta:
    return VersionMeta(
        parent=parent, positions=snapshot.positions, schedule=snapshot.entries, counters=snapshot.counters
    )


class Bench:
    """A publishing loop without a learner."""

    def __init__(self, every_events: int = 10) -> None:
        self.store = FailingStore()
        self.versions = VersionStore(self.store)
        self.epoch = self.versions.claim()
        self.progress = Progress({0: PartitionPosition(0)})
        self.heard = Heard()
        self.now = 0.0
        self.described = 0
        arrays = {"W": np.eye(3, dtype=np.float32)}
        first = self.versions.publish(self.epoch, arrays, describe(self.progress.snapshot(), None))
        self.publisher = AsyncPublisher(self.versions, self.epoch)
        self.publishing = Publishing(
            self.publisher,
            self.progress,
            arrays=lambda: arrays,
            describe=self.describe,
            cadence=Cadence(30.0, every_events),
            on_captured=self.heard.captures.append,
            on_published=self.heard.published,
            on_failed=self.heard.failed,
            on_skipped=self.heard.skipped,
            parent=first.number,
            clock=lambda: self.now,
        )

    def describe(self, snapshot: Snapshot, parent: int | None) -> VersionMeta:
        self.described += 1
        return describe(snapshot, parent)

    def apply(self, records: int) -> None:
        stop = self.progress.next_offsets()[0] + records
        self.progress.advance(Applied(0, stop, "0" * 64, records, {}, np.zeros(0, np.float32)))

    def settle(self) -> None:
        """Let the write in flight end, and hear of it."""
        if self.publisher._thread is not None:
            self.publisher._thread.join()
        self.publishing.tick(asked=False)

    def schedules(self) -> list[tuple[object, ...]]:
        return [self.versions.manifest(number).schedule for number in self.versions.versions()]


def test_due_by_count_by_clock_and_on_request() -> None:
    bench = Bench()
    bench.apply(10)
    bench.publishing.tick(asked=False)
    bench.settle()
    bench.apply(3)
    bench.publishing.tick(asked=False)
    bench.publishing.tick(asked=True)
    bench.settle()
    bench.apply(1)
    bench.now = 31.0
    bench.publishing.tick(asked=False)
    bench.settle()
    assert bench.schedules() == [(), ((0, 0, 10),), ((0, 10, 13),), ((0, 13, 14),)]
    assert [bench.versions.manifest(n).parent for n in bench.versions.versions()] == [None, 0, 1, 2]


def test_a_request_without_news_writes_nothing() -> None:
    bench = Bench()
    bench.publishing.tick(asked=True)
    bench.publishing.finish()
    assert bench.versions.versions() == [0]


def test_a_version_due_by_the_clock_while_one_is_written_is_skipped_and_a_request_waits() -> None:
    bench = Bench(every_events=0)
    bench.store.gate.clear()
    bench.apply(10)
    bench.publishing.tick(asked=True)
    bench.apply(10)
    bench.now = 31.0
    bench.publishing.tick(asked=True)
    assert bench.heard.skips == 1
    assert bench.described == 1, "nothing is prepared for a version that cannot begin"
    bench.store.gate.set()
    bench.settle()
    bench.settle()
    assert bench.schedules() == [(), ((0, 0, 10),), ((0, 10, 20),)]


def test_a_version_due_by_its_count_waits_for_the_one_before() -> None:
    bench, waited = Bench(), list[float]()

    def waits(seconds: float) -> bool:
        waited.append(seconds)
        bench.now += 20.0
        if len(waited) == 3:
            bench.store.gate.set()
        return True

    bench.store.gate.clear()
    for _ in range(3):
        bench.apply(10)
        bench.publishing.tick(False, waits)
    bench.settle()
    assert waited[:3] == [0.0, 20.0, 40.0]
    assert bench.heard.skips == 0
    assert bench.schedules() == [(), ((0, 0, 10),), ((0, 10, 20),), ((0, 20, 30),)]


def test_a_disk_that_fails_while_a_version_waits_for_it_is_reported_and_not_waited_for() -> None:
    bench = Bench()
    bench.store.gate.clear()
    bench.apply(10)
    bench.publishing.tick(asked=False)
    bench.apply(10)

    def fails(_: float) -> bool:
        bench.store.full = True
        bench.store.gate.set()
        return True

    bench.publishing.tick(False, fails)
    bench.settle()
    assert (bench.heard.failures, bench.versions.versions()) == (2, [0])
    bench.store.full = False
    bench.apply(10)
    bench.publishing.tick(asked=False)
    bench.settle()
    assert bench.schedules() == [(), ((0, 0, 10), (0, 10, 20), (0, 20, 30))]


def test_a_stop_ends_the_wait_and_the_version_is_written_at_the_end() -> None:
    bench = Bench()
    bench.store.gate.clear()
    bench.apply(10)
    bench.publishing.tick(asked=False)
    bench.apply(10)
    bench.publishing.tick(False, lambda _: False)
    assert (bench.publishing.busy, bench.heard.skips) == (True, 0)
    bench.store.gate.set()
    bench.publishing.finish()
    assert bench.schedules() == [(), ((0, 0, 10),), ((0, 10, 20),)]


def test_a_full_disk_keeps_learning_and_loses_no_schedule() -> None:
    bench = Bench()
    bench.store.full = True
    bench.apply(10)
    bench.publishing.tick(asked=False)
    bench.settle()
    assert (bench.heard.failures, bench.versions.versions()) == (1, [0])
    bench.publishing.tick(asked=False)
    bench.settle()
    assert bench.heard.failures == 1  # not again before the next cadence
    bench.store.full = False
    bench.apply(2)
    bench.now = 31.0
    bench.publishing.tick(asked=False)
    bench.settle()
    assert bench.schedules() == [(), ((0, 0, 10), (0, 10, 12))]
    assert bench.versions.manifest(bench.heard.versions[-1]).parent == 0


def test_finish_is_durable_or_says_why_not() -> None:
    bench = Bench()
    bench.apply(3)
    bench.store.full = True
    with pytest.raises(UserError, match="no space left") as refused:
        bench.publishing.finish()
    assert refused.value.code == EX_TEMPFAIL, "another start continues, once there is room"
    bench.store.full = False
    bench.publishing.finish()
    assert bench.schedules() == [(), ((0, 0, 3),)]


def test_another_writer_ends_this_one() -> None:
    bench = Bench()
    bench.versions.claim()
    bench.apply(3)
    with pytest.raises(UserError, match="taken over") as refused:
        bench.publishing.finish()
    assert refused.value.code in REFUSED, "two learners under restart would fence each other in turn"
    assert f"process {os.getpid()}" in str(refused.value)
    assert bench.versions.versions() == [0]
