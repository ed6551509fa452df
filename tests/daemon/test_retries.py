"""Feeding while the stream is away: sent again, given up in time, left at once when asked."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from daemon.feed import Interrupted, Interrupts
from daemon.retries import GIVE_UP_SECONDS, REMIND_SECONDS, RETRY_SECONDS, RetryingSink
from streams.errors import LogMismatch, NothingWritten, StreamUnavailable
from streams.open import ensure_topic, open_sink, open_source
from streams.source import OutRecord, Sink, TopicIdentity, parse_address

RECORDS = [OutRecord(b"a"), OutRecord(b"b")]


class Shaky:
    """A sink that writes, and says so only from the `answers_at`-th send on: in doubt until then."""

    def __init__(self, sink: Sink, answers_at: int, error: Exception | None = None) -> None:
        self.max_record_bytes = sink.max_record_bytes
        self._sink = sink
        self._silent = answers_at
        self._error = error or StreamUnavailable("no answer")

    def identity(self) -> TopicIdentity:
        return self._sink.identity()

    def send(self, records: Sequence[OutRecord]) -> list[tuple[int, int]]:
        written = self._sink.send(records)
        self._silent -= 1
        if self._silent >= 0:
            raise self._error
        return written

    def close(self) -> None:
        self._sink.close()


class Clock:
    """Goes on only while somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


def patient(
    name: str, answers_at: int, error: Exception | None = None
) -> tuple[RetryingSink, Clock, list[str]]:
    address = parse_address(f"memory:{name}")
    ensure_topic(address, 1)
    clock, told = Clock(), list[str]()
    sink = RetryingSink(Shaky(open_sink(address), answers_at, error), clock.wait, clock, told.append)
    return sink, clock, told


def test_what_is_in_doubt_is_sent_again_and_counted(tmp_path: Path) -> None:
    sink, clock, told = patient(f"{tmp_path}", 2)
    assert sink.send(RECORDS) == [(0, 4), (0, 5)]
    assert (sink.sent_again, clock.now) == (4, 2 * RETRY_SECONDS)
    assert ["no answer" in one for one in told] == [True, False]
    assert "takes records again" in told[1]
    assert sink.send(RECORDS) == [(0, 6), (0, 7)]
    assert sink.sent_again == 4
    source = open_source(parse_address(f"memory:{tmp_path}"))
    assert source.bounds() == {0: (0, 8)}


def test_it_gives_up_in_time(tmp_path: Path) -> None:
    sink, clock, _ = patient(f"{tmp_path}", 10**6)
    with pytest.raises(StreamUnavailable):
        sink.send(RECORDS)
    assert GIVE_UP_SECONDS <= clock.now < GIVE_UP_SECONDS + 2 * RETRY_SECONDS


def test_it_tells_again_and_again_what_it_waits_for(tmp_path: Path) -> None:
    sink, _, told = patient(f"{tmp_path}", 10**6)
    with pytest.raises(StreamUnavailable):
        sink.send(RECORDS)
    assert len(told) == GIVE_UP_SECONDS // REMIND_SECONDS
    assert told[-1].endswith("trying again for 15 s")


def test_what_is_known_not_to_be_written_is_not_called_sent_again(tmp_path: Path) -> None:
    """As of a full disk, also where it is left in the middle."""
    sink, _, _ = patient(f"{tmp_path}", 3, NothingWritten("the disk is full"))
    sink.send(RECORDS)
    assert sink.sent_again == 0


def test_another_error_is_not_waited_for(tmp_path: Path) -> None:
    sink, clock, _ = patient(f"{tmp_path}", 1, LogMismatch("re-created"))
    with pytest.raises(LogMismatch):
        sink.send(RECORDS)
    assert (sink.sent_again, clock.now) == (0, 0.0)


def test_a_wait_ends_with_the_signal_that_a_shield_holds_back() -> None:
    interrupts = Interrupts()

    def write() -> None:
        with interrupts.shield():
            os.kill(os.getpid(), signal.SIGTERM)
            interrupts.wait(1e6)

    with interrupts, pytest.raises(Interrupted):
        write()
