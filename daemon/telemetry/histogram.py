"""A Prometheus histogram fed by whole arrays: one binning per batch, not one call per event."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry


class ArrayHistogram(Collector):
    """Counts of values per bucket, cumulative as Prometheus wants them.

    Args:
        name: metric name with its base unit, without suffix.
        documentation: help text.
        edges: ascending upper bounds; a value equal to an edge falls below it (`le`). +Inf is added.
        registry: where it registers itself.
    """

    def __init__(self, name: str, documentation: str, edges: Sequence[float], registry: CollectorRegistry):
        self._name = name
        self._documentation = documentation
        self._edges = np.asarray(edges, dtype=np.float64)
        self._labels = [*(repr(float(edge)) for edge in edges), "+Inf"]
        self._counts = np.zeros(len(self._labels), dtype=np.int64)
        self._sum = 0.0
        self._lock = threading.Lock()
        registry.register(self)

    def observe_many(self, values: npt.NDArray[np.floating]) -> None:
        """Add an array [n]; values that are not finite are left out (the step refused them)."""
        finite = values[np.isfinite(values)]
        # In the values' own precision: float32 0.1 is above float64 0.1, yet belongs in the bucket "0.1".
        edges = self._edges.astype(finite.dtype)
        counts = np.bincount(np.searchsorted(edges, finite, side="left"), minlength=len(self._counts))
        total = float(finite.sum(dtype=np.float64))
        with self._lock:
            self._counts += counts
            self._sum += total

    def observe_mean(self, total: float, count: int) -> None:
        """Add `count` observations known only by their total, each at the mean; none when count is 0."""
        if count <= 0:
            return
        place = int(np.searchsorted(self._edges, total / count, side="left"))
        with self._lock:
            self._counts[place] += count
            self._sum += total

    def describe(self) -> Iterator[HistogramMetricFamily]:
        """The family without samples: lets the registry check names without collecting."""
        yield HistogramMetricFamily(self._name, self._documentation)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """The family with its cumulative buckets and sum."""
        with self._lock:
            cumulative, total = np.cumsum(self._counts).tolist(), self._sum
        buckets = list(zip(self._labels, map(float, cumulative), strict=True))
        family = HistogramMetricFamily(self._name, self._documentation)
        family.add_metric([], buckets=buckets, sum_value=total)
        yield family
