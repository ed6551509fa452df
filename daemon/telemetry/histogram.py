"""A Prometheus histogram fed by whole arrays: one binning per batch, not one call per event."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

Floats = npt.NDArray[np.floating]


class ArrayHistogram(Collector):
    """Counts of values per bucket, cumulative as Prometheus wants them.

    Args:
        name: metric name with its base unit, without suffix.
        documentation: help text.
        edges: ascending upper bounds; a value equal to an edge falls below it (`le`). +Inf is added.
        registry: where it registers itself.
    """

    def __init__(self, name: str, documentation: str, edges: Sequence[float], registry: CollectorRegistry):
        self._name, self._documentation = name, documentation
        self._bins = _Bins(edges)
        registry.register(self)

    def observe_many(self, values: Floats) -> None:
        """Add an array [n]; values that are not finite are left out (the step refused them)."""
        self._bins.add(values[np.isfinite(values)])

    def observe_mean(self, total: float, count: int) -> None:
        """Add `count` observations known only by their total, each at the mean; none when count is 0."""
        if count > 0:
            self._bins.add(np.array([total / count]), np.array([count]))

    def describe(self) -> Iterator[HistogramMetricFamily]:
        """The family without samples: lets the registry check names without collecting."""
        yield HistogramMetricFamily(self._name, self._documentation)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """The family with its cumulative buckets and sum."""
        family = HistogramMetricFamily(self._name, self._documentation)
        buckets, total = self._bins.cumulative()
        family.add_metric([], buckets=buckets, sum_value=total)
        yield family


class ArrayHistograms(Collector):
    """The same by the values of one label, given as `label=[values]`; all are shown from the start."""

    def __init__(
        self,
        name: str,
        documentation: str,
        edges: Sequence[float],
        registry: CollectorRegistry,
        **label: Sequence[str],
    ):
        self._name, self._documentation = name, documentation
        ((self._label, values),) = label.items()
        self._bins = {value: _Bins(edges) for value in values}
        registry.register(self)

    def observe(self, value: str, values: Floats, counts: npt.NDArray[np.integer]) -> None:
        """Add finite `values` [n] to the histogram of this label value, `counts` [n] times each."""
        self._bins[value].add(values, counts)

    def describe(self) -> Iterator[HistogramMetricFamily]:
        """The family without samples."""
        yield HistogramMetricFamily(self._name, self._documentation, labels=[self._label])

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """The family, each label value with its cumulative buckets and sum."""
        family = HistogramMetricFamily(self._name, self._documentation, labels=[self._label])
        for value, bins in self._bins.items():
            buckets, total = bins.cumulative()
            family.add_metric([value], buckets=buckets, sum_value=total)
        yield family


class _Bins:
    """Counts per bucket and the sum, safe to add to from several threads."""

    def __init__(self, edges: Sequence[float]) -> None:
        self._edges = np.asarray(edges, dtype=np.float64)
        self._labels = [*(repr(float(edge)) for edge in edges), "+Inf"]
        self._counts = np.zeros(len(self._labels), dtype=np.int64)
        self._sum = 0.0
        self._lock = threading.Lock()

    def add(self, values: Floats, counts: npt.NDArray[np.integer] | None = None) -> None:
        # In the values' own precision: float32 0.1 is above float64 0.1, yet belongs in the bucket "0.1".
        edges = self._edges.astype(values.dtype)
        places = np.searchsorted(edges, values, side="left")
        added = np.bincount(places, counts, minlength=len(self._counts)).astype(np.int64)
        total = float((values if counts is None else values * counts).sum(dtype=np.float64))
        with self._lock:
            self._counts += added
            self._sum += total

    def cumulative(self) -> tuple[list[tuple[str, float]], float]:
        with self._lock:
            counts, total = np.cumsum(self._counts).tolist(), self._sum
        return list(zip(self._labels, map(float, counts), strict=True)), total
