"""The gauges of a role that describe the state of the installation: they must survive a restart."""

from __future__ import annotations

import json
from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

OF_THE_PROCESS = {
    "tripletd_build_info": "what runs",
    "tripletd_place_info": "where it runs",
    "tripletd_holdout_loss": "of a drift detector, which begins again with the window",
    "tripletd_held_back_seconds": "for how long the process has seen a transaction open",
    "tripletd_checkpoint_age_seconds": "since the newest version, or since start",
    "tripletd_checkpoint_bytes": "of the newest version that the process wrote",
    "tripletd_poison_share": "among the newest records that the process read",
    "tripletd_lag_seconds": "of a clock",
    "tripletd_served_since_seconds": "when the process began to answer",
    "tripletd_served_behind_seconds": "of a clock",
    "tripletd_swap_seconds": "of the last swap of the process",
    "tripletd_refine_seconds": "of the last recomputation of the process",
    "tripletd_events_unanswered": "events that came while the process could have answered",
    "tripletd_memory_free_bytes": "of the host",
    "tripletd_memory_left_seconds": "of the host",
}
"""Series that a restart may change, and why; all other gauges are compared."""


def state_gauges(registry: CollectorRegistry) -> dict[str, float]:
    """Every `tripletd_` gauge of a registry that describes state: name with its labels -> value."""
    return state_samples(registry.collect())


def state_samples(families: Iterable[Metric]) -> dict[str, float]:
    """The same of what a role exports."""
    return {
        sample.name + (json.dumps(sample.labels, sort_keys=True) if sample.labels else ""): sample.value
        for family in families
        if family.type == "gauge" and family.name.startswith("tripletd_")
        for sample in family.samples
        if family.name not in OF_THE_PROCESS and not family.name.endswith("_created")
    }
