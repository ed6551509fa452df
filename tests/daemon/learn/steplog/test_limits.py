"""What bounds the step log: its rate, what may wait for it, and how far back it is kept."""

from __future__ import annotations

from daemon.learn.steplog.journal import BURST_SECONDS, CUTS_KEPT, ByteAllowance, Floor
from daemon.learn.steplog.publisher import MAX_MARKS, Inbox
from daemon.learn.steplog.segments import Captured, Durable
from streams.steps.segment import Base

from .test_journal import DIM, Bench, summary


def test_an_allowance_saves_up_and_runs_out() -> None:
    allowance = ByteAllowance(100, 0.0)
    assert allowance.take(int(100 * BURST_SECONDS), 0.0)
    assert not allowance.take(1, 0.0)
    assert allowance.take(50, 0.5)
    assert not allowance.take(60, 1.0)
    assert allowance.take(1_000_000, 100.0), "more than the bucket holds goes when it is full"
    assert not allowance.take(1, 101.0)


def test_no_more_is_saved_up_than_a_burst_however_long_nothing_is_sent() -> None:
    allowance = ByteAllowance(100, 0.0)
    assert allowance.take(int(100 * BURST_SECONDS), 1000.0)
    assert not allowance.take(1, 1000.0)


def test_while_no_version_becomes_durable_no_more_than_so_much_is_published() -> None:
    allowance = ByteAllowance(1000, 0.0, between=150)
    assert allowance.take(100, 0.0)
    assert not allowance.take(60, 100.0)
    assert allowance.take(50, 100.0)
    assert not allowance.take(1, 1000.0)
    allowance.version()
    assert allowance.take(150, 1000.0)


def test_cuts_of_versions_that_never_become_durable_are_not_kept_for_ever() -> None:
    floor, bench = Floor(), Bench()
    for _ in range(200):
        bench.apply(1)
        bench.capture()
    for offset, written in enumerate(bench.written):
        floor.sent(written.body, offset)
    assert len(floor._cuts) <= CUTS_KEPT
    assert len(bench.journal._cuts) <= CUTS_KEPT
    bench.durable(5)
    floor.sent(bench.written[-1].body, len(bench.written))
    bench.durable(5, records=2)
    assert isinstance(bench.written[-1].body, Base), "the newest cuts are known"
    assert bench.written[-1].body.number == 5
    assert len(bench.written) == 202, "and the oldest are not"


def test_an_inbox_takes_what_fits_and_marks_always() -> None:
    bench = Bench()
    one = bench.batch(4)
    size = 3 * 4 * DIM * 4
    inbox = Inbox(max_bytes=size * 2)
    for item in (one, Captured(1, None), one, one, Durable(1, 1, "", "")):
        inbox.offer(item)
    assert inbox.left_out == 1
    assert [type(item).__name__ for item in inbox.take()] == [
        "AppliedBatch",
        "Captured",
        "AppliedBatch",
        "Durable",
    ]
    assert inbox.take() == []
    small = Inbox(max_bytes=1)
    small.offer(one)
    assert small.take() == [one], "a batch above the limit is taken when none waits"
    for _ in range(MAX_MARKS + 5):
        small.offer(Captured(1, None))
    assert len(small.take()) == MAX_MARKS


def test_below_the_last_cut_but_one_nobody_needs_the_log() -> None:
    floor, bench = Floor(), Bench()
    floors = []
    bench.apply(2)
    bench.capture()
    bench.durable(5)
    bench.apply(2)
    bench.capture()
    bench.apply(1)
    bench.written += bench.journal.flush()
    bench.durable(6, records=6)
    for offset, written in enumerate(bench.written):
        floor.sent(written.body, 10 * offset)
        floors.append(floor.offset)
    assert summary(bench.bodies()) == [
        "base 4", (0, 3, True), "base 5", (3, 6, True), (6, 8, False), "base 6",
    ]  # fmt: skip
    assert floors == [0, 0, 0, 0, 0, 10]
