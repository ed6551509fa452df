"""Many requests, one thread: together on the disk, none lost in silence, none without a bound."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from prometheus_client import CollectorRegistry

from daemon.serve.writes.queue import NotWritten, WriteMetrics, WriteQueue
from daemon.serve.writes.spool import SpoolFull, SpoolRecord, click_record
from streams.errors import StreamUnavailable


class Gated:
    """A spool that waits for its gate, and fails as it is told."""

    def __init__(self) -> None:
        self.gate, self.entered = threading.Event(), threading.Event()
        self.appended: list[int] = []
        self.fails: Exception | None = None
        self.closed = False

    def append(self, records: Sequence[SpoolRecord]) -> None:
        self.entered.set()
        assert self.gate.wait(30)
        if self.fails is not None:
            raise self.fails
        self.appended.append(len(records))

    def close(self) -> None:
        self.closed = True


def queue(spool: Gated, most: int = 10) -> WriteQueue:
    return WriteQueue(spool, most, WriteMetrics(CollectorRegistry()))


ONE = [click_record("l", 1, "o")]


def test_what_waits_together_is_written_together() -> None:
    spool = Gated()
    held = queue(spool)
    first = held.put(ONE)
    assert spool.entered.wait(30)
    others = [held.put(ONE * 2) for _ in range(3)]
    assert not first.done()
    spool.gate.set()
    for future in [first, *others]:
        future.result(30)
    assert spool.appended == [1, 6]
    held.stop()
    assert held.ended(30)
    assert spool.closed


def test_more_than_may_wait_are_refused_and_those_inside_are_written() -> None:
    spool = Gated()
    held = queue(spool, most=3)
    first = held.put(ONE * 2)
    assert spool.entered.wait(30)
    with pytest.raises(NotWritten) as refused:
        held.put(ONE * 2)
    assert refused.value.reason == "full"
    second = held.put(ONE)
    spool.gate.set()
    first.result(30)
    second.result(30)
    held.put(ONE * 3).result(30)  # there is room again
    held.stop()
    assert held.ended(30)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (SpoolFull("full"), "spool_full"),
        (OSError(5, "input/output error"), "unavailable"),
        (StreamUnavailable("no broker"), "unavailable"),
        (ZeroDivisionError(), "bug"),
    ],
)
def test_a_failure_is_told_to_those_it_concerns_and_the_next_try_is_made(
    error: Exception, reason: str
) -> None:
    spool = Gated()
    spool.gate.set()
    spool.fails = error
    held = queue(spool)
    with pytest.raises(NotWritten) as failed:
        held.put(ONE).result(30)
    assert failed.value.reason == reason
    spool.fails = None
    held.put(ONE).result(30)
    held.stop()
    assert held.ended(30)


def test_at_the_end_what_waits_is_written_and_nothing_more_is_taken() -> None:
    spool = Gated()
    held = queue(spool)
    first = held.put(ONE)
    held.stop()
    spool.gate.set()
    assert held.ended(30)
    first.result(30)
    with pytest.raises(NotWritten):
        held.put(ONE)
