"""The threads of a role: background work with a name, a bound and an end, and the watchdog that sees to them.

It ends a process with a stuck thread, and reports to systemd. Every background thread is a daemon: a disk or
broker that never answers does not hold the process when it ends.

The watchdog depends on nothing that could be stuck with the others: it takes no lock of theirs, calls no
client and writes no log; it reads two attributes per watched thread. It counts its own turns, not a clock:
a process that was suspended (SIGSTOP, a closed laptop) is not silent. A thread that computes or waits for a
disk says so beforehand (`Pulse.patient`), for that takes as long as it takes.

sd_notify is one datagram of KEY=VALUE lines over $NOTIFY_SOCKET (man 3 sd_notify); a library for it would be
longer than this.
"""

from __future__ import annotations

import faulthandler
import os
import socket
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress

from daemon.exits import EX_SOFTWARE
from daemon.runtime.in_hand import last_words

SLICE_SECONDS = 0.02


class BackgroundThread(ABC):
    """A named thread that runs `_run` from `start` on and ends soon after `stop`."""

    name: str
    end_s = 5.0
    """How long `close` waits for the end, seconds."""

    def __init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"tripletd-{self.name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @abstractmethod
    def stop(self) -> None:
        """Ask the thread to end; returns at once."""

    def ended(self, timeout_s: float) -> bool:
        """Wait for the thread up to `timeout_s`; whether it has ended."""
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def close(self) -> None:
        """Ask the thread to end, and wait for that up to `end_s`."""
        self.stop()
        self.ended(self.end_s)

    @abstractmethod
    def _run(self) -> None:
        """The work of the thread, to its end."""


def end_all(
    threads: Sequence[BackgroundThread], limit_s: Callable[[list[BackgroundThread]], float]
) -> list[BackgroundThread]:
    """Stop all threads, then wait for them; those that did not end in time.

    `limit_s` gives the longest wait in seconds since the stop, for the threads that are still running. It is
    asked every `SLICE_SECONDS`, so it may shrink meanwhile.
    """
    began, running = time.monotonic(), list(threads)
    for thread in running:
        thread.stop()
    while running := [thread for thread in running if not thread.ended(SLICE_SECONDS)]:
        if time.monotonic() - began > limit_s(running):
            break
    return running


def give_way(nice: int) -> None:
    """Lower the priority of the calling thread, where the system knows priorities of threads."""
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)


TURN_S = 0.5
DUMP_SECONDS = 5.0  # a disk may hang, and nobody read standard error: the end must come all the same


