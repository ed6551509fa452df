"""The compute thread: it takes what waits for one alias and answers it in one pass over the items.

The event loop only parses and writes. A question waits in a bounded queue; when that is full or would take
too long, when the thread does not come back in time, or when the server ends, it is answered 503 at once:
nobody waits for ever.

A number of questions alone is no bound of time: on a server of 50 questions a second 512 of them wait 10 s,
each longer than anybody waits for it (`answer_s`), so that from then on every pass would be for nobody. So
the queue is also bounded by how long it would take, which the passes before tell.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from statistics import median
from typing import Protocol

from daemon.runtime.watchdog import BackgroundThread, Pulse
from daemon.serve.http.errors import RETRY_AFTER_S, Problem
from daemon.serve.http.limits import HttpLimits, HttpMetrics
from daemon.serve.query import Answers, Query


class Searching(Protocol):
    """Finds nearest objects; called from one thread only."""

    def search(self, alias: str, queries: Sequence[Query], between: Callable[[], None]) -> Answers:
        """All answers from one view of the alias' model. Raises QueryError when nothing can be answered.

        `between` is called before each scan of the items; what it raises ends the search.
        """


AnswersOrError = Answers | Exception
_PASSES = 9
"""So many passes tell how long one will take: their median, so that one that was held up says nothing."""


class PassTimes:
    """How long queries will wait, from the passes before: pure. For one thread at a time.

    most: queries that share a pass. One of few queries takes nearly as long as a full one, so it is passes
    that are timed and not queries. While passes are not full, the answer is too little by some factor of two.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._each = deque[float](maxlen=_PASSES)
        self._median_s = 0.0

    def took(self, queries: int, seconds: float) -> None:
        """A pass of so many queries took so long; a request may have more than share a pass."""
        self._each.append(seconds / max(1.0, queries / self._most))
        self._median_s = median(self._each)

    def seconds_for(self, queries: int) -> float:
        """What so many queries would take; 0 before the first pass."""
        return queries / self._most * self._median_s


