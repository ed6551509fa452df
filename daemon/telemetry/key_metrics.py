"""The numbers of one model per key; those refused are in `tripletd_dead_letters` by their reasons."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge


class KeyMetrics:
    """All 0 where one model learns all events."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._used = Gauge("tripletd_keys_used", "Keys that have a model", registry=registry)
        self._slots = Gauge("tripletd_keys_slots", "Most keys that can have a model", registry=registry)
        self.evicted = Counter(
            "tripletd_keys_evicted", "Keys whose model was given up for another key's", registry=registry
        )

    def follow(self, slots: int, used: Callable[[], int]) -> None:
        """Ask `used` for the keys that have a model whenever it is read, in any thread."""
        self._slots.set(slots)
        self._used.set_function(used)
