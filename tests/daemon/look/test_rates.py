"""Rates, means and quantiles between two readings; the live numbers made of them."""

from __future__ import annotations

import math

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram

from daemon.look.live import Reading, RoleStatus, mean_between, numbers_of, quantile_between, total, was_reset
from daemon.telemetry.server import Health, status_document

FRESH = "tripletd_event_to_served_seconds"


def buckets(counts: dict[str, float], alias: str = "latest") -> dict[str, float]:
    return {f'{FRESH}_bucket{{alias="{alias}",le="{edge}"}}': count for edge, count in counts.items()}


def test_a_total_leaves_out_only_what_carries_the_labels() -> None:
    reading = {'t{a="1",b="2"}': 3.0, 't{a="1",b="3"}': 4.0, "tt": 9.0}
    assert total(reading, "t") == 7.0
    assert total(reading, "t", {"b": "2"}) == 4.0
    assert math.isnan(total(reading, "other"))


def test_a_quantile_is_linear_inside_its_bucket() -> None:
    before, now = buckets({"1": 10, "2": 10, "+Inf": 10}), buckets({"1": 10, "2": 20, "+Inf": 20})
    assert quantile_between(before, now, FRESH, {"alias": "latest"}, 0.5) == pytest.approx(1.5)
    assert quantile_between(before, now, FRESH, {"alias": "latest"}, 0.99) == pytest.approx(1.99)


def test_a_quantile_in_the_open_bucket_is_its_lower_edge() -> None:
    now = buckets({"1": 1, "2": 2, "+Inf": 10})
    assert quantile_between({}, now, FRESH, {}, 0.99) == 2.0


def test_nothing_told_has_no_quantile_and_no_mean() -> None:
    now = buckets({"1": 5, "+Inf": 5})
    assert math.isnan(quantile_between(now, now, FRESH, {}, 0.5))
    assert math.isnan(quantile_between({}, {}, FRESH, {}, 0.5))
    assert math.isnan(mean_between({"h_sum": 1.0, "h_count": 2.0}, {"h_sum": 1.0, "h_count": 2.0}, "h"))
    assert mean_between({"h_sum": 1.0, "h_count": 2.0}, {"h_sum": 4.0, "h_count": 4.0}, "h") == 1.5


def test_a_counter_that_fell_tells_another_process_a_gauge_does_not() -> None:
    assert was_reset({"x_total": 5.0}, {"x_total": 4.0})
    assert was_reset({'x_count{a="1"}': 5.0}, {'x_count{a="1"}': 0.0})
    assert not was_reset({"gauge": 5.0, "x_total": 5.0}, {"gauge": 4.0, "x_total": 5.0})
    assert not was_reset({"x_total": 5.0}, {})


def test_what_learn_does_per_second_leaves_out_what_was_sent_again() -> None:
    def reading(updated: float, again: float, losses: float) -> dict[str, float]:
        events = {'tripletd_events_total{outcome="updated"}': updated}
        events['tripletd_events_total{outcome="duplicate"}'] = again
        lag = {'tripletd_lag_events{partition="0"}': 3.0, 'tripletd_lag_events{partition="1"}': 4.0}
        return events | lag | {"tripletd_loss_sum": losses, "tripletd_loss_count": updated}

    readings = [(0.0, reading(0, 0, 0)), (90.0, reading(1000, 5, 600)), (100.0, reading(3000, 905, 1600))]
    numbers = numbers_of("learn", readings)
    assert numbers["learn.events"] == 200.0  # over the newest 10 s, not all of it
    assert numbers["learn.lag_events"] == 7.0
    assert numbers["learn.loss"] == 0.5


def test_a_holdout_loss_that_nobody_measured_is_not_told() -> None:
    page = {"tripletd_holdout_loss": 0.0, "tripletd_judged_versions_total": 0.0, "tripletd_drift_total": 0.0}
    assert numbers_of("validate", [(0.0, page)]) == {"validate.drifts": 0.0}
    judged = page | {"tripletd_holdout_loss": 0.3, "tripletd_judged_versions_total": 2.0}
    assert numbers_of("validate", [(0.0, judged)])["validate.holdout_loss"] == 0.3


def test_numbers_that_are_not_known_are_left_out() -> None:
    assert numbers_of("learn", [(0.0, {})]) == {}
    assert numbers_of("serve", [(0.0, {})]) == {}
    assert numbers_of("somebody", [(0.0, {"x": 1.0})]) == {}


def reading(registry: CollectorRegistry) -> Reading:
    status = RoleStatus.of(status_document(registry, Health()))
    return {**status.numbers, **status.buckets}


def test_freshness_is_told_by_alias_from_a_real_status() -> None:
    registry = CollectorRegistry()
    seconds = Histogram(FRESH, "x", ["alias"], buckets=(0.5, 1.0, 2.0), registry=registry)
    letters = Counter("tripletd_dead_letters", "x", ["reason"], registry=registry)
    seconds.labels("latest")
    before = reading(registry)
    for _ in range(10):
        seconds.labels("latest").observe(0.7)
    letters.labels("poison").inc(2)
    now = reading(registry)
    numbers = numbers_of("serve", [(0.0, before), (60.0, now)])
    assert numbers["serve.fresh_p50.latest"] == pytest.approx(0.75)
    assert numbers_of("learn", [(60.0, now)])["learn.dead.poison"] == 2.0
    assert not any("bucket" in name for name in status_document(registry, Health())["numbers"])
