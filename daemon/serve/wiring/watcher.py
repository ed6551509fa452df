"""Hears of every flip and every answer, and keeps the account of freshness."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from daemon.replica.settings import Flip
from daemon.serve.freshness import Freshness
from daemon.serve.query import Model

Record = Callable[[str, NDArray[np.float64], NDArray[np.int64]], None]
"""Takes alias, ages in seconds [n], how many events had each [n]."""


class Watcher:
    """One account per alias. What any replica hears from the step log goes into all of them.

    Called by the replicas' threads and by the server's; `now_ms` is the wall clock, as event times are.
    """

    def __init__(
        self,
        aliases: Sequence[str],
        record: Record,
        horizon_s: float,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._accounts = {alias: Freshness(horizon_s) for alias in aliases}
        self._begun: set[str] = set()
        self._record = record
        self._now_ms = now_ms
        self._lock = threading.Lock()

    def flipped(self, flip: Flip) -> None:
        """A model has become the one that answers."""
        model, now_ms = flip.model, self._now_ms()
        with self._lock:
            for account in self._accounts.values():
                account.learned(model.total, flip.event_times, now_ms)
                account.cut(model.total - model.behind)
            if flip.alias not in self._begun:
                self._begun.add(flip.alias)
                self._accounts[flip.alias].begin(model.total)

    def answered(self, alias: str, model: Model) -> None:
        """An answer of `model` is on its way."""
        now_ms = self._now_ms()
        with self._lock:
            ages = self._accounts[alias].answered(model.total, now_ms)
        if ages is not None:
            self._record(alias, ages.seconds, ages.counts)

    def waiting(self) -> dict[str, int]:
        """By alias, learned events that no answer has used yet."""
        with self._lock:
            return {alias: account.waiting for alias, account in self._accounts.items()}
