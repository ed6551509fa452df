"""`tripletd` with one thing made slow or wrong: `python -m tests.harness.kill.patched WHAT[,WHAT] learn ...`.

The product has no hooks: what it calls is replaced here, in the process that a test has started.
"""

from __future__ import annotations

import datetime
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from checkpoints import commit, ledger
from daemon.cli import main

SLOW_SECONDS = 6.0
DAY_S = 86_400
VERSIONS_A_DAY = 10


def never(*args: Any, **kwargs: Any) -> None:
    """Does not come back."""
    threading.Event().wait()


def slowly(call: Callable[..., Any], first: int = 2) -> Callable[..., Any]:
    """The call, which takes long from the `first` time on."""
    calls = 0

    def late(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == first:
            time.sleep(SLOW_SECONDS)
        return call(*args, **kwargs)

    return late


def from_the_nth(call: Callable[..., Any], then: Callable[..., Any], nth: int = 2) -> Callable[..., Any]:
    """The call at first, `then` from the `nth` time on."""
    calls = 0

    def either(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        return (call if calls < nth else then)(*args, **kwargs)

    return either


def unless(silent: threading.Event, call: Callable[..., Any]) -> Callable[..., Any]:
    """The call until `silent`, afterwards nothing that comes back."""

    def asked(*args: Any, **kwargs: Any) -> Any:
        return never() if silent.is_set() else call(*args, **kwargs)

    return asked


def stuck_poll() -> None:
    """The reader's second poll does not return."""
    from streams.log.source import LogSource

    LogSource.poll = from_the_nth(LogSource.poll, never)  # type: ignore[method-assign]


def stuck_loop() -> None:
    """The loop does not come back from showing itself."""
    from daemon.learn.observe import Observer

    Observer.lag = from_the_nth(Observer.lag, never)  # type: ignore[method-assign]


def stuck_housekeeping() -> None:
    """The stream's answer to the second question for its bounds never comes."""
    from streams.log.source import LogSource

    LogSource.commit = never  # type: ignore[method-assign]


def silent_source() -> None:
    """Once something is learned nothing that the stream is asked comes back: worse than a frozen broker."""
    from daemon.learn.state import Progress
    from streams.log.source import LogSource

    silent = threading.Event()
    advance = Progress.advance

    def advance_and_fall_silent(progress: Progress, applied: Any) -> None:
        advance(progress, applied)
        silent.set()

    Progress.advance = advance_and_fall_silent  # type: ignore[method-assign]
    for name in ("poll", "bounds", "commit"):
        setattr(LogSource, name, unless(silent, getattr(LogSource, name)))


def silent_sink() -> None:
    """No dead letter is ever written, nor refused."""
    from streams.log.source import LogSink

    LogSink.send = never  # type: ignore[method-assign]


def slow_step() -> None:
    """The learner's second batch takes long, as a projection does."""
    from learners.oasis import Oasis

    Oasis.learn_many = slowly(Oasis.learn_many)  # type: ignore[method-assign]


def fatal_record() -> None:
    """Decoding a batch with the event e120 in it is a segmentation fault."""
    import faulthandler

    from daemon.learn.step import Assembler

    assemble = Assembler.__call__

    def fault(self: Assembler, batch: Any) -> Any:
        if any(b"e120" in (value or b"") for value in batch.values):
            faulthandler._sigsegv()  # type: ignore[attr-defined]
        return assemble(self, batch)

    Assembler.__call__ = fault  # type: ignore[method-assign]


def fatal_line() -> None:
    """Reading a followed record with `fatal` in it is a segmentation fault."""
    import faulthandler

    from streams.feed.follow import records

    document = records._document

    def fault(record: Any) -> Any:
        if type(record.value) is bytes and b"fatal" in record.value:
            faulthandler._sigsegv()  # type: ignore[attr-defined]
        return document(record)

    records._document = fault


def slow_fsync() -> None:
    """One sync of the disk takes long."""
    os.fsync = slowly(os.fsync, 12)


def mute_source() -> None:
    """Nothing that the stream is asked comes back, from the first question on."""
    from streams.log.source import LogSource

    LogSource.bounds = never  # type: ignore[method-assign]


def patient_start() -> None:
    """A start waits for another learner's end for as long as that takes."""
    from daemon.learn import publishing

    publishing.WAIT_SECONDS = 3600.0


def jumping_clock() -> None:
    """The wall clock is set forward by a day once some versions are written, and back by two after as many
    more: however long they take, some are written on each day."""
    stamped, real = 0, time.time

    def shift() -> float:
        return (0.0, DAY_S, -DAY_S)[min(2, stamped // VERSIONS_A_DAY)]

    class Jumping(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Jumping:
            return cls.fromtimestamp(time.time(), tz)

    class Counting(Jumping):
        """The clock that versions are stamped by."""

        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Jumping:
            nonlocal stamped
            stamped += 1
            return super().now(tz)

    time.time = lambda: real() + shift()
    time.time_ns = lambda: int(time.time() * 1e9)
    commit.datetime, ledger.datetime = Counting, Jumping  # type: ignore[attr-defined]


PATCHES = {
    patch.__name__: patch
    for patch in (
        stuck_poll,
        stuck_loop,
        stuck_housekeeping,
        silent_source,
        silent_sink,
        slow_step,
        fatal_record,
        fatal_line,
        slow_fsync,
        mute_source,
        patient_start,
        jumping_clock,
    )
}

if __name__ == "__main__":
    for name in sys.argv[1].split(","):
        PATCHES[name]()
    sys.exit(main(sys.argv[2:]))
