"""The threads beside the loop: what they answer, what they carry to it, how they are left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from daemon.dead_letters import DeadLetterWriter
from daemon.learn import housekeeping
from daemon.learn.housekeeping import Housekeeper, LogBounds
from daemon.learn.loop import end_threads
from daemon.learn.observe import STALL_SECONDS, StreamReadiness
from daemon.runtime.watchdog import Pulse
from streams.errors import LogMismatch, RecordRefused, StreamUnavailable
from streams.poison import DeadLetter
from streams.source import HeldBack
from tests.harness.waiting import until


class Asked:
    """A source that answers `bounds` by a function of the number of the question."""

    def __init__(self, bounds: Callable[[int], dict[int, tuple[int, int]]]) -> None:
        self._bounds = bounds
        self.questions = 0
        self.held: dict[int, HeldBack] = {}
        self.closed = threading.Event()

    def bounds(self) -> dict[int, tuple[int, int]]:
        self.questions += 1
        return self._bounds(self.questions)

    def held_back(self) -> dict[int, HeldBack]:
        return self.held

    def close(self) -> None:
        self.closed.set()


def housekeeper_of(source: Any, tidy: Callable[..., None] = lambda *_: None) -> Housekeeper:
    housekeeper = Housekeeper(source, tidy, Pulse("housekeeper"), time.monotonic)
    housekeeper.start()
    return housekeeper


def end(housekeeper: Housekeeper) -> None:
    housekeeper.stop()
    assert housekeeper.ended(30.0)


@pytest.fixture
def asks_when_hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once a second as well, which the test may be too slow to see."""
    monkeypatch.setattr(housekeeping, "BOUNDS_EVERY_S", 1e6)


@pytest.mark.usefixtures("asks_when_hurried")
def test_bounds_are_asked_for_at_once_and_again_when_hurried() -> None:
    source = Asked(lambda number: {0: (0, number)})
    housekeeper = housekeeper_of(source)
    until(lambda: housekeeper.seen is not None)
    first = housekeeper.seen
    assert first is not None
    housekeeper.hurry()
    until(lambda: housekeeper.seen is not first)
    assert housekeeper.seen is not None
    assert housekeeper.seen.at > first.at
    assert housekeeper.seen.bounds == {0: (0, 2)}
    end(housekeeper)
    assert source.closed.is_set()


@pytest.mark.usefixtures("asks_when_hurried")
def test_a_stream_that_is_away_is_told_of_and_asked_again() -> None:
    def bounds(number: int) -> dict[int, tuple[int, int]]:
        if number == 1:
            raise StreamUnavailable("away")
        return {0: (0, 9)}

    housekeeper = housekeeper_of(Asked(bounds))
    until(lambda: housekeeper.trouble is not None)
    assert housekeeper.seen is None
    assert housekeeper.error is None
    housekeeper.hurry()
    until(lambda: housekeeper.trouble is None)
    assert housekeeper.seen is not None
    end(housekeeper)


@pytest.mark.usefixtures("asks_when_hurried")
def test_a_transaction_is_open_since_the_same_one_was_first_seen() -> None:
    source = Asked(lambda _: {0: (0, 5), 1: (0, 5)})
    source.held = {0: HeldBack(5, 9), 1: HeldBack(5, 6)}
    housekeeper = housekeeper_of(source)
    until(lambda: housekeeper.seen is not None)
    first = housekeeper.seen
    assert first is not None
    source.held = {0: HeldBack(5, 12), 1: HeldBack(7, 9)}  # one goes on, the other is a later one
    housekeeper.hurry()
    until(lambda: housekeeper.seen is not first)
    now = housekeeper.seen
    assert now is not None
    assert now.transactions.since == {0: first.at, 1: now.at}
    assert (now.newest(0), now.newest(1)) == (12, 9)
    end(housekeeper)


def test_another_topic_is_carried_to_the_loop() -> None:
    def bounds(number: int) -> dict[int, tuple[int, int]]:
        raise LogMismatch("re-created")

    housekeeper = housekeeper_of(Asked(bounds))
    assert housekeeper.ended(30.0)
    assert isinstance(housekeeper.error, LogMismatch)


