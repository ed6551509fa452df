"""Looks at a running role's memory, shows it as metrics, and says in the log that it runs out before it does.

What grows while a role runs: models by key as keys come, a support set as it fills, the objects and graphs of
a server, the window of a validator. The configuration's check counts all of these full, but objects that are
put later, and other programs on the machine, nobody can count beforehand.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import structlog
from prometheus_client import CollectorRegistry, Gauge

from daemon.config import Config
from daemon.config.learners import SupportKeys
from daemon.memory.room import MemoryBound, memory_room, resident_bytes
from daemon.runtime.watchdog import BackgroundThread
from daemon.text import size, span

LOOK_S = 5.0
WINDOW_S = 600.0
"""Growth is judged over the newest so many seconds."""
LEAST_S = 60.0
"""Over less than this it is not judged at all: a version that is read comes at once."""
AHEAD_S = 1800.0
"""Growth that ends the room within so many seconds is told."""
LOW = 0.05
"""So is room of less than this share of the limit."""
RECOVERED = 2.0
"""Told again only after there was so many times as much room as when it was told."""


@dataclass(frozen=True, slots=True)
class MemoryLook:
    """One look: at (s, any clock), bytes that this process holds, bytes that can still be had."""

    at: float
    held: int
    free: int


@dataclass(frozen=True, slots=True)
class MemoryWarning:
    """Memory runs out: within how many seconds at this rate, None where it does not grow but is low."""

    seconds: float | None
    per_minute: float


class GrowthJudge:
    """Whether memory is about to run out, by the newest looks. Pure: no clock is read. rate: bytes/s by which
    the process grows, 0 where it does not."""

    def __init__(self) -> None:
        self.rate = 0.0
        self._looks: deque[MemoryLook] = deque()
        self._told: int | None = None

    def judge(self, look: MemoryLook, limit: int) -> MemoryWarning | None:
        """The warning to give now; None where there is none, or it was given and things are as they were."""
        self._looks.append(look)
        while look.at - self._looks[0].at > WINDOW_S:
            self._looks.popleft()
        self.rate = self._growth()
        if self._told is not None and look.free >= RECOVERED * self._told:
            self._told = None
        left = self.left_s(look.free)
        runs_out = left < AHEAD_S
        if not (runs_out or look.free < LOW * limit):
            return None
        if self._told is not None and look.free > self._told / RECOVERED:
            return None
        self._told = look.free
        return MemoryWarning(left if runs_out else None, 60 * self.rate)

    def left_s(self, free: int) -> float:
        """Seconds until `free` bytes are taken at this rate."""
        return free / self.rate if self.rate > 0 else math.inf

    def _growth(self) -> float:
        """The lesser rate of the two halves of the window: what came at once, such as a version that was
        read, is in one of them alone."""
        first, last = self._looks[0], self._looks[-1]
        if last.at - first.at < LEAST_S:
            return 0.0
        half = (first.at + last.at) / 2
        middle = min(self._looks, key=lambda one: abs(one.at - half))
        if not first.at < middle.at < last.at:
            return 0.0
        before = (middle.held - first.held) / (middle.at - first.at)
        return max(0.0, min(before, (last.held - middle.held) / (last.at - middle.at)))


def what_grows(config: Config, role: str) -> str:
    """What to do about a role that grows, by what may be growing there."""
    told = []
    if role in ("learn", "merge", "validate"):
        if config.keys.slots:
            told.append(
                f"models by key: lower keys.slots ({config.keys.slots:,}), or give up silent keys by "
                'keys.when_full = "evict"; learner.algorithm = "loreta" takes least for each key'
            )
        if isinstance(config.learner, SupportKeys):
            told.append(f"a support set: lower learner.objects ({config.learner.objects:,})")
        if entries := getattr(config.learner, "entries", 0):
            told.append(f"touched entries of W: lower learner.entries ({entries:,})")
    if role == "serve":
        told.append(
            "objects that are put: take out those that are shown no more, or serve from several hosts; "
            'serve.ann = "off" spares the graphs; fewer serve.aliases or serve.key_models spare models'
        )
    if role == "validate":
        told.append(f"lists that are judged by: lower validate.window ({config.validate.window:,})")
    told.append("`tripletd check` says what the configuration needs, and what would need less")
    return "; ".join(told)


class MemoryWatch(BackgroundThread):
    """The thread that looks. remedy: what to do, asked only when there is a warning."""

    name = "memory"
    end_s = 0.5

    def __init__(
        self,
        registry: CollectorRegistry,
        remedy: Callable[[], str],
        look_s: float = LOOK_S,
        root: Path = Path("/"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._remedy, self._look_s, self._root, self._clock = remedy, look_s, root, clock
        self._judge, self._ending = GrowthJudge(), threading.Event()
        about = "Memory that can still be had, by what bounds it most: machine, control group or process"
        self._free = Gauge("tripletd_memory_free_bytes", about, registry=registry)
        about = "Memory there is of what bounds it most"
        self._limit = Gauge("tripletd_memory_limit_bytes", about, registry=registry)
        about = "Seconds until memory runs out at the rate of the last minutes; +Inf while it does not grow"
        self._left = Gauge("tripletd_memory_left_seconds", about, registry=registry)
        self._left.set(math.inf)

    def stop(self) -> None:
        """Ask the thread to end."""
        self._ending.set()

    def look(self) -> MemoryBound | None:
        """Look once."""
        room = memory_room(self._root)
        if room is None:
            return None
        now = MemoryLook(self._clock(), resident_bytes(self._root), room.free)
        self._free.set(room.free)
        self._limit.set(room.limit)
        found = self._judge.judge(now, room.limit)
        self._left.set(self._judge.left_s(room.free))
        if found is not None:
            left = {} if found.seconds is None else {"in": span(found.seconds)}
            structlog.get_logger("tripletd.memory").warning(
                "memory runs out",
                free=size(room.free),
                of=f"{size(room.limit)} ({room.name})",
                held=size(now.held),
                per_minute=size(int(found.per_minute)),
                remedy=self._remedy(),
                **left,
            )
        return room

    def _run(self) -> None:
        while True:
            self.look()
            if self._ending.wait(self._look_s):
                return


def watch_memory(stack: ExitStack, registry: CollectorRegistry, config: Config, role: str) -> None:
    """Watch this process until `stack` ends."""
    watch = MemoryWatch(registry, lambda: what_grows(config, role))
    stack.callback(watch.close)
    watch.start()
