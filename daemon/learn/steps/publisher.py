"""The publishing thread: takes what the loop handed over, at a cadence, and writes it to the step log.

Nothing here may harm the learner. The loop only offers references; a log that is slow or away makes the inbox
run over, which shows as a gap, which becomes a break; whatever else goes wrong is a break and a log line too.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

import structlog

from daemon.learn.steps.applied import Item
from daemon.learn.steps.floor import Floor
from daemon.learn.steps.inbox import Inbox
from daemon.learn.steps.journal import Journal, Written
from daemon.learn.threads.part import Part
from daemon.telemetry.step_log_metrics import StepLogMetrics
from streams.errors import RecordRefused, StreamError, StreamUnavailable
from streams.source import OutRecord, Sink
from streams.steps.segment import ERROR, SINK, Break, Steps, Triplets

SEND_BYTES = 8 << 20
RETRY_SECONDS = 0.5
REOPEN_SECONDS = 2.0

log = structlog.get_logger("tripletd.learn")


class StepPublisher(Part):
    """Runs in a thread of its own and owns its sink.

    Args:
        inbox: what the loop hands over.
        open_sink: opens the topic, making it where it may; called in the thread, again after errors.
        make_journal: from the most bytes of one record.
        every_s: time between two writes, seconds.
        metrics: told of everything.
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
        self._inbox = inbox
        self._open_sink = open_sink
        self._make_journal = make_journal
        self._every_s = every_s
        self._metrics = metrics
        self._clock = clock
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

    def stop(self) -> None:
        """Write what was handed over, once, then end; returns at once."""
        self._closing.set()

    def _run(self) -> None:
        pause, closing, used = 0.0, False, 0.0
        while not closing:
            closing = self._closing.wait(pause)
            began = self._clock()
            pause = max(self._safe_turn(), self._every_s - (self._clock() - began))
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
            self._leave_out()
            return RETRY_SECONDS
        self._out_of_trouble()
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
        if isinstance(body, Steps | Triplets):
            metrics.steps.inc(len(body))
        elif isinstance(body, Break):
            metrics.breaks.labels(body.reason).inc()
            log.warning(
                "steps are left out of the step log; replicas follow again from the next version",
                reason=body.reason,
                records=body.records,
            )

    def _leave_out(self) -> None:
        """After what should not happen. What waits stays: its place in the chain is taken."""
        if self._journal is not None and self._journal.whole:
            self._waiting += self._journal.leave_out(ERROR)

    def _in_trouble(self, error: StreamError) -> None:
        if self._journal is not None:
            self._journal.lost = SINK
        self._metrics.unavailable.set(1)
        if self._trouble is None:
            told = "the step log cannot be written; learning goes on, replicas see whole versions"
            log.warning(told, error=str(error))
        self._trouble = str(error)

    def _out_of_trouble(self) -> None:
        if self._trouble is not None:
            log.info("the step log can be written again")
        self._trouble = None
        self._metrics.unavailable.set(0)

    def _close_sink(self) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            try:
                sink.close()
            except Exception as error:  # noqa: BLE001 - nothing depends on it
                log.info("closing the step log", error=repr(error))
