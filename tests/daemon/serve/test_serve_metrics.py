"""The metrics of serve as a scraper and `tripletd status` read them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from daemon.look.live import ServeStatus
from daemon.replica.view import CarryError, ModelId, ReplicaStatus
from daemon.serve.metrics import FRESHNESS_EDGES, ServeMetrics
from daemon.telemetry.server import Health, status_of

AT = 1_800_000_000.0


@dataclass
class Items:
    ready: bool = True
    items: int = 70
    parts: int = 2
    nbytes: int = 4096
    puts: int = 9
    removes: int = 3
    dead: dict[str, int] = field(default_factory=lambda: {"wrong_dim": 2})
    unwritten: int = 4


def state(alias: str, model: ModelId | None) -> ReplicaStatus:
    return ReplicaStatus(
        alias,
        model,
        AT,
        "",
        "steps",
        refusals={"damaged": 2, "not_finite": 0},
        fallbacks={"gap": 1},
        swaps={"version": 3, "steps": 200},
        swap_seconds={"load": 0.2, "flip": 1e-6},
        carried=CarryError(1e-4, 2e-4, 0.99, 300, 0.5),
    )


def page(metrics: ServeMetrics) -> dict[str, float]:
    """Every sample by its name and labels."""
    found = {}
    for sample in (sample for family in metrics.registry.collect() for sample in family.samples):
        labels = ",".join(f'{key}="{value}"' for key, value in sorted(sample.labels.items()))
        found[sample.name + (f"{{{labels}}}" if labels else "")] = sample.value
    return found


def test_what_is_served_is_asked_whenever_the_page_is_read() -> None:
    states = [state("stable", None), state("latest", ModelId(12, 34, int(AT * 1000) - 500, 1234))]
    metrics = ServeMetrics(["stable", "latest"])
    metrics.follow(lambda: states, Items, lambda: {"stable": 7, "latest": 0})
    metrics.record_freshness("latest", np.array([0.2, 0.4]), np.array([3, 1]))
    found = page(metrics)
    assert found['tripletd_serving{alias="stable"}'] == 0
    assert found['tripletd_served_version_info{alias="latest",version="12"}'] == 1
    assert found['tripletd_served_records{alias="latest"}'] == 1234
    assert found['tripletd_served_watermark_seconds{alias="latest"}'] == AT - 0.5
    assert found['tripletd_swaps_total{alias="latest",result="steps"}'] == 200
    assert found['tripletd_refused_swaps_total{alias="latest",reason="damaged"}'] == 2
    assert found['tripletd_step_log_fallbacks_total{alias="latest",reason="gap"}'] == 1
    assert found['tripletd_carried_error{alias="latest",kind="overlap"}'] == 0.99
    assert found['tripletd_item_dead_letters_total{reason="wrong_dim"}'] == 2
    assert found["tripletd_item_dead_letters_unwritten"] == 4
    assert found['tripletd_events_unanswered{alias="stable"}'] == 7
    assert found['tripletd_event_to_served_seconds_count{alias="latest"}'] == 4
    assert found['tripletd_event_to_served_seconds_sum{alias="latest"}'] == 1.0
    assert found['tripletd_event_to_served_seconds_bucket{alias="latest",le="0.3"}'] == 3
    assert found['tripletd_event_to_served_seconds_count{alias="stable"}'] == 0  # there from the start
    states[1] = state("latest", ModelId(13, 0, None, 1300))
    versions = [name for name in page(metrics) if name.startswith("tripletd_served_version_info")]
    assert versions == ['tripletd_served_version_info{alias="latest",version="13"}']  # the old one is gone


def test_one_second_is_an_edge_of_freshness() -> None:
    assert 1.0 in FRESHNESS_EDGES
    assert list(FRESHNESS_EDGES) == sorted(set(FRESHNESS_EDGES))


def test_status_says_what_is_served_how_fresh_and_what_was_refused() -> None:
    metrics = ServeMetrics(["stable", "latest"])
    states = [state("stable", None), state("latest", ModelId(12, 34, int(AT * 1000) - 500, 1234))]
    metrics.follow(lambda: states, lambda: None, dict)
    metrics.record_freshness("latest", np.array([0.2, 0.4]), np.array([3, 1]))
    status = status_of(metrics.registry, Health())
    assert isinstance(status, ServeStatus)
    (stable, nothing), (latest, told) = ((alias, one.line(AT)) for alias, one in status.aliases.items())
    assert (stable, latest) == ("stable", "latest")
    assert nothing == "answers nothing yet; refused: damaged 2"
    assert told.startswith("answers with version 12, 1,234 records; newest click in it ")
    assert "a click was in an answer after 0.25 s on average; refused: damaged 2" in told
