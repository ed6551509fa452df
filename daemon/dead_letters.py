"""Dead letters: records that could not be learned from, durable in their topic before a position passes them;
and the newest of them, read back.

Bytes are shown escaped, never unpacked: those who feed a stream choose them. Which records become dead
letters is decided where they are decoded (`streams`) and where they are learned (`daemon.learn.step`).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from daemon.retries import RETRY_SECONDS, until_available
from daemon.runtime.watchdog import BackgroundThread, Pulse
from daemon.text import moment
from streams.address import Address
from streams.errors import StreamUnavailable, TopicMissing
from streams.open import open_sink, open_source, prepare_topic
from streams.poison import DeadLetter, dead_letter_record, parse_dead_letter
from streams.source import Headers, Sink, Source

ROOM_FOR_HEADERS = 64 * 1024
"""What a dead letter adds to the refused record: its place, reason and detail, all of bounded length."""
LOOK_SECONDS = 0.05
ANSWER_SECONDS = 10.0  # a write that takes longer is worth a word
STOP_SECONDS = 0.3  # what dead letters get to become durable after a stop


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

    While the storage is unavailable `wait(seconds, error)` is called between attempts. When it returns True,
    so that no further attempt is made, this returns False: the position must not pass the letters.
    """
    records = [dead_letter_record(fitted(letter, sink.max_record_bytes)) for letter in letters]
    try:
        if records:
            until_available(lambda: sink.send(records), lambda error: wait(RETRY_SECONDS, error))
    except StreamUnavailable:
        return False
    return True


@dataclass(slots=True, eq=False)
class Delivery:
    """Letters on their way. `done` is set once they are durable, or once `error` says why they cannot be."""

    letters: Sequence[DeadLetter]
    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None
    trouble: Exception | None = None  # why they are not written yet


class DeadLetterWriter(BackgroundThread):
    """Writes dead letters in a thread of its own, so that the waiting loop hears signals. Owns its sink.

    `fence` raises when another learner has taken over: nothing is sent then.
    """

    name = "letters"

    def __init__(self, sink: Sink, fence: Callable[[], None], pulse: Pulse) -> None:
        super().__init__()
        self._sink, self._fence, self._pulse = sink, fence, pulse
        self._orders: queue.SimpleQueue[Delivery | None] = queue.SimpleQueue()
        self._closing = threading.Event()

    def deliver(
        self,
        letters: Sequence[DeadLetter],
        report: Callable[[str | None], None],
        stopping: Callable[[], bool],
    ) -> bool:
        """Write the letters in order; True once they are durable.

        While they are not, `report` is called every `LOOK_SECONDS` with the reason, None while there is none.
        False when they are not durable `STOP_SECONDS` after `stopping` became true: some may have been
        written, and the position must not pass any. Raises what makes writing them impossible.
        """
        if not letters:
            return True
        self._fence()
        delivery = Delivery(letters)
        self._orders.put(delivery)
        began, stop_at = time.monotonic(), float("inf")
        while not delivery.done.wait(LOOK_SECONDS):
            now = time.monotonic()
            late = f"no answer within {ANSWER_SECONDS:.0f} s" if now - began > ANSWER_SECONDS else None
            why = delivery.trouble or late
            report(f"dead letters cannot be written: {why}" if why else None)
            if stopping():
                stop_at = min(stop_at, now + STOP_SECONDS)
            if now >= stop_at:
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
            except BaseException as error:  # noqa: BLE001 - raised in the main loop
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


HEAD_BYTES = 40
MOST_TEXT = 300  # characters of what a header says
POLL_RECORDS = 500
POLL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ShownLetter:
    """One dead letter: the refused record's place, when it was refused, why, its size and first bytes.

    `partition` and `offset` are None, and `detail` says why, for a record that is no dead letter. `size` is
    None for a record without a value.
    """

    topic: str
    partition: int | None
    offset: int | None
    time: str
    reason: str
    detail: str
    size: int | None
    head: str


def newest_letters(stream: Address, last: int) -> list[ShownLetter]:
    """The newest `last` dead letters of a stream, oldest first; [] where an embedded log has none yet.

    Raises StreamError.
    """
    try:
        source = open_source(stream.dead)
    except TopicMissing:
        if stream.scheme == "kafka":
            raise
        open_source(stream).close()  # raises where there is no such stream at all
        return []
    with closing(source):
        found = sorted(_read(source, last), key=lambda one: one[0])  # of all partitions, by time
    return [letter for _, letter in found[-last:]]


def escaped(value: bytes | None) -> str:
    """The first bytes, printable ASCII as it is and all else as \\xNN."""
    return "".join(
        chr(b) if 32 <= b < 127 and b != 92 else f"\\x{b:02x}" for b in (value or b"")[:HEAD_BYTES]
    )


def _read(source: Source, last: int) -> Iterator[tuple[int, ShownLetter]]:
    """(time in ms, letter) of what each partition held last; ends where nothing comes any more."""
    bounds = source.bounds()
    source.assign({p: max(earliest, end - last) for p, (earliest, end) in bounds.items()})
    while any(source.reached()[p] < end for p, (_, end) in bounds.items()):
        batch = source.poll(POLL_RECORDS, POLL_SECONDS)
        if batch is None:
            return
        for at, value, headers in zip(batch.timestamps, batch.values, batch.headers, strict=True):
            yield at, _shown(at, value, headers)


def _shown(at: int, value: bytes | None, headers: Headers) -> ShownLetter:
    time, size, head = moment(at), None if value is None else len(value), escaped(value)
    try:
        letter = parse_dead_letter(value, headers)
    except ValueError as error:
        return ShownLetter("", None, None, time, "", str(error)[:MOST_TEXT], size, head)
    texts = letter.reason[:MOST_TEXT], letter.detail[:MOST_TEXT]
    return ShownLetter(letter.topic, letter.partition, letter.offset, time, *texts, size, head)
