"""One thread that writes what many requests bring: what waits together is made durable together."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from daemon.exits import UserError
from daemon.runtime.watchdog import BackgroundThread
from daemon.serve.writes.spool import Spool, SpoolFull, SpoolRecord
from streams.errors import StreamError

AT_ONCE = 1_000
"""Most records that are written together: some hundred KB."""
SAY_SECONDS = 60.0
"""How often a lasting failure is logged."""

log = structlog.get_logger("tripletd.serve")


class NotWritten(Exception):
    """The records are not kept, or it is not known: write them again. `reason`: a word for metrics."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class WriteMetrics:
    """What is kept of impressions and clicks, and what is not, on the role's registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        self.written = counter("tripletd_writes", "Raw records kept, by event", ["event"])
        self.refused = counter("tripletd_writes_refused", "Requests to write that were refused", ["reason"])
        waiting = "Raw records waiting to be durable"
        self.waiting = Gauge("tripletd_writes_waiting", waiting, registry=registry)


class WriteQueue(BackgroundThread):
    """Records on their way to the spool, at most `most` of them. Any thread may put some in.

    `put` never waits; the future is done when the records are durable, or raises NotWritten.
    """

    name, end_s = "writes", 0.5

    def __init__(self, spool: Spool, most: int, metrics: WriteMetrics) -> None:
        super().__init__()
        self._spool, self._most, self._metrics = spool, most, metrics
        self._waiting: deque[tuple[Sequence[SpoolRecord], Future[None]]] = deque()
        self._inside = 0
        self._closing = False
        self._said = float("-inf")
        self._news = threading.Condition()
        metrics.waiting.set_function(lambda: self._inside)
        self.start()

    def put(self, records: Sequence[SpoolRecord]) -> Future[None]:
        """Have them kept. Raises NotWritten where too many wait, or the role ends."""
        with self._news:
            if self._closing:
                raise NotWritten("ending", "the server is ending")
            if self._inside + len(records) > self._most:
                raise NotWritten("full", f"{self._inside:,} records are waiting to be written")
            future: Future[None] = Future()
            self._waiting.append((records, future))
            self._inside += len(records)
            self._news.notify()
        return future

    def stop(self) -> None:
        """Write what waits, and end; returns at once."""
        with self._news:
            self._closing = True
            self._news.notify()

    def _run(self) -> None:
        while taken := self._taken():
            records = [record for some, _ in taken for record in some]
            failed = self._append(records)
            with self._news:
                self._inside -= len(records)
            for _, future in taken:
                if not future.set_running_or_notify_cancel():
                    continue
                future.set_result(None) if failed is None else future.set_exception(failed)
        self._spool.close()

    def _taken(self) -> list[tuple[Sequence[SpoolRecord], Future[None]]]:
        """What is to be written together, once there is something; nothing at the end."""
        with self._news:
            while not self._waiting and not self._closing:
                self._news.wait()
            taken: list[tuple[Sequence[SpoolRecord], Future[None]]] = []
            count = 0
            while self._waiting and (not taken or count + len(self._waiting[0][0]) <= AT_ONCE):
                taken.append(self._waiting.popleft())
                count += len(taken[-1][0])
        return taken

    def _append(self, records: Sequence[SpoolRecord]) -> NotWritten | None:
        try:
            self._spool.append(records)
            return None
        except SpoolFull as error:
            self._say(str(error))
            return NotWritten("spool_full", "there is no room for more impressions and clicks")
        except (OSError, StreamError, UserError) as error:
            self._say(str(error))
            reason = "unavailable"
        except Exception as error:
            log.exception("a bug in writing impressions and clicks", exc_info=error)
            reason = "bug"
        return NotWritten(reason, "impressions and clicks cannot be written now")

    def _say(self, problem: str) -> None:
        if time.monotonic() - self._said >= SAY_SECONDS:
            self._said = time.monotonic()
            log.error("impressions and clicks are not kept", problem=problem)
