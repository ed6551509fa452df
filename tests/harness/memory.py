"""How many bytes Python code keeps each time that it is called."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable

TRIALS = 3


def kept_after(action: Callable[[], object], times: int, less_than: int) -> int:
    """Bytes more that are allocated after `times` calls of `action`.

    The least of three trials, or the first that is `less_than` so many: other threads of the process
    allocate, too, such as a Kafka client of another test. What `action` keeps, it keeps in every trial.
    """
    action()
    gc.freeze()  # what was there before is not looked through
    tracemalloc.start()
    least = sys.maxsize
    try:
        for _ in range(TRIALS):
            least = min(least, _growth(action, times))
            if least < less_than:
                break
    finally:
        tracemalloc.stop()
        gc.unfreeze()
    return least


def _growth(action: Callable[[], object], times: int) -> int:
    action()
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(times):
        action()
    gc.collect()
    return tracemalloc.get_traced_memory()[0] - before
