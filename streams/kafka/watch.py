"""Looks every few seconds whether the topic is still the one that was opened, beside the reading."""

from __future__ import annotations

import threading

from streams.errors import StreamError, StreamUnavailable
from streams.kafka.admin import Admin
from streams.source import TopicIdentity

PERIOD_S = 2.0
_LEAVE_S = 1.0


class Watch:
    """A thread that asks the cluster for the topic's identity; what it finds is raised by the reader."""

    def __init__(self, admin: Admin, identity: TopicIdentity) -> None:
        self._admin, self._identity = admin, identity
        self._stop = threading.Event()
        self._fault: StreamError | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to look, unless that has begun."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="kafka-watch", daemon=True)
            self._thread.start()

    def raise_lasting(self) -> None:
        """Raise what will not pass by itself: another topic, another cluster, no permission."""
        if self._fault is not None and not self._fault.retriable:
            raise self._fault

    def raise_any(self) -> None:
        """Raise also that the cluster does not answer."""
        if self._fault is not None:
            raise self._fault

    def stop(self) -> None:
        """End the thread; close the admin first, so that it waits for nothing."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_LEAVE_S)

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_S):
            try:
                self._admin.check_whole(self._identity)
                self._fault = None
            except StreamUnavailable as error:
                self._fault = error
            except StreamError as error:
                self._fault = error
                return