class _NobodyWaits(Exception):
    """The search is ended: all who asked have been answered otherwise."""


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Queries of one request, all answered by one model; `deadline` on the monotonic clock."""

    alias: str
    queries: Sequence[Query]
    deadline: float
    future: asyncio.Future[Answers]


def take_pass(waiting: deque[Job], most: int) -> list[Job]:
    """Remove and give the jobs of the next pass: the first one, and those of its alias that still fit.

    The first may be larger than `most` queries; behind it, jobs of its alias follow in order until the next
    one would not fit, so that no job is overtaken by a later one of its own alias.
    """
    first = waiting.popleft()
    taken, room, passed = [first], most - len(first.queries), deque[Job]()
    while waiting and room > 0:
        job = waiting.popleft()
        if job.alias != first.alias:
            passed.append(job)
        elif len(job.queries) <= room:
            taken.append(job)
            room -= len(job.queries)
        else:
            passed.append(job)
            break
    waiting.extendleft(reversed(passed))
    return taken


class Batcher(BackgroundThread):
    """Queue and thread. `ask` belongs to the event loop, the rest to the owner of the server.

    Args:
        pulse: the thread's sign of life, for a watchdog: a search that never ends is noticed there.
    """

    name, end_s = "search", 1.0

    def __init__(
        self, searcher: Searching, limits: HttpLimits, metrics: HttpMetrics, pulse: Pulse | None = None
    ) -> None:
        super().__init__()
        self._searcher, self._limits, self._metrics = searcher, limits, metrics
        self._pulse = pulse or Pulse("search")
        self._waiting: deque[Job] = deque()
        self._count = 0
        self._times = PassTimes(limits.pass_queries)
        self._changed = threading.Condition()
        self._closing = False

    def stop(self) -> None:
        """End the thread after the pass it is in; what still waits is answered 503."""
        with self._changed:
            self._closing = True
            left, self._count = list(self._waiting), 0
            self._waiting.clear()
            self._changed.notify()
        _deliver([(job, _ending()) for job in left])

    async def ask(self, alias: str, queries: Sequence[Query]) -> Answers:
        """Answers to all queries from one model; raises Problem 503 (full, slow, ending), or QueryError."""
        deadline = time.monotonic() + self._limits.answer_s
        job = Job(alias, queries, deadline, asyncio.get_running_loop().create_future())
        self._enqueue(job)
        try:
            async with asyncio.timeout(self._limits.answer_s):
                return await job.future
        except TimeoutError:
            message = f"there was no answer within {self._limits.answer_s:g} s"
            raise Problem(
                503, "too_slow", message, None, "come again later", retry_after=RETRY_AFTER_S
            ) from None

    def _look(self, jobs: Sequence[Job]) -> None:
        """Between two scans of a pass: the thread lives, and somebody still waits for what it does."""
        self._pulse.beat("searching")
        if not any(_waited_for(job) for job in jobs):
            raise _NobodyWaits

    def _enqueue(self, job: Job) -> None:
        with self._changed:
            if self._closing:
                raise _ending()
            wait_s = self._times.seconds_for(self._count)
            if self._waiting and (
                self._count + len(job.queries) > self._limits.queue or wait_s > self._limits.queue_wait_s
            ):
                self._metrics.record_shed("wait" if wait_s > self._limits.queue_wait_s else "queue")
                message = f"{self._count} queries wait already, for about {wait_s:.1f} s"
                raise Problem(
                    503, "queue_full", message, None, "try again in a moment", retry_after=RETRY_AFTER_S
                )
            self._waiting.append(job)
            self._count += len(job.queries)
            self._metrics.waiting.set(self._count)
            self._changed.notify()

    def _run(self) -> None:
        while (jobs := self._next_pass()) is not None:
            wanted = [job for job in jobs if _waited_for(job)]
            if wanted:
                self._pulse.beat("searching")
                _deliver(self._answer(wanted))
        self._pulse.rest()

    def _next_pass(self) -> list[Job] | None:
        """The next jobs, as soon as there are any; None when the server ends."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._pulse.rest()
                self._changed.wait()
            if self._closing:
                return None
            jobs = take_pass(self._waiting, self._limits.pass_queries)
            self._count -= sum(len(job.queries) for job in jobs)
            self._metrics.waiting.set(self._count)
            return jobs

    def _answer(self, jobs: Sequence[Job]) -> list[tuple[Job, AnswersOrError]]:
        """Every job with its answers or its error; when a pass of several fails, each is tried alone."""
        queries = [query for job in jobs for query in job.queries]
        self._metrics.pass_queries.observe(len(queries))
        began = time.monotonic()
        try:
            answers = self._searcher.search(jobs[0].alias, queries, partial(self._look, jobs))
            with self._changed:
                self._times.took(len(queries), time.monotonic() - began)
        except _NobodyWaits:
            return []
        except Exception as error:  # noqa: BLE001 - the client gets it, and the thread lives on
            if len(jobs) == 1:
                return [(jobs[0], error)]
            return [outcome for job in jobs for outcome in self._answer([job])]
        each = iter(answers.each)
        return [(job, replace(answers, each=[*islice(each, len(job.queries))])) for job in jobs]


def _waited_for(job: Job) -> bool:
    return job.deadline > time.monotonic() and not job.future.done()


def _deliver(outcomes: Sequence[tuple[Job, AnswersOrError]]) -> None:
    """Hand the outcomes to the event loop that waits for them; one that has ended waits no longer."""
    if outcomes:
        with suppress(RuntimeError):
            outcomes[0][0].future.get_loop().call_soon_threadsafe(_resolve, outcomes)


def _resolve(outcomes: Sequence[tuple[Job, AnswersOrError]]) -> None:
    for job, outcome in outcomes:
        if job.future.done():
            continue
        if isinstance(outcome, Exception):
            job.future.set_exception(outcome)
        else:
            job.future.set_result(outcome)


def _ending() -> Problem:
    return Problem(
        503, "ending", "the server ends", None, "ask another one", retry_after=RETRY_AFTER_S, close=True
    )
