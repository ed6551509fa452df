"""Dead letters of the roles: durable before a position passes them, written by a thread while the loop
hears signals.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from daemon.runtime.background import BackgroundThread
from daemon.runtime.watchdog import Pulse
from streams.address import Address
from streams.errors import StreamUnavailable, TopicMissing
from streams.open import open_sink, prepare_topic
from streams.poison import DeadLetter, dead_letter_record
from streams.source import Sink

RETRY_SECONDS = 0.5
ROOM_FOR_HEADERS = 64 * 1024
"""What a dead letter adds to the refused record: its place, reason and detail, all of bounded length."""


def open_dead(address: Address) -> Sink:
    """The dead-letter topic as it is; made with one partition where an embedded log has none."""
    try:
        return open_sink(address)
    except TopicMissing:
        if address.scheme == "kafka":
            raise
        prepare_topic(address, 1)
        return open_sink(address)


def fitted(letter: DeadLetter, max_record_bytes: int) -> DeadLetter:
    """The letter as it is, or with its value cut where the added headers would break the record limit."""
    most = max(0, max_record_bytes - ROOM_FOR_HEADERS)
    if letter.value is None or len(letter.value) <= most:
        return letter
    detail = f"{letter.detail} (cut from {len(letter.value)} to {most} bytes)"
    return replace(letter, value=letter.value[:most], detail=detail)


def send_durably(sink: Sink, letters: Sequence[DeadLetter], wait: Callable[[float, Exception], bool]) -> bool:
    """Write the letters in order; True once durable. After a restart some may be written twice.

    While the storage is unavailable `wait(seconds, error)` is called between attempts; it returns True to
    give up, and then so does this, with False: the caller must not let its position pass the letters.
    """
    records = [dead_letter_record(fitted(letter, sink.max_record_bytes)) for letter in letters]
    while records:
        try:
            sink.send(records)
        except StreamUnavailable as error:
            if wait(RETRY_SECONDS, error):
                return False
        else:
            break
    return True


LOOK_SECONDS = 0.05


class Delivery:
    """Letters on their way. `done` is set when they are durable, or when `error` says why they cannot be."""

    def __init__(self, letters: Sequence[DeadLetter]) -> None:
        self.letters = letters
        self.done = threading.Event()
        self.error: BaseException | None = None
        self.trouble: Exception | None = None  # why they are not written yet


class DeadLetterWriter(BackgroundThread):
    """Writes dead letters, one delivery at a time. Owns its sink, and closes it in its thread.

    `fence` raises when another learner has taken over: nothing is sent then.
    """

    name = "letters"

    def __init__(self, sink: Sink, fence: Callable[[], None], pulse: Pulse) -> None:
        super().__init__()
        self._sink = sink
        self._fence = fence
        self._pulse = pulse
        self._orders: queue.SimpleQueue[Delivery | None] = queue.SimpleQueue()
        self._closing = threading.Event()

    def deliver(
        self, letters: Sequence[DeadLetter], give_up: Callable[[Exception | None, float], bool]
    ) -> bool:
        """Write the letters in order; True once they are durable.

        `give_up(trouble, seconds waited)` is asked every `LOOK_SECONDS`; when it says so, this is False: some
        may have been written, and the position must not pass any. Raises what makes writing them impossible.
        """
        if not letters:
            return True
        self._fence()
        delivery = Delivery(letters)
        self._orders.put(delivery)
        began = time.monotonic()
        while not delivery.done.wait(LOOK_SECONDS):
            if give_up(delivery.trouble, time.monotonic() - began):
                return False
        if delivery.error is not None:
            raise delivery.error
        return True

    def stop(self) -> None:
        """Write nothing more; returns at once."""
        self._closing.set()
        self._orders.put(None)

    def _run(self) -> None:
        self._pulse.rest()
        while (delivery := self._orders.get()) is not None and not self._closing.is_set():
            try:
                self._write(delivery)
            except BaseException as error:  # noqa: BLE001 - carried to the main loop, which raises it
                delivery.error = error
            self._pulse.rest()
            delivery.done.set()
        self._sink.close()

    def _write(self, delivery: Delivery) -> None:
        def wait(seconds: float, error: Exception) -> bool:
            delivery.trouble = error
            ended = self._closing.wait(seconds)
            self._pulse.beat("writing dead letters")
            return ended

        self._pulse.beat("writing dead letters")
        if not send_durably(self._sink, delivery.letters, wait):
            delivery.error = InterruptedError("closed before the dead letters were written")