def test_only_the_newest_version_is_tidied_up_after_and_the_last_one_before_the_end() -> None:
    gate, tidied = threading.Event(), []

    def tidy(version: Any, source: Any) -> None:
        tidied.append(version)
        gate.wait(30)

    housekeeper = housekeeper_of(Asked(lambda _: {}), tidy)
    versions: list[Any] = ["1", "2", "3", "4"]
    housekeeper.published(versions[0])
    until(lambda: tidied)
    for version in versions[1:]:
        housekeeper.published(version)
    assert not housekeeper.settle(0.01)
    housekeeper.stop()
    gate.set()
    assert housekeeper.ended(30.0)
    assert tidied == ["1", "4"]
    assert housekeeper.settle(0.0)


class Writes:
    """A sink that does with each send what it is told to."""

    def __init__(self, send: Callable[[int], None]) -> None:
        self._send = send
        self.sends = 0
        self.closed = threading.Event()
        self.max_record_bytes = 1 << 20

    def send(self, records: Any) -> list[tuple[int, int]]:
        self.sends += 1
        self._send(self.sends)
        return []

    def close(self) -> None:
        self.closed.set()


def letters_to(sink: Any, fence: Callable[[], None] = lambda: None) -> DeadLetterWriter:
    letters = DeadLetterWriter(sink, fence, Pulse("letters"))
    letters.start()
    return letters


LETTER = DeadLetter("t", 0, 7, "not_msgpack", "why", b"x")


def test_letters_are_delivered_once_durable_however_often_they_are_refused() -> None:
    reported = set[str | None]()

    def refuse_twice(number: int) -> None:
        if number > 1:  # the reason before it, which is gone once there is another, is told
            until(lambda: f"dead letters cannot be written: busy {number - 1}" in reported)
        if number < 3:
            raise StreamUnavailable(f"busy {number}")

    sink = Writes(refuse_twice)
    letters = letters_to(sink)
    assert letters.deliver([LETTER], reported.add, lambda: False)
    assert sink.sends == 3
    assert {f"dead letters cannot be written: busy {n}" for n in (1, 2)} <= reported
    assert letters.deliver([], reported.add, lambda: False)  # nothing to do
    assert sink.sends == 3
    letters.stop()
    assert letters.ended(30.0)
    assert sink.closed.is_set()


def test_letters_that_can_never_be_written_end_the_loop() -> None:
    def refuse(number: int) -> None:
        raise RecordRefused("too large")

    letters = letters_to(Writes(refuse))
    with pytest.raises(RecordRefused):
        letters.deliver([LETTER], lambda _: None, lambda: False)


def test_nothing_is_sent_once_another_learner_has_taken_over() -> None:
    def taken_over() -> None:
        raise PermissionError("taken over")

    sink = Writes(lambda _: None)
    with pytest.raises(PermissionError):
        letters_to(sink, taken_over).deliver([LETTER], lambda _: None, lambda: False)
    assert sink.sends == 0


def test_a_sink_that_never_answers_is_left_behind() -> None:
    release = threading.Event()
    letters = letters_to(Writes(lambda _: bool(release.wait(30)) and None))
    assert not letters.deliver([LETTER], lambda _: None, lambda: True)
    letters.stop()
    assert not letters.ended(0.05)
    release.set()
    assert letters.ended(30.0)


class Stays:
    """A part whose thread ends when it is told to stop, or never."""

    def __init__(self, name: str, ends: bool) -> None:
        self.name, self._ends = name, ends
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True

    def ended(self, timeout_s: float) -> bool:
        time.sleep(0 if self._ends else timeout_s)
        return self._ends and self.stopped


def test_all_are_told_before_any_is_waited_for_and_none_is_waited_for_long() -> None:
    parts: list[Any] = [Stays("reader", False), Stays("housekeeper", True), Stays("letters", False)]
    began = time.monotonic()
    end_threads(parts, None, lambda: True)
    assert time.monotonic() - began < 10.0
    assert all(part.stopped for part in parts)


def test_nobody_waits_for_the_step_log_alone_even_without_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.learn.loop.END_SECONDS", 1e6)
    monkeypatch.setattr("daemon.learn.loop.STEPS_SECONDS", 0.01)
    parts: list[Any] = [Stays(name, True) for name in ("reader", "housekeeper", "letters")]
    steps: Any = Stays("steps", False)
    end_threads([*parts, steps], steps, lambda: False)
    assert steps.stopped


class Told:
    """Reader and housekeeper as far as readiness looks at them."""

    def __init__(self, seen: Any = None, trouble: Exception | None = None) -> None:
        self.seen, self.trouble = seen, trouble


