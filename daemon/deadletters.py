"""The dead-letter topic of both roles: letters are durable before a position passes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

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
