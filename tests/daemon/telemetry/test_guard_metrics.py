"""The recall guard's findings as a scraper reads them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from daemon.serve.metrics import GraphMetrics, GuardMetrics
from daemon.serve.retrieve import GraphStatus, GuardResult
from daemon.serve.retrieve.coverage import GraphState


def test_the_newest_finding_is_shown_and_all_are_counted() -> None:
    registry = CollectorRegistry()
    metrics = GuardMetrics(registry)
    for found in (GuardResult(4, 0.9, ()), GuardResult(None, 1.0, ()), GuardResult(8, 0.97, ())):
        metrics.record(found)
    assert registry.get_sample_value("tripletd_ann_recall") == 0.97
    assert registry.get_sample_value("tripletd_ann_width") == 8
    assert registry.get_sample_value("tripletd_ann_guards_total", {"result": "approximate"}) == 2
    assert registry.get_sample_value("tripletd_ann_guards_total", {"result": "exact"}) == 1
    metrics.record(GuardResult(None, 1.0, ()))
    assert registry.get_sample_value("tripletd_ann_width") == 0


def test_how_graphs_stand_is_asked_when_metrics_are() -> None:
    registry = CollectorRegistry()
    found: list[GraphStatus | None] = [None]
    GraphMetrics(registry, lambda: found[-1])
    assert registry.get_sample_value("tripletd_ann_objects", {"held": "graph"}) == 0
    found.append(GraphStatus((GraphState("a", 90, 80), GraphState("b", 10, 10)), 5, 7, built=2, damaged=1))
    assert registry.get_sample_value("tripletd_ann_objects", {"held": "graph"}) == 90
    assert registry.get_sample_value("tripletd_ann_objects", {"held": "scan"}) == 5
    assert registry.get_sample_value("tripletd_ann_building") == 7
    assert registry.get_sample_value("tripletd_ann_graphs_total", {"result": "built"}) == 2
    assert registry.get_sample_value("tripletd_ann_graphs_total", {"result": "damaged"}) == 1