def seen_at(at: float, ends: Mapping[int, int]) -> LogBounds:
    return LogBounds({partition: (0, end) for partition, end in ends.items()}, at)


LATE = STALL_SECONDS + 1.0


@pytest.mark.parametrize(
    ("waits_s", "answer_age_s", "stands", "reason"),
    [
        (LATE, 0.5, 90, "stalled: 10 records wait"),
        (STALL_SECONDS - 1, 0.5, 90, None),
        (None, 0.5, 90, None),  # the loop is at work
        (LATE, 0.5, 100, None),  # nothing waits
        (LATE, LATE, 100, "the stream does not answer"),
        (None, LATE, 100, "the stream does not answer"),
    ],
)
def test_what_waits_while_nothing_moves_is_told(
    waits_s: float | None, answer_age_s: float, stands: int, reason: str | None
) -> None:
    now = [0.0]
    reader: Any = Told()
    housekeeper: Any = Told()
    readiness = StreamReadiness(reader, housekeeper, lambda: {0: stands}, lambda: now[0])
    readiness.turned(busy=True)
    if waits_s is not None:
        readiness.turned(busy=False)
        housekeeper.seen = seen_at(now[0], {0: 100, 5: 1000})
        assert readiness.trouble() is None
        now[0] += waits_s
        readiness.turned(busy=False)
    housekeeper.seen = seen_at(now[0] - answer_age_s, {0: 100, 5: 1000})  # partition 5 is not ours
    told = readiness.trouble()
    assert (told is None) if reason is None else (told is not None and told.startswith(reason))


def test_records_that_come_after_a_long_silence_are_no_stall() -> None:
    now, reader, housekeeper = [0.0], Told(), Told()
    readiness = StreamReadiness(reader, housekeeper, lambda: {0: 100}, lambda: now[0])  # type: ignore[arg-type]
    told = []
    for end in (100, 110, 110, 110):
        now[0] += LATE
        readiness.turned(busy=False)
        housekeeper.seen = seen_at(now[0], {0: end})
        told.append(readiness.trouble())
    assert told[:2] == [None, None]
    assert told[2] == told[3] == "stalled: 10 records wait and none came within 10 s"
    readiness.turned(busy=True)
    readiness.turned(busy=False)
    assert readiness.trouble() is None


def test_a_transaction_is_a_reason_once_all_before_it_is_learned_and_it_has_been_open_for_a_while() -> None:
    now, stands = [0.0], {0: 100}
    reader: Any = Told()
    housekeeper: Any = Told()
    readiness = StreamReadiness(reader, housekeeper, lambda: stands, lambda: now[0], "clicks")
    told, seen = [], None
    for at, learned in ((0.0, 99), (LATE, 99), (LATE, 100), (LATE + 1, 100)):
        now[0], stands[0] = at, learned
        readiness.turned(busy=True)  # other partitions go on
        seen = housekeeper.seen = LogBounds.after(seen, {0: (0, 100)}, {0: HeldBack(100, 140)}, at)
        told.append(readiness.trouble())
    assert told[:2] == [None, None]
    for reason, seconds in zip(told[2:], (11, 12), strict=True):
        assert reason is not None
        assert reason.startswith(
            "records wait behind an open transaction: it has been open at offset 100 of "
        )
        assert f"partition 0 for {seconds} s, and 40 records wait; " in reason
    now[0] = 2 * LATE
    housekeeper.seen = LogBounds.after(seen, {0: (0, 140)}, {0: HeldBack(140, 141)}, now[0])
    assert readiness.trouble() is None, "it is another one"


def test_why_the_stream_is_away_comes_first() -> None:
    now = [0.0]
    reader: Any = Told(trouble=StreamUnavailable("poll"))
    housekeeper: Any = Told(trouble=StreamUnavailable("bounds"))
    readiness = StreamReadiness(reader, housekeeper, lambda: {0: 0}, lambda: now[0])
    assert readiness.trouble() == "the stream is unavailable: poll"
    reader.trouble = None
    assert readiness.trouble() == "the stream does not answer: bounds"
    housekeeper.trouble = None
    assert readiness.trouble() is None
    now[0] = LATE
    told = readiness.trouble()
    assert told is not None  # not even a first answer
    assert told.startswith("the stream does not answer")
