"""The publishing thread: a log that is slow, away or gone costs replicas time, and the learner nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import pytest
from prometheus_client import CollectorRegistry

from daemon.learn.steplog import publisher as module
from daemon.learn.steplog.journal import ByteAllowance, Journal
from daemon.learn.steplog.publisher import Inbox, StepPublisher
from daemon.learn.steplog.segments import Captured, Durable
from daemon.telemetry.metrics import StepLogMetrics
from learners import Oasis
from streams.errors import LogMismatch, RecordRefused, StreamUnavailable, TopicMissing
from streams.source import OutRecord, TopicIdentity
from streams.steps.segment import BREAK_REASONS, RankOneSteps
from tests.harness.waiting import until

from .following import bodies, segments
from .test_journal import BASE, DIM, MINE, PLACE, PLENTY, ROOMY, Bench, summary

WAIT = 30.0


class Log:
    """A sink over a list, whose next sends end as told: None is written, an error is raised; `doubt`: written
    all the same; `away`: none is taken as long as it says so. A send waits for the gate."""

    max_record_bytes = ROOMY

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.faults: list[Exception] = []
        self.open_faults: list[Exception] = []
        self.doubt = self.away = False
        self.gate = threading.Event()
        self.gate.set()
        self.opened = self.closed = 0

    def open(self) -> Log:
        if self.open_faults:
            raise self.open_faults.pop(0)
        self.opened += 1
        return self

    def identity(self) -> TopicIdentity:
        raise NotImplementedError

    def send(self, records: Sequence[OutRecord]) -> list[tuple[int, int]]:
        assert self.gate.wait(WAIT)
        if self.away:
            raise StreamUnavailable("away")
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None and not self.doubt:
            raise fault
        start = len(self.values)
        self.values += [record.value for record in records if record.value is not None]
        if fault is not None:
            raise fault
        return [(0, start + number) for number in range(len(records))]

    def close(self) -> None:
        self.closed += 1


class Running(Bench):
    """A bench whose items go through a publishing thread."""

    def __init__(self, max_bytes: int = PLENTY) -> None:
        super().__init__()
        self.log, self.inbox = Log(), Inbox(max_bytes)
        self.registry = CollectorRegistry()
        self.publisher = StepPublisher(
            self.inbox,
            self.log.open,
            lambda most: Journal(PLACE, BASE, DIM, most, ByteAllowance(PLENTY, 0.0), taken=Oasis(DIM).taken),
            every_s=0.01,
            metrics=StepLogMetrics(self.registry, BREAK_REASONS),
            clock=time.monotonic,
        )

    def offer(self, *events: int) -> None:
        for count in events:
            self.inbox.offer(self.batch(count))

    def cut(self, number: int) -> None:
        self.inbox.offer(Captured(self.records, 1))
        self.inbox.offer(Durable(number, self.records, "1" * 32, MINE))

    def told(self) -> list:  # type: ignore[type-arg]
        return list(segments(self.log.values))

    def summary(self) -> list[object]:
        return summary([segment.body for segment in self.told()])

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"tripletd_step_log_{name}", labels)

    def finish(self) -> list[object]:
        self.publisher.stop()
        assert self.publisher.ended(WAIT)
        return self.summary()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(module, "REOPEN_SECONDS", 0.01)


def test_what_was_handed_over_is_written_before_the_end() -> None:
    run = Running()
    run.offer(3, 2)
    run.cut(5)
    run.publisher.start()
    assert run.finish() == ["base 4", (0, 7, True), "base 5"]
    steps = bodies(run.told(), RankOneSteps)
    assert run.metric("steps_total") == sum(map(len, steps)) > 0
    assert run.metric("segments_total") == 3
    assert run.metric("bytes_total") == sum(map(len, run.log.values))
    assert run.publisher.floor == 0
    assert run.log.closed == 1


def test_a_stop_amid_a_turn_ends_it_after_that_turn() -> None:
    run = Running()
    run.log.gate.clear()
    run.publisher.start()
    until(lambda: run.log.opened)
    run.publisher.stop()
    run.log.gate.set()
    assert run.publisher.ended(WAIT)
    assert run.log.closed == 1


def test_while_nothing_is_learned_it_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Running()
    turns, turn = [], run.publisher._safe_turn
    monkeypatch.setattr(run.publisher, "_safe_turn", lambda: turns.append(1) or turn())
    run.publisher.start()
    until(lambda: run.log.values)
    before = len(turns)
    time.sleep(0.3)
    assert len(turns) <= before + 1
    run.offer(2)
    until(lambda: len(run.log.values) > 1)
    run.finish()


def test_it_writes_at_its_cadence_without_being_asked() -> None:
    run = Running()
    run.publisher.start()
    for number in range(3):
        run.offer(2)
        until(
            lambda number=number: (
                sum(map(len, bodies(run.told(), RankOneSteps))) and len(run.told()) > number + 1
            )
        )
    run.finish()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("doubt", [False, True])
def test_what_a_log_did_not_take_is_sent_again_as_it_was(doubt: bool) -> None:
    run = Running()
    run.log.doubt = doubt
    run.log.faults = [StreamUnavailable("busy")] * 3
    run.offer(3, 2)
    run.cut(5)
    run.publisher.start()
    until(lambda: len(run.told()) == 3)
    assert run.finish() == ["base 4", (0, 7, True), "base 5"]
    assert len(run.log.values) > 3 if doubt else len(run.log.values) == 3
    assert run.metric("unavailable") == 0


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "error", [TopicMissing("no topic"), LogMismatch("another file"), StreamUnavailable("away")]
)
def test_a_topic_that_comes_later_gets_everything(error: Exception) -> None:
    run = Running()
    run.log.open_faults = [error] * 3
    run.offer(3)
    run.publisher.start()
    until(lambda: run.log.opened == 1)
    assert run.finish() == ["base 4", (0, 4, False)]


@pytest.mark.usefixtures("quick")
def test_a_log_that_was_replaced_is_opened_again() -> None:
    run = Running()
    run.log.faults = [LogMismatch("another file")]
    run.offer(3)
    run.publisher.start()
    until(lambda: len(run.told()) == 2)
    assert run.finish() == ["base 4", (0, 4, False)]
    assert run.log.opened == 2


def test_a_log_that_stands_still_makes_the_loop_leave_out_and_never_wait() -> None:
    run = Running(max_bytes=1000)
    run.log.gate.clear()
    run.publisher.start()
    until(lambda: run.log.opened == 1)
    for _ in range(50):
        run.offer(5)
    run.inbox.offer(Captured(run.records, 1))
    run.offer(2)
    assert run.inbox.left_out > 0
    run.log.gate.set()
    until(lambda: any(getattr(body, "cut", False) for body in bodies(run.told(), RankOneSteps)))
    run.offer(2)
    run.publisher.stop()
    assert run.publisher.ended(WAIT)
    told = run.summary()
    assert told[0] == "base 4"
    assert told[-2:] != told[:2]
    assert "break queue" in told
    assert run.metric("breaks_total", reason="queue") == 1
    cut = told.index((300, 300, True))
    assert told[cut - 1] == "break queue"


@pytest.mark.usefixtures("quick")
def test_a_break_after_trouble_is_told_as_the_logs() -> None:
    run = Running(max_bytes=1)
    run.log.away = True
    run.publisher.start()
    until(lambda: run.metric("unavailable") == 1)
    run.offer(3, 3)
    run.log.away = False
    until(lambda: run.metric("unavailable") == 0)
    run.offer(2)
    assert run.finish()[-1] == "break sink"


@pytest.mark.usefixtures("quick")
def test_a_record_that_is_refused_is_a_break_and_the_next_cut_goes_on() -> None:
    run = Running()
    run.publisher.start()
    until(lambda: len(run.told()) == 1)
    run.log.faults = [RecordRefused("too large")]
    run.offer(3)
    until(lambda: run.metric("breaks_total", reason="error") == 1)
    run.offer(2)
    run.cut(5)
    assert run.finish() == ["base 4", "break error", (7, 7, True), "base 5"]


@pytest.mark.usefixtures("quick")
def test_a_fault_of_our_own_is_a_break_too_and_the_thread_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Running()
    run.publisher.start()
    until(lambda: len(run.told()) == 1)
    real: Callable[..., object] = Journal.take
    broken = [ValueError("a bug")]

    def take(journal: Journal, item: object, now: float) -> object:
        if broken:
            raise broken.pop()
        return real(journal, item, now)

    monkeypatch.setattr(Journal, "take", take)
    run.offer(3)
    until(lambda: run.metric("breaks_total", reason="error") == 1)
    until(lambda: run.metric("broken") == 1)
    run.offer(2)
    run.cut(5)
    assert run.finish() == ["base 4", "break error", (7, 7, True), "base 5"]
