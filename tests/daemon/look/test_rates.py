"""Rates, means and quantiles between two statuses of a role; the live numbers made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from daemon.look.live import STATUS, Distribution, LearnStatus, RoleStatus, ServeStatus, numbers_of
from daemon.replica.view import ReplicaStatus
from daemon.serve.http.limits import HttpMetrics
from daemon.serve.metrics import ServeMetrics
from daemon.telemetry import LearnMetrics, ValidateMetrics
from daemon.telemetry.server import Health, status_of


def status(role: str, **numbers: Any) -> RoleStatus:
    who = {"role": role, "version": "1", "checkpoints": None, "began": 0.0, "not_ready": None}
    return STATUS.validate_python(who | numbers)


def test_a_quantile_is_linear_inside_its_bucket() -> None:
    before = Distribution(edges=[1, 2], counts=[10, 10, 10], total=5)
    new = Distribution(edges=[1, 2], counts=[10, 20, 20], total=20).since(before)
    assert (new.count, new.total) == (10, 15)
    assert new.quantile(0.5) == pytest.approx(1.5)
    assert new.quantile(0.99) == pytest.approx(1.99)
    assert new.since(Distribution()) == new  # another process had other edges, or none


def test_a_quantile_in_the_open_bucket_is_its_lower_edge() -> None:
    assert Distribution(edges=[1, 2], counts=[1, 2, 10]).quantile(0.99) == 2.0


def test_an_empty_bucket_between_two_full_ones_moves_no_quantile() -> None:
    assert Distribution(edges=[1, 2, 3], counts=[10, 10, 20, 20]).quantile(0.5) == 1.0


def test_nothing_measured_has_no_quantile_and_no_mean() -> None:
    now = Distribution(edges=[1], counts=[5, 5])
    assert now.since(now).quantile(0.5) is None
    assert Distribution().quantile(0.5) is None
    learned = status("learn", events={"updated": 2}, loss_sum=1.0, loss_count=2)
    assert "learn.loss" not in numbers_of([(0.0, learned), (100.0, learned)])


def test_what_learn_does_per_second_leaves_out_what_was_sent_again() -> None:
    def learn(updated: int, again: int, losses: float) -> RoleStatus:
        events = {"updated": updated, "duplicate": again}
        return status("learn", events=events, lag_events=7, loss_sum=losses, loss_count=updated)

    numbers = numbers_of(
        [(0.0, learn(0, 0, 0)), (90.0, learn(1000, 5, 600)), (100.0, learn(3000, 905, 1600))]
    )
    assert numbers["learn.events"] == 200.0  # over the newest 10 s, not all of it
    assert numbers["learn.lag_events"] == 7.0
    assert numbers["learn.loss"] == 0.5


def test_the_loss_of_the_last_few_events_before_a_pause_is_no_spike() -> None:
    def at(count: int, losses: float) -> RoleStatus:
        return status("learn", events={"updated": count}, loss_sum=losses, loss_count=count)

    busy = [(0.0, at(0, 0)), (40.0, at(1000, 500)), (90.0, at(2000, 1000))]
    assert numbers_of([*busy, (100.0, at(2003, 1012))])["learn.loss"] == pytest.approx(512 / 1003)
    assert numbers_of([*busy, (100.0, at(2200, 1300))])["learn.loss"] == 1.5
    assert "learn.loss" not in numbers_of([*busy, (100.0, at(2000, 1000))])


def test_a_holdout_loss_that_nobody_measured_is_not_told() -> None:
    metrics = ValidateMetrics()
    assert numbers_of([(0.0, status_of(metrics.registry, Health()))]) == {"validate.drifts": 0.0}
    metrics.judged.inc(2)
    metrics.holdout_loss.set(0.3)
    numbers = numbers_of([(0.0, status_of(metrics.registry, Health()))])
    assert numbers == {"validate.drifts": 0.0, "validate.holdout_loss": 0.3}


def test_numbers_that_are_not_known_are_left_out() -> None:
    assert numbers_of([(0.0, status("learn"))]) == {}
    assert numbers_of([(0.0, status("serve"))]) == {}


def test_a_learner_says_what_it_counted() -> None:
    metrics = LearnMetrics()
    metrics.record_dead_letters({"poison": 2})
    metrics.parked.set(1)
    metrics.record_batch(
        np.array([0, 1], np.uint8), np.array([0.5, 0], np.float32), np.zeros(2, np.float32), 0.1
    )
    told = status_of(metrics.registry, Health())
    assert isinstance(told, LearnStatus)
    assert (told.loss_sum, told.loss_count, told.lag_events, told.parked) == (0.5, 2, None, True)
    assert told.line() == "running, parked, 2 events since its start"
    assert numbers_of([(60.0, told)]) == {"learn.dead.poison": 2.0}


def test_freshness_and_latency_are_told_from_a_real_status() -> None:
    metrics = ServeMetrics(["latest"])
    metrics.follow(lambda: [ReplicaStatus("latest", None, None, "", "steps")], lambda: None, dict)
    asked = HttpMetrics(metrics.registry)
    before = serve(metrics.registry)
    metrics.record_freshness("latest", np.array([0.7]), np.array([10]))
    for route in ("/v1/similar", "/v1/similar/batch", "/livez"):
        asked.seconds.labels(route).observe(0.004)
    numbers = numbers_of([(0.0, before), (60.0, serve(metrics.registry))])
    assert numbers["serve.fresh_p50.latest"] == pytest.approx(0.65)
    assert numbers["serve.requests"] == pytest.approx(2 / 60)
    assert 0 < numbers["serve.latency_p99"] < 0.01


def serve(registry: CollectorRegistry) -> ServeStatus:
    told = status_of(registry, Health())
    assert isinstance(told, ServeStatus)
    return told
