"""Metrics of the role that merges the versions of shards."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

from daemon.telemetry.metrics import FolderMetrics, add_build_info


class MergeMetrics:
    """Counters and gauges of one merger; `registry` goes to the HTTP server."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self.merges = counter("tripletd_merges", "Merged versions written")
        self.failures = counter("tripletd_merge_failures", "Merged versions that could not be written")
        self.seconds = gauge("tripletd_merge_seconds", "Seconds that the last merge took, until durable")
        self.version = gauge("tripletd_version", "Newest version written")
        self.watermark = gauge("tripletd_watermark_seconds", "Newest event time merged, Unix seconds")
        self._waiting = gauge(
            "tripletd_shard_unmerged_records", "Records in a shard's newest version, not merged", ["shard"]
        )
        self._age = gauge("tripletd_shard_version_age_seconds", "Age of a shard's newest version", ["shard"])
        self.folder = FolderMetrics(registry)
        ProcessCollector(registry=registry)
        add_build_info(registry, "merge")

    def record_shard(self, shard: int, unmerged: int, age_s: float) -> None:
        """What a shard's newest version holds that no merged one does, and how old that version is."""
        self._waiting.labels(str(shard)).set(unmerged)
        self._age.labels(str(shard)).set(age_s)
