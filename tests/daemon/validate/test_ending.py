"""A run that is to leave once caught up leaves, also where nothing will come any more."""

from __future__ import annotations

import os
import sys

import pytest

from daemon.exits import EX_TEMPFAIL, UserError
from daemon.runtime.leaving import learner_is_running
from daemon.runtime.runtime import Signals
from daemon.validate.inputs import short_of_end
from daemon.validate.role import (
    WAIT_LIMIT_SECONDS,
    ValidateOptions,
    WaitLimit,
    run,
)
from streams.open import open_sink
from streams.source import OutRecord

ONCE = ValidateOptions(exit_when_caught_up=True)


class Clock:
    """Moves only while the loop rests."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()

    def wait(self, seconds):
        made.now += seconds
        assert made.now < 100.0 + 20 * WAIT_LIMIT_SECONDS, "it waits for ever"
        return False

    monkeypatch.setattr(Signals, "wait", wait)
    return made


def test_dead_letters_that_cannot_be_written_are_told(world, clock, monkeypatch):
    from streams.errors import StreamUnavailable
    from streams.log.source import LogSink

    world.feed(20)
    world.send([b"no impression"])
    world.publish()
    full = StreamUnavailable("the disk is full")
    monkeypatch.setattr(LogSink, "send", lambda *_: (_ for _ in ()).throw(full))
    with pytest.raises(UserError, match="dead letters are not available: the disk is full; nothing new"):
        run(world.config(), ONCE, clock)


def train(world, count):
    sink = open_sink(world.address)
    sink.send([OutRecord(b"x")] * count)
    sink.close()


def test_an_empty_store_is_told_after_the_patience(world, clock):
    with pytest.raises(
        UserError, match=r"no version in .*checkpoints; nothing new came within 30 s"
    ) as error:
        run(world.config(), ONCE, clock)
    assert error.value.code == EX_TEMPFAIL
    assert "tripletd learn" in error.value.remedy
    assert clock.now == pytest.approx(100.0 + WAIT_LIMIT_SECONDS, abs=1.0)


def test_a_version_short_of_the_end_is_judged_and_then_told(world, clock):
    train(world, 5)
    world.feed(20)
    world.publish()
    world.publish(position=2)
    with pytest.raises(UserError, match="version 1 stops at offset 2 of 5; nothing new") as error:
        run(world.config(), ONCE, clock)
    assert error.value.code == EX_TEMPFAIL
    assert [entry.version for entry in world.ledger.entries() if entry.kind == "KEEP"] == [0, 1]


def test_a_newest_version_that_cannot_be_read_is_told(world, clock):
    world.feed(20)
    world.publish()
    world.publish()
    manifest = next((world.path / "checkpoints").rglob("0000000001/manifest*"))
    manifest.chmod(0o600)
    manifest.write_bytes(b"{}")
    with pytest.raises(UserError, match="version 1 cannot be read"):
        run(world.config(), ONCE, clock)


def test_what_moves_starts_the_patience_again():
    clock = Clock()
    limit = WaitLimit(clock, lambda: False)
    limit.wait_for("more", 1)
    clock.now += WAIT_LIMIT_SECONDS - 1
    limit.wait_for("more", 2)
    clock.now += WAIT_LIMIT_SECONDS - 1
    limit.wait_for("more", 2)
    clock.now += 1
    with pytest.raises(UserError, match="more; nothing new"):
        limit.wait_for("more", 2)


def test_while_learn_is_at_work_there_is_no_end_of_patience():
    clock, working = Clock(), [True]
    limit = WaitLimit(clock, lambda: working[0])
    for _ in range(20):
        limit.wait_for("more", 1)
        clock.now += WAIT_LIMIT_SECONDS - 5
    limit.wait_for("more", 1)
    working[0] = False
    limit.wait_for("more", 1)
    clock.now += WAIT_LIMIT_SECONDS
    with pytest.raises(UserError):
        limit.wait_for("more", 1)


def test_every_partition_counts():
    at = {0: 5, 1: 2}
    assert short_of_end(3, at, {0: (0, 5), 1: (0, 2)}) is None
    assert short_of_end(3, at, {0: (0, 5), 1: (0, 4)}) == "version 3 stops at offset 2 of 4 in partition 1"
    assert short_of_end(3, {}, {0: (0, 1)}) == "version 3 stops at offset 0 of 1"


def test_learn_is_at_work_until_stdin_ends(monkeypatch):
    reader, writer = os.pipe()
    with open(reader, "rb") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert learner_is_running()
        os.close(writer)
        assert not learner_is_running()
