"""Dead letters made durable before the position passes them, however long the storage takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from streams.deadletter import DeadLetter, dead_letter_record
from streams.errors import StreamUnavailable
from streams.source import MAX_RECORD_BYTES, Sink

RETRY_SECONDS = 0.5
ROOM_FOR_HEADERS = 64 * 1024
"""What a dead letter adds to the refused record: its place, reason and detail, all of bounded length."""


def fitted(letter: DeadLetter) -> DeadLetter:
    """The letter as it is, or with its value cut where the added headers would break the record limit."""
    most = MAX_RECORD_BYTES - ROOM_FOR_HEADERS
    if letter.value is None or len(letter.value) <= most:
        return letter
    detail = f"{letter.detail} (cut from {len(letter.value)} to {most} bytes)"
    return replace(letter, value=letter.value[:most], detail=detail)


def send_durably(sink: Sink, letters: Sequence[DeadLetter], wait: Callable[[float, Exception], bool]) -> bool:
    """Write the letters in order; True once durable. After a restart some may be written twice.

    While the storage is unavailable `wait(seconds, error)` is called between attempts; it returns True to
    give up, and then so does this, with False: the caller must not let its position pass the letters.
    """
    records = [dead_letter_record(fitted(letter)) for letter in letters]
    while records:
        try:
            sink.send(records)
        except StreamUnavailable as error:
            if wait(RETRY_SECONDS, error):
                return False
        else:
            break
    return True
