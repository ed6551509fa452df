"""Dead letters are written by a thread of their own: the loop waits for them, but hears signals meanwhile."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence

from daemon.deadletters import send_durably
from daemon.learn.threads.part import Part
from daemon.process.watchdog import Pulse
from streams.poison import DeadLetter
from streams.source import Sink

LOOK_SECONDS = 0.05


class Delivery:
    """Letters on their way. `done` is set when they are durable, or when `error` says why they cannot be."""

    def __init__(self, letters: Sequence[DeadLetter]) -> None:
        self.letters = letters
        self.done = threading.Event()
        self.error: BaseException | None = None
        self.trouble: Exception | None = None  # why they are not written yet


class Letters(Part):
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
