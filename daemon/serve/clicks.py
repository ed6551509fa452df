"""Clicks behind a hit: how often users who asked this, or something near it, took or passed over an object.

The newest records of the training topic are read at the first request for an explanation, and followed while
requests come: without any, there is no cost. What is counted is what the stream says; a served model may have
learned all of it or less.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from daemon.retries import BACKGROUND_RETRY_SECONDS
from daemon.runtime.watchdog import give_way
from daemon.serve.query import HitClicks
from streams.codec import decode_event
from streams.errors import StreamError
from streams.event import PAIR_BELOW, PAIR_SIDES, Event
from streams.feed.triplets import is_drawn
from streams.poison import Poison
from streams.source import Source

RECORDS = 20_000
"""Newest records looked through: some MB of memory, a second to read."""
POLL_RECORDS, POLL_SECONDS = 256, 0.5
REST_SECONDS = 300.0
"""After this long without a request, the topic is not followed until the next one."""
NICE = 10

log = structlog.get_logger("tripletd.serve")


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A triplet by ids. of: its list, or the event itself where it names none. passed_over: None where chance
    drew the skipped object, or it stood below the click: nobody need have seen it then."""

    query: str
    clicked: str | None
    passed_over: str | None
    of: str
    key: str | None


class ClickWindow:
    """The newest `size` triplets, by the id of their query. Any thread."""

    def __init__(self, size: int = RECORDS) -> None:
        self._size = size
        self._order: deque[str | None] = deque()
        self._by_query: dict[str, deque[_Comparison]] = {}
        self._lock = threading.Lock()

    def take(self, event: Event) -> None:
        """One more triplet; the oldest gives way."""
        query = event.query.id
        with self._lock:
            self._order.append(query)
            if query is not None:
                below = event.pair & PAIR_SIDES == PAIR_BELOW
                seen = None if is_drawn(event) or below else event.skipped.id
                of = event.impression or event.id
                one = _Comparison(query, event.clicked.id, seen, of, event.key)
                self._by_query.setdefault(query, deque()).append(one)
            if len(self._order) > self._size:
                self._drop(self._order.popleft())

    def clicks_on(
        self, query: str | None, near: Sequence[str], objects: Sequence[str], key: str | None = None
    ) -> list[HitClicks]:
        """Clicks and skips of each object. near: ids of queries like this one. key: count what was learned
        for this key alone; None: for all."""
        with self._lock:
            own = [] if query is None else self._of(query, key)
            others = [one for other in near if other != query for one in self._of(other, key)]
            records = len(self._order)
        here, near_here = _lists(own), _lists(others)
        found = []
        for wanted in objects:
            clicked, passed_over = (None, None) if query is None else here(wanted)
            found.append(HitClicks(clicked, passed_over, *near_here(wanted), records))
        return found

    def _of(self, query: str, key: str | None) -> list[_Comparison]:
        held = self._by_query.get(query, ())
        return [one for one in held if key is None or one.key == key]

    def _drop(self, query: str | None) -> None:
        if query is None:
            return
        held = self._by_query[query]
        held.popleft()
        if not held:
            del self._by_query[query]


class RecentClicks:
    """A `ClickWindow` over the end of a topic, kept current by a thread while requests come.

    opening: the training topic. `clicks_on` never waits: None until the end of the topic has been read once.
    """

    def __init__(self, opening: Callable[[], Source]) -> None:
        self._opening = opening
        self._window: ClickWindow | None = None
        self._asked_at = float("-inf")
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._lock = threading.Lock()

    def clicks_on(
        self, query: str | None, near: Sequence[str], objects: Sequence[str], key: str | None = None
    ) -> list[HitClicks] | None:
        """As `ClickWindow.clicks_on`; None while the topic is being read, or cannot be."""
        with self._lock:
            self._asked_at = time.monotonic()
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._run, name="tripletd-clicks", daemon=True)
                self._thread.start()
            window = self._window
        return None if window is None else window.clicks_on(query, near, objects, key)

    def close(self) -> None:
        """End the thread; it is not waited for."""
        self._stop.set()

    def _run(self) -> None:
        try:
            self._keep_up()
        finally:
            with self._lock:  # whatever ended it, who asks next starts over
                if self._thread is threading.current_thread():
                    self._window = self._thread = None

    def _keep_up(self) -> None:
        give_way(NICE)
        said = ""
        while self._is_wanted():
            try:
                self._follow()
            except StreamError as error:
                self._window = None
                if str(error) != said:
                    said = str(error)
                    log.warning("cannot follow which clicks were learned", problem=said)
                self._stop.wait(BACKGROUND_RETRY_SECONDS)

    def _is_wanted(self) -> bool:
        """Whether the calling thread may continue; once asked to end, it stays ended."""
        with self._lock:
            mine = self._thread is threading.current_thread()
            wanted = mine and not self._stop.is_set() and time.monotonic() - self._asked_at < REST_SECONDS
            if mine and not wanted:
                self._window = self._thread = None
            return wanted

    def _follow(self) -> None:
        source = self._opening()
        try:
            bounds = source.bounds()
            share = -(-RECORDS // max(1, len(bounds)))
            source.assign({p: max(first, end - share) for p, (first, end) in bounds.items()})
            window = ClickWindow()
            while self._is_wanted():
                batch = source.poll(POLL_RECORDS, POLL_SECONDS)
                for value in () if batch is None else batch.values:
                    with suppress(Poison):  # a dead letter of the learner's
                        window.take(decode_event(value, check_values=False))
                reached = source.reached()
                if self._window is None and all(reached.get(p, 0) >= end for p, (_, end) in bounds.items()):
                    self._window = window
        finally:
            source.close()


def _lists(comparisons: Sequence[_Comparison]) -> Callable[[str], tuple[int, int]]:
    """Tells in how many lists an object was clicked, and in how many passed over; one pass for all."""
    clicked = Counter(name for name, _ in {(one.clicked, one.of) for one in comparisons})
    passed_over = Counter(name for name, _ in {(one.passed_over, one.of) for one in comparisons})
    return lambda wanted: (clicked[wanted], passed_over[wanted])
