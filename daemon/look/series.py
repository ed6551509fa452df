"""The newest hour of the live numbers of every role: one bounded ring, filled by one thread."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from daemon.look.live import QUANTILE_SECONDS, RoleStatus, numbers_of
from daemon.runtime.watchdog import BackgroundThread

EVERY_SECONDS = 2.0
KEPT = 1800
"""Samples: one hour."""
MOST_NAMES = 96
"""Numbers that are kept; those first seen later are left out. Names come from closed lists: a guard."""


Ask: TypeAlias = Callable[[], RoleStatus | None]
"""What a role says of itself; None when it does not answer."""


@dataclass(frozen=True, slots=True)
class RoleState:
    """Whether a role answered the last time, when it last did (Unix seconds), why it is not ready.

    down: why it does not run, as reported by `up`; None where it runs, or no `up` is known. folder: a message
    about the checkpoint folder, None where there is none.
    """

    role: str
    answers: bool
    seen: float | None
    not_ready: str | None
    down: str | None = None
    folder: str | None = None


@dataclass(frozen=True, slots=True)
class Samples:
    """`times` Unix seconds, ascending; `values` by name, as long, None where nothing was known."""

    times: list[float]
    values: dict[str, list[float | None]]


class Series(BackgroundThread):
    """A ring of the numbers of each role; `start()` samples until `close()`.

    `trouble`: why roles do not run, for those that do not; asked only while one does not answer.

    Memory: `kept` x `MOST_NAMES` float64 (1.4 MB) and one minute of each role's readings. After `close` what
    was sampled can still be read.
    """

    name = "series"

    def __init__(
        self,
        roles: Mapping[str, Ask],
        every: float = EVERY_SECONDS,
        kept: int = KEPT,
        trouble: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        super().__init__()
        self.every, self._trouble, self._roles = every, trouble, dict(roles)
        self._times: npt.NDArray[np.float64] = np.zeros(kept)
        self._ring: npt.NDArray[np.float64] = np.full((kept, MOST_NAMES), np.nan)
        self._columns: dict[str, int] = {}
        self._count = 0
        self._readings: dict[str, deque[tuple[float, RoleStatus]]] = {role: deque() for role in roles}
        self._states = {role: RoleState(role, False, None, None) for role in roles}
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Sample no more."""
        self._stopping.set()

    def states(self) -> list[RoleState]:
        """Every role, in the order given."""
        with self._lock:
            return list(self._states.values())

    def newest(self) -> Mapping[str, float]:
        """The numbers of the last sample."""
        samples = self.after(-math.inf, most=1)
        return {name: values[-1] for name, values in samples.values.items() if values[-1] is not None}

    def sampled(self) -> float | None:
        """When the newest sample was taken, Unix seconds; None before the first."""
        with self._lock:
            return float(self._times[(self._count - 1) % len(self._times)]) if self._count else None

    def after(self, moment: float, most: int | None = None) -> Samples:
        """Samples later than `moment` (Unix seconds), the newest `most`; only names that have a value."""
        with self._lock:
            kept = len(self._times)
            rows = np.arange(max(0, self._count - kept), self._count) % kept
            rows = rows[self._times[rows] > moment]
            rows = rows if most is None else rows[-most:]
            times, table = self._times[rows].tolist(), self._ring[rows]
            columns = dict(self._columns)
        known = {name: table[:, column] for name, column in columns.items()}
        values = {
            name: [None if math.isnan(v) else v for v in column.tolist()]
            for name, column in known.items()
            if not np.isnan(column).all()
        }
        return Samples(times, values)

    def sample(self, moment: float) -> None:
        """Ask every role once, as of `moment` (Unix seconds)."""
        numbers: dict[str, float] = {}
        states = dict[str, RoleState]()
        for role, ask in self._roles.items():
            status = ask()
            readings = self._readings[role]
            _add(readings, moment, status)
            if readings:
                numbers |= numbers_of(readings)
            seen, why, folder = self._states[role].seen, None, None
            if status is not None:
                seen, why, folder = moment, status.not_ready, status.folder_message()
            states[role] = RoleState(role, status is not None, seen, why, folder=folder)
        gone = [role for role, state in states.items() if not state.answers]
        down = self._trouble() if gone else {}
        with self._lock:
            self._states = states | {role: replace(states[role], down=down.get(role)) for role in gone}
        self._keep(moment, numbers)

    def _keep(self, moment: float, numbers: Mapping[str, float]) -> None:
        with self._lock:
            row = self._count % len(self._times)
            self._times[row] = moment
            self._ring[row] = np.nan
            for name, value in numbers.items():
                column = self._columns.setdefault(name, len(self._columns))
                if column < MOST_NAMES:
                    self._ring[row, column] = value
                else:
                    del self._columns[name]
            self._count += 1

    def _run(self) -> None:
        while True:
            self.sample(time.time())
            if self._stopping.wait(self.every):
                return


def _add(readings: deque[tuple[float, RoleStatus]], moment: float, status: RoleStatus | None) -> None:
    """Keep the newest minute of one process; a role that does not answer, or was restarted, starts over."""
    if status is None or (readings and readings[-1][1].began != status.began):
        readings.clear()
    if status is not None:
        readings.append((moment, status))
    while readings and moment - readings[0][0] > QUANTILE_SECONDS + EVERY_SECONDS:
        readings.popleft()
