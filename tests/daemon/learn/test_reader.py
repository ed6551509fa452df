"""The reader thread: order, bounded read-ahead, errors and stuck polls seen by the main loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest

from daemon.learn import reader as reader_module
from daemon.learn.publishing import Cadence
from daemon.learn.reader import QUEUED_BATCHES, Growth, PollSize, Reader
from daemon.runtime.in_hand import InHand, Known
from daemon.runtime.watchdog import Pulse
from streams.decode import BatchDecoder, DecodedBatch
from streams.errors import OffsetExpired, PartitionsAdded, StreamUnavailable
from streams.event import SpaceSpec, ViewSpec
from streams.source import RecordBatch, Source, TopicIdentity
from tests.daemon.learn.conftest import DIM, Site, make_events
from tests.harness.waiting import until

WAIT = 60.0
"""Seconds: only keeps a broken reader from hanging its test."""
DECODER = BatchDecoder(SpaceSpec("default", (ViewSpec("x", "dense", DIM),)), None, "triplets")


class Scripted:
    """A source whose polls are given by a function of their number."""

    def __init__(self, poll: Callable[[int], RecordBatch | None], reached: int = 0) -> None:
        self._poll = poll
        self._reached = reached
        self.polls = 0
        self.closed = False

    def identity(self) -> TopicIdentity:
        return TopicIdentity("log", "triplets", "topic", 1)

    def assign(self, positions: Mapping[int, int], known: Mapping[int, str]) -> None:
        self.positions, self.known = positions, known

    def poll(self, max_records: int, timeout_s: float) -> RecordBatch | None:
        self.polls += 1
        return self._poll(self.polls)

    def reached(self) -> dict[int, int]:
        return {0: self._reached}

    def close(self) -> None:
        self.closed = True


def one_record(number: int) -> RecordBatch:
    return RecordBatch(0, [number], [0], [make_events(1)[0]], [None], [()])


@contextmanager
def reader_of(
    source: object,
    most: int = 10,
    pulse: Pulse | None = None,
    assemble: Callable[[RecordBatch], tuple[DecodedBatch, None]] | None = None,
    in_hand: InHand | None = None,
) -> Iterator[Reader]:
    def opened() -> Source:
        return source  # type: ignore[return-value]

    size, beats = PollSize(most, Cadence(30, 0), 0), pulse or Pulse("reader")

    def prepare(batch: RecordBatch) -> tuple[DecodedBatch, None]:
        return DECODER.decode(batch), None

    how = {"pulse": beats, "clock": time.monotonic, "in_hand": in_hand}
    reader = Reader(opened, {0: 0}, assemble or prepare, size, **how)  # type: ignore[arg-type]
    reader.start()
    try:
        yield reader
    finally:
        reader.stop()
        reader.ended(30.0)


def test_batches_come_in_order_and_read_ahead_is_bounded() -> None:
    source = Scripted(one_record)
    with reader_of(source) as reader:
        until(lambda: source.polls == QUEUED_BATCHES + 1)
        time.sleep(0.05)
        assert source.polls == QUEUED_BATCHES + 1  # one waits for room
        seen = []
        while len(seen) < 20:
            ready = reader.get(WAIT)
            assert ready is not None
            seen.append(ready.polled.offsets[0])
    assert seen == list(range(1, 21))
    assert source.closed


def test_a_loop_that_stands_still_for_long_misses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "POLL_SECONDS", 0.001)
    pulse = Pulse("reader")
    with reader_of(Scripted(one_record), pulse=pulse) as reader:
        until(lambda: reader._queue.qsize() == QUEUED_BATCHES)
        before = pulse.beats
        until(lambda: pulse.beats > before + 20)  # it has tried in vain to hand over many times
        seen = [reader.get(WAIT).polled.offsets[0] for _ in range(10)]
    assert seen == list(range(1, 11))


def test_a_record_that_is_taken_alone_is_alone_until_the_loop_is_done_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither what is before it nor what is behind it is decoded meanwhile."""
    monkeypatch.setattr(reader_module, "POLL_SECONDS", 0.001)
    decoded, pulse, in_hand = list[int](), Pulse("reader"), InHand()
    in_hand.known = Known(careful=((0, 2, 3),))

    def decode(batch: RecordBatch) -> tuple[DecodedBatch, None]:
        decoded.extend(batch.offsets)
        return DECODER.decode(batch), None

    with reader_of(Scripted(one_record), pulse=pulse, assemble=decode, in_hand=in_hand) as reader:

        def rests() -> list[int]:
            before = pulse.beats
            until(lambda: pulse.beats > before + 20)
            return decoded

        assert reader.get(WAIT) is not None
        assert rests() == [1]
        ready = reader.get(WAIT)  # and is done with 1
        assert (ready.polled.offsets, ready.alone) == ([2], True)
        assert rests() == [1, 2]
        assert reader.get(WAIT).polled.offsets == [3]


def test_a_wake_ends_a_get_and_is_no_batch() -> None:
    with reader_of(Scripted(lambda number: None)) as reader:
        threading.Timer(0.05, reader.wake).start()
        began = time.monotonic()
        assert reader.get(60.0) is None
        assert time.monotonic() - began < 30.0
        assert reader.reached() == {0: 0}, "nothing waits to be taken"


def test_an_error_of_the_thread_reaches_the_loop_after_what_was_read() -> None:
    def poll(number: int) -> RecordBatch:
        if number == 3:
            raise OffsetExpired(0, 3, 9)
        return one_record(number)

    with reader_of(Scripted(poll)) as reader:
        assert [reader.get(WAIT).polled.offsets[0] for _ in range(2)] == [1, 2]
        reader._thread.join(30)
        with pytest.raises(OffsetExpired):
            reader.get(0.05)


