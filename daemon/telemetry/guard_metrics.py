"""What the recall guard of approximate search found, as numbers."""

from __future__ import annotations

from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge


class Guarded(Protocol):
    """What is shown of one finding; width: cells searched, None for exact search."""

    @property
    def width(self) -> int | None: ...
    @property
    def recall(self) -> float: ...


class GuardMetrics:
    """Families that stay at nothing where approximate search is off. `record` may be called by any thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._recall = Gauge(
            "tripletd_ann_recall",
            "Share of the exact top 10 that approximate search found, when last measured; 1 for exact search",
            registry=registry,
        )
        self._cells = Gauge(
            "tripletd_ann_cells", "Cells searched since then; 0 for exact search", registry=registry
        )
        self._guards = Counter(
            "tripletd_ann_guards",
            "Parts measured at a swap, by how they are searched",
            ["result"],
            registry=registry,
        )
        for result in ("approximate", "exact"):
            self._guards.labels(result)

    def record(self, found: Guarded) -> None:
        """Show this finding, the newest."""
        self._recall.set(found.recall)
        self._cells.set(found.width or 0)
        self._guards.labels("exact" if found.width is None else "approximate").inc()
