"""The numbers `validate` exports."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from daemon.telemetry.build import add_build_info

_JUDGE_EDGES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


class ValidateMetrics:
    """Gauges and counters of one validator; `registry` goes to the HTTP server."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self._measures = Gauge(
            "tripletd_holdout_map",
            "Holdout measure by kind, for the newest and best version, version 0, the shown order",
            ["kind", "which"],
            registry=registry,
        )
        self._decision = Gauge(
            "tripletd_holdout_decision", "Decision measure, for the same", ["which"], registry=registry
        )
        self._symmetry = Gauge(
            "tripletd_symmetry_index",
            "||sym(W)||^2 / ||W||^2, 1 for a symmetric W, for the same",
            ["which"],
            registry=registry,
        )
        self._versions = Gauge(
            "tripletd_judged_version", "Version number, for the same", ["which"], registry=registry
        )
        self.judged = Counter("tripletd_judged_versions", "Versions judged", registry=registry)
        self.passed_over = Counter(
            "tripletd_passed_over_versions", "Versions never judged: a newer one was there", registry=registry
        )
        self.judge_seconds = Histogram(
            "tripletd_judge_seconds", "Seconds per judgment", buckets=_JUDGE_EDGES, registry=registry
        )
        self.window = Gauge(
            "tripletd_window_impressions", "Holdout impressions in the window", registry=registry
        )
        self._skipped = Counter(
            "tripletd_skipped_impressions", "Holdout impressions not usable", ["reason"], registry=registry
        )
        self.drift = Counter("tripletd_drift", "Drifts detected on the holdout loss", registry=registry)
        self.holdout_loss = Gauge("tripletd_holdout_loss", "Best version's holdout loss", registry=registry)
        self.best_holds = Gauge(
            "tripletd_best_holds",
            "1 while the best version is above version 0 on the newest window",
            registry=registry,
        )
        self._keys = Gauge(
            "tripletd_judged_keys",
            "Keys of the newest judged version by verdict, where there is one model per key",
            ["verdict"],
            registry=registry,
        )
        self.stopped = Gauge("tripletd_stopped", "1 after a STOP verdict", registry=registry)
        ProcessCollector(registry=registry)
        add_build_info(registry, "validate")

    def record_measures(self, which: str, version: int | None, measures: Mapping[str, float | None]) -> None:
        """Set the measures of the "newest", "best" or "zero" version, or of the "shown_order".

        The label is not `role`: that is what Prometheus is told of the whole process. Values that are None
        are left out.
        """
        if version is not None:
            self._versions.labels(which).set(version)
        alone = {"decision": self._decision, "symmetry_index": self._symmetry}
        for kind, value in measures.items():
            if value is None:
                continue
            if kind in alone:
                alone[kind].labels(which).set(value)
            else:
                self._measures.labels(kind, which).set(value)

    def record_keys(self, by_verdict: Mapping[str, int]) -> None:
        """Set how many keys of the newest judged version have each verdict."""
        for verdict, count in by_verdict.items():
            self._keys.labels(verdict).set(count)

    def record_skipped(self, by_reason: Mapping[str, int]) -> None:
        """Add impressions that could not be judged, by reason."""
        for reason, count in by_reason.items():
            self._skipped.labels(reason).inc(count)
