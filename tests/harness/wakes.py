"""How often the kernel has let a thread sleep: what a role at rest costs, whatever else a machine does."""

from __future__ import annotations

import os
import time
from pathlib import Path


def sleeps(pid: int, thread: int) -> int | None:
    """How often a thread of a process has gone to sleep so far; None for one that has ended."""
    try:
        status = Path(f"/proc/{pid}/task/{thread}/status").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return None
    for line in status.splitlines():
        if line.startswith("voluntary_ctxt_switches:"):
            return int(line.split()[1])
    raise AssertionError("the kernel does not count")


def wakes_a_second(pid: int, seconds: float, threads: list[int] | None = None) -> float:
    """How often its threads (all that live throughout; or these) are woken, on average over so long."""
    before = {thread: sleeps(pid, thread) for thread in threads or _threads(pid)}
    began = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    both = [(count, sleeps(pid, one)) for one, count in before.items()]
    return sum(now - then for then, now in both if then is not None and now is not None) / took


def _threads(pid: int) -> list[int]:
    return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
