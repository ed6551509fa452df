"""The step log of a learner: the loop offers references, a thread writes them to the log at a cadence.

Nothing here may harm the learner. A log that is slow or away makes the inbox overflow, which shows as a gap,
which becomes a break; whatever else goes wrong is a break and a log line too.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

import structlog

from checkpoints.manifest import Manifest
from daemon.config.schema import Config
from daemon.learn.resume.origin import RunOrigin
from daemon.learn.state import Snapshot
from daemon.learn.step import StepResult
from daemon.learn.steplog.journal import ByteAllowance, Floor, Journal, Written
from daemon.learn.steplog.segments import AppliedBatch, Captured, Durable, Item, triplet_bytes
from daemon.retries import RETRY_SECONDS
from daemon.runtime.watchdog import BackgroundThread
from daemon.telemetry import LearnMetrics
from daemon.telemetry.metrics import StepLogMetrics
from daemon.versions.algorithms import by_steps, digest_of
from daemon.versions.contents import RECORDS, counted, records_of
from streams.errors import RecordRefused, StreamError, StreamUnavailable
from streams.open import open_sink, prepare_topic
from streams.source import Address, OutRecord, Sink
from streams.steps.segment import BREAK_REASONS, ERROR, SINK, Break, ChainPosition, RankOneSteps, Triplets

MAX_BYTES = 64 << 20
"""Vectors that may wait; a batch above it is still taken when none waits."""
MAX_BATCHES = 10_000
MAX_MARKS = 1_000
SEND_BYTES = 8 << 20
REOPEN_SECONDS = 2.0

log = structlog.get_logger("tripletd.learn")


class Inbox:
    """Batches and marks in the order of the loop. What does not fit is left out: its reader sees the gap."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._lock = threading.Lock()
        self._items: deque[Item] = deque()
        self._max_bytes = max_bytes
        self._bytes = self._batches = 0
        self._news = threading.Event()
        self.left_out = 0  # batches that did not fit, ever

    def offer(self, item: Item) -> None:
        """Hand over one item, unless there is no room for it."""
        with self._lock:
            if isinstance(item, AppliedBatch):
                size = 0 if item.triplets is None else triplet_bytes(item.triplets)
                if self._batches and (self._bytes + size > self._max_bytes or self._batches >= MAX_BATCHES):
                    self.left_out += 1
                else:
                    self._items.append(item)
                    self._bytes += size
                    self._batches += 1
            elif len(self._items) - self._batches < MAX_MARKS:
                self._items.append(item)
        self._news.set()

    def take(self) -> list[Item]:
        """Take everything that waits."""
        self._news.clear()
        with self._lock:
            items, self._items = list(self._items), deque()
            self._bytes = self._batches = 0
        return items

    def wait(self) -> None:
        """Return once something was handed over since it was last taken, or after `wake`."""
        self._news.wait()

    def wake(self) -> None:
        """Make `wait` return."""
        self._news.set()


