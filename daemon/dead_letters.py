"""Dead letters: records that could not be learned from, durable in their topic before a position passes them;
and the newest of them, read back.

Bytes are shown escaped, never unpacked: those who feed a stream choose them. Which records become dead
letters is decided where they are decoded (`streams`) and where they are learned (`daemon.learn.step`).
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace

import structlog

from daemon.retries import BACKGROUND_RETRY_SECONDS, RETRY_SECONDS, until_available
from daemon.runtime.watchdog import BackgroundThread, Pulse
from daemon.text import moment
from streams.errors import StreamError, StreamUnavailable, TopicMissing
from streams.open import open_sink, open_source, prepare_topic
from streams.poison import DeadLetter, dead_letter_record, parse_dead_letter
from streams.source import Address, Headers, OutRecord, Sink, Source

ROOM_FOR_HEADERS = 64 * 1024
"""What a dead letter adds to the refused record: its place, reason and detail, all of bounded length."""
LOOK_SECONDS = 0.05
ANSWER_SECONDS = 10.0  # a write that takes longer is worth a word
STOP_SECONDS = 0.3  # what dead letters get to become durable after a stop

log = structlog.get_logger("tripletd.serve")


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


def _records(letters: Sequence[DeadLetter], sink: Sink) -> list[OutRecord]:
    return [dead_letter_record(fitted(letter, sink.max_record_bytes)) for letter in letters]


def send_durably(sink: Sink, letters: Sequence[DeadLetter], wait: Callable[[float, Exception], bool]) -> bool:
    """Write the letters in order; True once durable. After a restart some may be written twice.

    While the storage is unavailable `wait(seconds, error)` is called between attempts. When it returns True,
    so that no further attempt is made, this returns False: the position must not pass the letters.
    """
    records = _records(letters, sink)
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
    """Writes dead letters in a thread of its own, so that the waiting loop still handles signals. Owns its
    sink.

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


MOST_WAITING = 1000
"""Letters kept while their topic cannot be written; of more, only the count."""
AT_ONCE = 100


class ItemDeadLetters:
    """Counts refused records by reason, and writes those that no earlier reader has written.

    Reading begins at the topic's start each time, so what lies before the position noted by an earlier
    reader has its letter already.
    """

    def __init__(self, opening: Callable[[], Sink]) -> None:
        self._opening = opening
        self._sink: Sink | None = None
        self._waiting: list[DeadLetter] = []
        self._next_try = 0.0
        self.counts: Counter[str] = Counter()
        """Refused records since the start, by reason."""
        self._left_out = 0

    @property
    def unwritten(self) -> int:
        """Letters that their topic has not taken: those that wait for it, and those that found no room; a
        later start writes the latter, since how far was read is not noted as long as there are any.
        """
        return len(self._waiting) + self._left_out

    def add(self, letters: Iterable[DeadLetter], noted: Mapping[int, int]) -> None:
        """Count them, and keep for writing what is not below the noted positions."""
        for letter in letters:
            self.counts[letter.reason] += 1
            if letter.offset < noted.get(letter.partition, 0):
                continue
            if len(self._waiting) < MOST_WAITING:
                self._waiting.append(letter)
            else:
                self._left_out += 1

    def flush(self) -> None:
        """Write what is waiting; where that fails it stays, and a later call tries again."""
        if not self._waiting or time.monotonic() < self._next_try:
            return
        try:
            if self._sink is None:
                self._sink = self._opening()
            while self._waiting:
                batch = self._waiting[:AT_ONCE]
                self._sink.send(_records(batch, self._sink))
                del self._waiting[: len(batch)]
        except StreamError as error:
            log.warning("dead letters of items cannot be written; trying again", problem=str(error))
            self._next_try = time.monotonic() + BACKGROUND_RETRY_SECONDS
            self.close()

    def close(self) -> None:
        """Release the sink."""
        if self._sink is not None:
            with suppress(StreamError):
                self._sink.close()
        self._sink = None


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
