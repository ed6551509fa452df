"""One learner per checkpoint folder: asked for at the start, and looked after while it runs.

On one host the second learner is refused at its start, and told who is there; `--take-over` starts it all the
same, for a first one that is frozen or unknown. Across hosts the claim of the newer one holds the older off.
Either way both say so at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import structlog

from checkpoints import BlobStore
from checkpoints.lock import WriterLock
from daemon.exits import EX_TEMPFAIL, UserError
from daemon.learn.publishing import Fence

WAIT_SECONDS = 3.0
"""A learner that was told to stop ends within two seconds: who comes right after it waits so long."""
_LOOK_SECONDS = 0.1

log = structlog.get_logger("tripletd.learn")


@runtime_checkable
class LockingStore(Protocol):
    """A store whose writer can hold off others on the same host."""

    def writer_lock(self) -> WriterLock:
        """Its lock, not taken yet."""
        ...


def take_place(
    stack: ExitStack, store: BlobStore, place: str, take_over: bool, stopping: Callable[[float], bool]
) -> WriterLock | None:
    """The lock of the folder `place`, released by `stack`; None for a store without one.

    With `take_over` it is taken once the other process is gone. `stopping(seconds)` waits; True ends the
    attempt. Raises UserError (75: another start may succeed) while another learner on this host has it.
    """
    if not isinstance(store, LockingStore):
        return None
    lock = store.writer_lock()
    stack.callback(lock.release)
    deadline = time.monotonic() + WAIT_SECONDS
    while not lock.take():
        if take_over:
            log.warning("taking over from another learner on this host", process=lock.holder(), place=place)
            break
        if time.monotonic() >= deadline:
            lock.tell_refused()
            raise _refused(place, lock.holder())
        if stopping(_LOOK_SECONDS):
            break
    return lock


def _refused(place: str, holder: int | None) -> UserError:
    who = "another learner" if holder is None else f"another learner (process {holder})"
    return UserError(
        f"{place}: {who} on this host writes to this checkpoint folder",
        "let it go on, or stop it and start this one again; if it hangs or nobody knows it, start this one "
        "with --take-over: the other one then leaves without writing",
        EX_TEMPFAIL,
    )


@dataclass(frozen=True, slots=True)
class PlaceWatch:
    """Looks, once a second, whether the folder is still this learner's. lock: None for a store without."""

    fence: Fence
    lock: WriterLock | None

    def __call__(self) -> None:
        """Raises UserError (73) once another learner has taken over; says who wanted to start here."""
        self.fence.check_next()
        if self.lock is None:
            return
        self.lock.take()
        for process in self.lock.refused():
            log.warning(
                "another learner wanted to start on this checkpoint folder, and was refused", process=process
            )
