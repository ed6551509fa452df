"""Dead letters: sent until they are durable, cut to what a log takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from daemon.dead_letters import ROOM_FOR_HEADERS, fitted, send_durably
from streams.errors import StreamUnavailable
from streams.limits import MAX_RECORD_BYTES
from streams.poison import DeadLetter
from streams.source import OutRecord


class FlakySink:
    """Refuses the first sends."""

    max_record_bytes = MAX_RECORD_BYTES

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.sent: list[OutRecord] = []

    def send(self, records: Sequence[OutRecord]) -> list[tuple[int, int]]:
        if self.refusals:
            self.refusals -= 1
            raise StreamUnavailable("busy")
        self.sent += records
        return []


def letter(value: bytes | None) -> DeadLetter:
    return DeadLetter("t", 0, 7, "not_msgpack", "why", value)


def test_dead_letters_are_sent_until_they_are_durable() -> None:
    sink: Any = FlakySink(2)
    waited: list[Exception] = []
    assert send_durably(sink, [letter(b"x")], lambda seconds, error: bool(waited.append(error)))
    assert (len(waited), len(sink.sent)) == (2, 1)


def test_giving_up_on_dead_letters_is_told() -> None:
    sink: Any = FlakySink(99)
    assert not send_durably(sink, [letter(b"x")], lambda seconds, error: True)
    assert sink.sent == []


def test_a_value_too_long_for_a_dead_letter_is_cut_and_says_so() -> None:
    whole, long = letter(b"x" * 1000), letter(bytes(MAX_RECORD_BYTES))
    assert fitted(whole, MAX_RECORD_BYTES) is whole
    cut = fitted(long, MAX_RECORD_BYTES)
    assert cut.value is not None
    assert len(cut.value) == MAX_RECORD_BYTES - ROOM_FOR_HEADERS
    assert "cut" in cut.detail
    assert fitted(whole, ROOM_FOR_HEADERS + 10).value == b"x" * 10