def test_unavailable_storage_is_waited_for() -> None:
    seen = threading.Event()

    def poll(number: int) -> RecordBatch:
        if number == 1:
            raise StreamUnavailable("busy")
        assert seen.wait(WAIT)
        return one_record(number)

    with reader_of(Scripted(poll)) as reader:
        until(lambda: reader.trouble is not None)
        seen.set()
        assert reader.get(WAIT) is not None
        assert reader.trouble is None


def test_a_stream_that_is_away_when_it_is_opened_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "RETRY_SECONDS", 0.001)
    source, tries = Scripted(one_record), []

    def opened() -> Source:
        tries.append(1)
        if len(tries) < 3:
            raise StreamUnavailable("not yet")
        return source  # type: ignore[return-value]

    reader = Reader(
        opened,
        {0: 0},
        lambda batch: (DECODER.decode(batch), None),
        PollSize(10, Cadence(30, 0), 0),
        pulse=Pulse("reader"),
        clock=time.monotonic,
        known={0: "ab"},
    )
    reader.start()
    assert reader.get(30.0) is not None
    reader.stop()
    assert reader.ended(30.0)
    assert len(tries) == 3
    assert (source.positions, source.known) == ({0: 0}, {0: "ab"})


def test_only_a_poll_in_hand_counts_as_silence() -> None:
    """Waiting for the loop or for the stream beats on; a poll that does not return does not."""
    release, pulse = threading.Event(), Pulse("reader")

    def stuck(number: int) -> None:
        if number == 3:
            release.wait(30)

    source = Scripted(stuck)
    with reader_of(source, pulse=pulse):
        until(lambda: source.polls == 3)
        beats = pulse.beats
        time.sleep(0.05)
        assert (pulse.beats, pulse.doing, pulse.is_patient) == (beats, "poll", False)
        release.set()
        until(lambda: pulse.beats > beats + 10)


def test_what_was_reached_is_told_once_all_of_it_was_taken() -> None:
    """Offsets 2 and 3 hold no record: with the record at 1 taken, everything below 4 is."""

    def poll(number: int) -> RecordBatch | None:
        return one_record(1) if number == 1 else None

    source = Scripted(poll, reached=4)
    with reader_of(source) as reader:
        until(lambda: source.polls > 2)
        assert reader.reached() is None
        assert reader.get(WAIT) is not None
        until(lambda: reader.reached() == {0: 4})


def test_polls_grow_from_small_and_shrink_for_long_records() -> None:
    size = PollSize(5000, Cadence(30, 0), 0)
    short = RecordBatch(0, [0], [0], [b"x" * 100], [None], [()])
    sizes = []
    for _ in range(5):
        sizes.append(size.next())
        size.polled(short)
        size.learned(sizes[-1], 1e-5 * sizes[-1])
    assert sizes == [64, 256, 1024, 4096, 5000]
    size.polled(RecordBatch(0, [0], [0], [b"x" * (1 << 20)], [None], [()]))
    assert size.next() == 16


def test_a_slow_step_makes_for_small_batches() -> None:
    """A stop waits for the batch in hand."""
    size, short = PollSize(5000, Cadence(30, 0), 0), RecordBatch(0, [0], [0], [b"x"], [None], [()])
    for _ in range(5):
        size.polled(short)
        size.learned(64, 0.64)
    assert size.next() == 25
    size.learned(1, 60.0)  # a projection fell into it
    assert size.next() == 1
    for _ in range(7):
        size.learned(size.next(), 1e-5 * size.next())
    assert size.next() == 5000


def test_the_stream_itself(site: Site) -> None:
    events = make_events(25)
    site.feed(events)
    from streams.open import open_source

    with reader_of(open_source(site.address), most=7) as reader:
        values: list[bytes | None] = []
        while len(values) < 25:
            ready = reader.get(WAIT)
            assert ready is not None
            assert ready.records <= 7
            values += ready.polled.values
    assert values == events


def test_partitions_that_are_added_come_after_word_of_them_and_nothing_is_read_twice() -> None:
    """The stream is opened again where reading stood, behind what was handed over."""

    def grows(number: int) -> RecordBatch:
        if number == 3:
            raise PartitionsAdded("t", 1, 2)
        return one_record(number)

    def of_the_added_one(number: int) -> RecordBatch:
        return RecordBatch(1, [number - 1], [0], [make_events(1)[0]], [None], [()])

    first, second = Scripted(grows), Scripted(of_the_added_one)
    second.identity = lambda: TopicIdentity("log", "triplets", "topic", 2)  # type: ignore[method-assign]
    sources = iter([first, second])
    size = PollSize(10, Cadence(30, 0), 0)

    def prepare(batch: RecordBatch) -> tuple[DecodedBatch, None]:
        return DECODER.decode(batch), None

    reader = Reader(
        lambda: next(sources),  # type: ignore[arg-type, return-value]
        {0: 0},
        prepare,
        size,
        pulse=Pulse("reader"),
        clock=time.monotonic,
    )
    reader.start()
    found = [reader.get(WAIT) for _ in range(5)]
    reader.stop()
    assert reader.ended(30.0)
    assert [one.partitions if isinstance(one, Growth) else one.polled.partition for one in found] == [
        0,
        0,
        2,
        1,
        1,
    ]
    assert second.positions == {0: 3, 1: 0}
    assert set(second.known) == {0}
