"""The recall guard's findings as a scraper reads them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from daemon.serve.metrics import GuardMetrics
from daemon.serve.retrieve import GuardResult


def test_the_newest_finding_is_shown_and_all_are_counted() -> None:
    registry = CollectorRegistry()
    metrics = GuardMetrics(registry)
    for found in (GuardResult(4, 0.9, ()), GuardResult(None, 1.0, ()), GuardResult(8, 0.97, ())):
        metrics.record(found)
    assert registry.get_sample_value("tripletd_ann_recall") == 0.97
    assert registry.get_sample_value("tripletd_ann_cells") == 8
    assert registry.get_sample_value("tripletd_ann_guards_total", {"result": "approximate"}) == 2
    assert registry.get_sample_value("tripletd_ann_guards_total", {"result": "exact"}) == 1
    metrics.record(GuardResult(None, 1.0, ()))
    assert registry.get_sample_value("tripletd_ann_cells") == 0