class StepPublisher(BackgroundThread):
    """Writes the step log in a thread of its own, and owns its sink. The loop calls `applied`, `captured` and
    `published`, which never wait.

    Args:
        inbox: what the loop hands over.
        open_sink: opens the topic, making it where it may; called in the thread, again after errors.
        make_journal: from the most bytes of one record.
        every_s: time between two writes, seconds.
        metrics: of the step log.
        clock: monotonic, in seconds.
    """

    name = "steps"

    def __init__(
        self,
        inbox: Inbox,
        open_sink: Callable[[], Sink],
        make_journal: Callable[[int], Journal],
        *,
        every_s: float,
        metrics: StepLogMetrics,
        clock: Callable[[], float],
    ) -> None:
        super().__init__()
        self._inbox, self._open_sink, self._make_journal = inbox, open_sink, make_journal
        self._every_s, self._metrics, self._clock = every_s, metrics, clock
        self._closing = threading.Event()
        self._sink: Sink | None = None
        self._journal: Journal | None = None
        self._backlog: deque[Item] = deque()
        self._waiting: list[Written] = []  # next to be sent, perhaps sent already: sent again as they are
        self._floor = Floor()
        self._trouble: str | None = None

    @property
    def floor(self) -> int:
        """The offset below which no replica needs the step log."""
        return self._floor.offset

    def applied(self, first: int, last: int, watermark: int | None, step: StepResult) -> None:
        """A batch was learned: `first`, `last` records before and after it."""
        learned = (step.learned, step.info, step.timestamps, step.weights)
        self._inbox.offer(AppliedBatch(first, last, watermark, *learned))

    def captured(self, snapshot: Snapshot) -> None:
        """A version was captured: the step log is cut here, so that its replicas can follow from it."""
        self._inbox.offer(Captured(counted(snapshot.counters, RECORDS), snapshot.watermark))

    def published(self, version: Manifest) -> None:
        """A version is durable."""
        self._inbox.offer(durable(version))

    def stop(self) -> None:
        """Write what was handed over, once, then end; returns at once."""
        self._closing.set()
        self._inbox.wake()

    def _run(self) -> None:
        closing, used, due = False, 0.0, self._clock()
        self._inbox.wake()  # the topic is opened, and begun, before there is a step
        while not closing:
            if not (self._backlog or self._waiting or self._trouble or self._closing.is_set()):
                self._inbox.wait()
            closing = self._closing.wait(max(0.0, due - self._clock()))
            began = self._clock()
            least_s = self._safe_turn()
            due = max(self._clock() + least_s, began + self._every_s)
            used, before = time.thread_time(), used
            self._metrics.busy_seconds.inc(max(0.0, used - before))
        self._close_sink()

    def _safe_turn(self) -> float:
        """One turn, whatever happens in it; the least seconds until the next one."""
        try:
            self._turn()
        except StreamUnavailable as error:
            self._in_trouble(error)
            return RETRY_SECONDS
        except StreamError as error:
            self._in_trouble(error)
            self._close_sink()
            return REOPEN_SECONDS
        except Exception as error:  # noqa: BLE001 - the learner does not end for its step log
            log.error("the step log: steps are left out up to the next version", error=repr(error))
            if self._journal is not None and self._journal.whole:
                self._waiting += self._journal.leave_out(ERROR)  # what waits has its place in the chain
            return RETRY_SECONDS
        if self._trouble is not None:
            log.info("the step log can be written again")
        self._trouble = None
        self._metrics.unavailable.set(0)
        return 0.0

    def _turn(self) -> None:
        sink, journal = self._opened()
        self._send(sink, journal)
        self._backlog.extend(self._inbox.take())
        while self._backlog:
            item = self._backlog.popleft()
            self._waiting += journal.take(item, self._clock())
            if sum(written.size for written in self._waiting) >= SEND_BYTES:
                self._send(sink, journal)
        self._waiting += journal.flush()
        self._send(sink, journal)
        self._metrics.broken.set(not journal.whole)

    def _opened(self) -> tuple[Sink, Journal]:
        if self._sink is None:
            self._sink = self._open_sink()
        if self._journal is None:
            self._journal = self._make_journal(self._sink.max_record_bytes)
            self._waiting = [self._journal.begin()]
        return self._sink, self._journal

    def _send(self, sink: Sink, journal: Journal) -> None:
        """Write what waits. Raises StreamUnavailable: perhaps written, and to be sent again as it is."""
        if not self._waiting:
            return
        began = self._clock()
        try:
            placed = sink.send([OutRecord(value) for one in self._waiting for value in one.records])
        except RecordRefused as error:
            log.warning("the step log refuses a record; steps are left out", error=str(error))
            self._waiting = journal.unwritten(self._waiting[0])
            return
        self._metrics.send_seconds.observe(self._clock() - began)
        sent, self._waiting = self._waiting, []
        at = 0
        for one in sent:
            self._sent(one, placed[at][1])
            at += len(one.records)

    def _sent(self, written: Written, offset: int) -> None:
        metrics, body = self._metrics, written.body
        self._floor.sent(body, offset)
        metrics.segments.inc()
        metrics.bytes.inc(written.size)
        if isinstance(body, RankOneSteps | Triplets):
            metrics.steps.inc(len(body))
        elif isinstance(body, Break):
            metrics.breaks.labels(body.reason).inc()
            log.warning(
                "steps are left out of the step log; replicas follow again from the next version",
                reason=body.reason,
                records=body.records,
            )

    def _in_trouble(self, error: StreamError) -> None:
        if self._journal is not None:
            self._journal.lost = SINK
        self._metrics.unavailable.set(1)
        if self._trouble is None:
            message = "the step log cannot be written; learning continues, replicas see whole versions"
            log.warning(message, error=str(error))
        self._trouble = str(error)

    def _close_sink(self) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            try:
                sink.close()
            except Exception as error:  # noqa: BLE001 - nothing depends on it
                log.info("closing the step log", error=repr(error))


def durable(version: Manifest) -> Durable:
    """What the step log records of a version."""
    return Durable(version.number, records_of(version), digest_of(version), version.writer)


def step_publisher(
    config: Config, address: Address, origin: RunOrigin, metrics: LearnMetrics, clock: Callable[[], float]
) -> StepPublisher | None:
    """The writer of the step log that `[steps]` asks for, None for none. Its thread opens the topic."""
    settings = config.steps
    if not (settings.enabled and by_steps(config.learner.algorithm, config.keys)):
        return None
    base, learner = durable(origin.base), origin.state.learner

    def journal(max_record_bytes: int) -> Journal:
        allowance = ByteAllowance(settings.max_rate, clock(), settings.retention_bytes)
        place = ChainPosition(origin.epoch.number, 0, base.number, origin.epoch.writer)
        return Journal(place, base, learner.dim, max_record_bytes, allowance, taken=learner.taken)

    return StepPublisher(
        Inbox(),
        lambda: open_steps(address.steps),
        journal,
        every_s=settings.every,
        metrics=StepLogMetrics(metrics.registry, BREAK_REASONS),
        clock=clock,
    )


def open_steps(address: Address) -> Sink:
    """The topic of applied steps; made with one partition where an embedded log has none.

    Not synced with every write: a replica that has seen more than a power cut left begins again.
    """
    prepare_topic(address, 1, "write")
    return open_sink(address, durable=False)