class Pulse:
    """One thread's signs of life: written by that thread alone, read by the watchdog."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.beats = 0
        self.doing = "starting"
        self.is_patient = True

    def beat(self, doing: str) -> None:
        """The thread moves; from now on it does something that ends by itself within seconds."""
        self.doing, self.is_patient = doing, False
        self.beats += 1

    @contextmanager
    def patient(self, doing: str) -> Iterator[None]:
        """Around what may take any time by its nature: computing, or waiting for a disk."""
        before, self.doing, self.is_patient = (self.doing, self.is_patient), doing, True
        try:
            yield
        finally:
            self.doing, self.is_patient = before
            self.beats += 1

    def rest(self) -> None:
        """The thread has ended, or waits for work without a limit: silence means nothing."""
        self.doing, self.is_patient = "resting", True
        self.beats += 1


class Watchdog:
    """Watches pulses from a thread of its own; a context manager.

    Args:
        stuck_after_s: silence of one thread after which the process is ended.
        feed: called every turn in which nobody is near that limit (systemd's watchdog).
        bark: ends the process; gets the name of the thread, what it does and the seconds of silence.
    """

    def __init__(
        self,
        stuck_after_s: float,
        feed: Callable[[], None] = lambda: None,
        bark: Callable[[str, str, float], None] | None = None,
    ) -> None:
        self._stuck_after_s, self._feed = stuck_after_s, feed
        self._bark = bark or dump_and_exit
        self._pulses: list[Pulse] = []
        self._seen: dict[Pulse, tuple[int, int]] = {}  # beats, and own turns since they changed
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tripletd-watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ending.set()
        self._thread.join()

    def watch(self, name: str) -> Pulse:
        """A pulse to be kept beating; until its first beat its silence means nothing."""
        pulse = Pulse(name)
        self._pulses.append(pulse)
        return pulse

    def silent(self) -> str | None:
        """Which thread has been silent for half the limit, in words; None when all move."""
        for pulse in self._pulses:
            seconds = self._silence(pulse)
            if seconds >= self._stuck_after_s / 2:
                return f"{pulse.name} has not moved for {seconds:.0f} s ({pulse.doing})"
        return None

    def turn(self) -> None:
        """One look at every pulse; barks at the first that is stuck."""
        for pulse in self._pulses:
            beats, turns = self._seen.get(pulse, (-1, 0))
            moved = pulse.beats != beats or pulse.is_patient
            self._seen[pulse] = (pulse.beats, 0 if moved else turns + 1)
            if self._silence(pulse) >= self._stuck_after_s:
                self._bark(pulse.name, pulse.doing, self._silence(pulse))
        if self.silent() is None:
            self._feed()

    def _silence(self, pulse: Pulse) -> float:
        return self._seen.get(pulse, (0, 0))[1] * TURN_S

    def _run(self) -> None:
        while not self._ending.wait(TURN_S):
            self.turn()


def dump_and_exit(name: str, doing: str, seconds: float) -> None:
    """Last words and every thread's stack, then the end (70), whether or not a disk or reader takes them."""
    words = threading.Thread(target=last_words, args=(f"stuck: {name} ({doing})",), daemon=True)
    try:
        for writer in words, threading.Thread(target=_dump, args=(name, doing, seconds), daemon=True):
            writer.start()
            writer.join(DUMP_SECONDS)
    finally:
        os._exit(EX_SOFTWARE)


def _dump(name: str, doing: str, seconds: float) -> None:
    text = (
        f"tripletd: stuck: {name} has not moved for {seconds:.0f} s ({doing}); the stacks of all threads:\n"
    )
    with suppress(OSError, ValueError):
        os.write(2, text.encode())
        faulthandler.dump_traceback(file=sys.__stderr__ or 2, all_threads=True)


SEND_SECONDS = 0.5
"""How long a message is tried while the service manager reads none. Not by the socket's own timeout: an
unconnected one counts as writable all the while, and would be asked without a rest."""
_PAUSE_S = 0.02
SOCKET, WATCHDOG_USEC, WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"


class Notifier:
    """Reports to the service manager, if there is one. A failure to do so never disturbs the role."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = _address(environ.get(SOCKET, ""))
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if self._address else None
        if self._socket is not None:
            self._socket.setblocking(False)
        self._feed_every_s = _feeding(environ)
        self._fed_at = float("-inf")

    @staticmethod
    def of_this_process(environ: MutableMapping[str, str] = os.environ) -> Notifier:
        """For the main process of a service; what it starts does not see the socket."""
        notifier = Notifier(environ)
        for name in (SOCKET, WATCHDOG_USEC, WATCHDOG_PID):
            environ.pop(name, None)
        return notifier

    def ready(self) -> None:
        """Start-up, or a reload, is over."""
        self._tell("READY=1")

    def reloading(self) -> None:
        """A reload begins; `ready` ends it. The time is the monotonic clock's, as the protocol asks."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        """The role finishes its work and ends."""
        self._tell("STOPPING=1")

    def status(self, text: str) -> None:
        """One line for `systemctl status`."""
        self._tell("STATUS=" + " ".join(text.split()))

    def alive(self) -> None:
        """Feed the watchdog where the service asks for one (WatchdogSec=), as often as it needs."""
        now = time.monotonic()
        if self._feed_every_s is not None and now - self._fed_at >= self._feed_every_s:
            self._fed_at = now
            self._tell("WATCHDOG=1")

    def _tell(self, *lines: str) -> None:
        if self._socket is None or self._address is None:
            return
        deadline = time.monotonic() + SEND_SECONDS
        with suppress(OSError):  # a full or closed socket: the next message may arrive, or systemd is gone
            while True:
                try:
                    self._socket.sendto("\n".join(lines).encode(), self._address)
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        return
                    time.sleep(_PAUSE_S)
                else:
                    return


def _feeding(environ: Mapping[str, str]) -> float | None:
    """Seconds between two feedings, a quarter of what systemd waits; None when it does not watch us."""
    limit, owner = environ.get(WATCHDOG_USEC, ""), environ.get(WATCHDOG_PID, "")
    if not limit.isdecimal() or owner not in ("", str(os.getpid())):
        return None
    return int(limit) / 4e6


def _address(text: str) -> str | None:
    """A path, or a name in the abstract namespace (written with @); None for anything else."""
    if text.startswith("@"):
        return "\0" + text[1:]
    return text if text.startswith("/") else None
