"""Every metric and label that a rule or a panel names is one that a role exports."""

from __future__ import annotations

import re
from itertools import chain

import numpy as np
import pytest
import yaml
from prometheus_client import CollectorRegistry

from daemon.memory.watch import MemoryWatch
from daemon.replica.view import CarryError, ModelId, ReplicaStatus
from daemon.serve.http.limits import HttpMetrics
from daemon.serve.metrics import GraphMetrics, GuardMetrics, ServeMetrics
from daemon.telemetry import LearnMetrics, ValidateMetrics
from daemon.telemetry.metrics import StepLogMetrics
from daemon.up.restarts import RoleReport
from daemon.up.supervisor import UpMetrics
from tests.daemon.serve.test_serve_metrics import Items
from tests.deploy.expressions import dashboard, expressions, labels_in, metrics_in, rules
from tests.deploy.programs import DEPLOY

ADDED = {"instance", "job", "role", "le", "alertname", "alertstate"}
"""Labels that come from Prometheus, from targets.yml, or with every histogram."""
_PLACEHOLDER = re.compile(r"\{\{\s*\$labels\.(\w+)\s*\}\}|\{\{(\w+)\}\}")


def registries() -> list[CollectorRegistry]:
    learn, validate, serve = LearnMetrics(), ValidateMetrics(), ServeMetrics(["latest"])
    StepLogMetrics(learn.registry, ("queue",))
    HttpMetrics(serve.registry)
    GuardMetrics(serve.registry)
    GraphMetrics(serve.registry, lambda: None)
    model, carried = ModelId(3, 4, 5, 6), CarryError(0.0, 0.0, 1.0, 2, 0.1)
    counts = {"reason": 1}
    state = ReplicaStatus("latest", model, 1.0, "", "steps", counts, counts, counts, {"load": 1.0}, carried)
    serve.follow(lambda: [state], Items, lambda: {"latest": 0})
    serve.record_freshness("latest", np.array([1.0]), np.array([1]))
    up = UpMetrics("checkpoints")
    MemoryWatch(learn.registry, str)
    up.set_reports([RoleReport("learn", "down", 65, "records expired", 1)])
    return [learn.registry, validate.registry, serve.registry, up.registry]


@pytest.fixture(scope="module")
def known() -> tuple[set[str], set[str]]:
    """Names of all series, and of all labels."""
    names: set[str] = set()
    labels: set[str] = set(ADDED)
    for registry in registries():
        names |= set(registry._names_to_collectors)
        for collector in registry._collector_to_names:
            labels |= set(getattr(collector, "_labelnames", ()))
        for sample in chain.from_iterable(family.samples for family in registry.collect()):
            names.add(sample.name)
            labels |= set(sample.labels)
    return names, labels


def test_no_series_has_a_label_that_prometheus_gives_its_target() -> None:
    """Prometheus would rename it exported_..., and rules and panels would read the target's."""
    targets = yaml.safe_load((DEPLOY / "prometheus" / "targets" / "host.yml").read_text())
    given = {"job", "instance"}.union(*(group["labels"] for group in targets))
    for registry in registries():
        for family in registry.collect():
            if family.name != "tripletd_build":  # says the same of itself
                taken = {label for sample in family.samples for label in sample.labels}
                taken |= set(getattr(registry._names_to_collectors.get(family.name), "_labelnames", ()))
                assert not taken & given, family.name


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_what_is_named_exists(known: tuple[set[str], set[str]], where: str, expression: str) -> None:
    names, labels = known
    assert metrics_in(expression) <= names
    assert labels_in(expression) <= labels
    assert metrics_in(expression) or "up{" in expression or "ALERTS{" in expression


def test_texts_only_name_labels_that_their_expression_keeps() -> None:
    for rule in rules():
        wanted = {a or b for text in rule["annotations"].values() for a, b in _PLACEHOLDER.findall(text)}
        kept = labels_in(rule["expr"]) | {"instance", "role"}
        if " by " not in rule["expr"]:
            kept |= {"alias", "reason", "of_role"}
        assert wanted <= kept, rule["alert"]
        assert rule["annotations"].keys() == {"summary", "remedy"}
        assert rule["labels"]["severity"] in ("page", "ticket")


def test_legends_only_name_labels_that_their_expression_keeps() -> None:
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            wanted = {a or b for a, b in _PLACEHOLDER.findall(target["legendFormat"])}
            assert wanted <= labels_in(target["expr"]), panel["title"]


def test_a_name_that_no_role_exports_would_be_told(known: tuple[set[str], set[str]]) -> None:
    names, labels = known
    wrong = 'sum by (topic) (rate(tripletd_lag_evnts{alias="latest"}[5m]))'
    assert metrics_in(wrong) - names == {"tripletd_lag_evnts"}
    assert labels_in(wrong) - labels == {"topic"}
