"""The reader thread: order, bounded read-ahead, errors and stuck polls seen by the main loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

import pytest

from daemon.learn import pipeline
from daemon.learn.cadence import Cadence
from daemon.learn.pipeline import QUEUED_BATCHES, PollSize, Reader
from streams.decode import BatchDecoder
from streams.errors import OffsetExpired, StreamUnavailable
from streams.source import RecordBatch, Source
from streams.space import SpaceSpec, ViewSpec
from tests.daemon.learn.conftest import DIM, Site, make_events

DECODER = BatchDecoder(SpaceSpec("default", (ViewSpec("x", "dense", DIM),)), None, "triplets")


class Scripted:
    """A source whose polls are given by a function of their number."""

    def __init__(self, poll: Callable[[int], RecordBatch | None]) -> None:
        self._poll = poll
        self.polls = 0
        self.closed = False

    def assign(self, positions: Mapping[int, int]) -> None:
        self.positions = positions

    def poll(self, max_records: int, timeout_s: float) -> RecordBatch | None:
        self.polls += 1
        return self._poll(self.polls)

    def close(self) -> None:
        self.closed = True


def one_record(number: int) -> RecordBatch:
    return RecordBatch(0, [number], [0], [make_events(1)[0]], [None], [()])


def reader_of(source: object, clock: Callable[[], float] = time.monotonic, most: int = 10) -> Reader:
    def opened() -> Source:
        return source  # type: ignore[return-value]

    size = PollSize(most, Cadence(30, 0), 0)
    return Reader(opened, {0: 0}, lambda batch: (DECODER.decode(batch), None), size, clock)


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_batches_come_in_order_and_read_ahead_is_bounded() -> None:
    source = Scripted(one_record)
    with reader_of(source) as reader:
        wait_for(lambda: source.polls == QUEUED_BATCHES + 1)
        time.sleep(0.05)
        assert source.polls == QUEUED_BATCHES + 1  # one waits for room
        seen = []
        while len(seen) < 20:
            ready = reader.get(5.0)
            assert ready is not None
            seen.append(ready.polled.offsets[0])
    assert seen == list(range(1, 21))
    assert source.closed


def test_a_loop_that_stands_still_for_long_misses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "POLL_SECONDS", 0.001)
    moved: list[float] = []

    def clock() -> float:
        moved.append(time.monotonic())
        return moved[-1]

    with reader_of(Scripted(one_record), clock) as reader:
        wait_for(reader._queue.full)
        before = len(moved)
        wait_for(lambda: len(moved) > before + 20)  # it has tried in vain to hand over many times
        seen = [reader.get(5.0).polled.offsets[0] for _ in range(10)]
    assert seen == list(range(1, 11))


def test_an_error_of_the_thread_reaches_the_loop_after_what_was_read() -> None:
    def poll(number: int) -> RecordBatch:
        if number == 3:
            raise OffsetExpired(0, 3, 9)
        return one_record(number)

    with reader_of(Scripted(poll)) as reader:
        assert [reader.get(5.0).polled.offsets[0] for _ in range(2)] == [1, 2]
        reader._thread.join(30)
        with pytest.raises(OffsetExpired):
            reader.get(0.05)


def test_unavailable_storage_is_waited_for() -> None:
    def poll(number: int) -> RecordBatch:
        if number == 1:
            raise StreamUnavailable("busy")
        return one_record(number)

    with reader_of(Scripted(poll)) as reader:
        wait_for(lambda: reader.trouble is not None)
        assert reader.get(10.0) is not None
        assert reader.trouble is None


def test_a_poll_that_never_returns_is_noticed_and_a_slow_stream_is_not() -> None:
    release, now = threading.Event(), [0.0]

    def stuck(number: int) -> None:
        if number == 3:
            release.wait(30)

    source = Scripted(stuck)
    with reader_of(source, lambda: now[0]) as reader:
        wait_for(lambda: source.polls == 3)
        now[0] = 100.0
        assert reader.silent_seconds() == 100.0
        release.set()
        wait_for(lambda: reader.silent_seconds() == 0.0)
        now[0] = 200.0
        wait_for(lambda: reader.silent_seconds() == 0.0)


def test_polls_grow_from_small_and_shrink_for_long_records() -> None:
    size = PollSize(5000, Cadence(30, 0), 0)
    short = RecordBatch(0, [0], [0], [b"x" * 100], [None], [()])
    sizes = []
    for _ in range(5):
        sizes.append(size.next())
        size.polled(short)
    assert sizes == [64, 256, 1024, 4096, 5000]
    size.polled(RecordBatch(0, [0], [0], [b"x" * (1 << 20)], [None], [()]))
    assert size.next() == 16


def test_the_stream_itself(site: Site) -> None:
    events = make_events(25)
    site.feed(events)
    from streams.open import open_source

    with reader_of(open_source(site.address), most=7) as reader:
        values: list[bytes | None] = []
        while len(values) < 25:
            ready = reader.get(5.0)
            assert ready is not None
            assert ready.records <= 7
            values += ready.polled.values
    assert values == events
