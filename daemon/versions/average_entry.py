"""The control entry of a version that was averaged from others: nothing of its own log leads to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from checkpoints.manifest import Manifest

AVERAGE = "average"


def average_entry(sources: Sequence[Manifest], weights: Sequence[float]) -> dict[str, Any]:
    """{"control": "average", "of": [{number, state_hash, weight}]}: what a schedule says instead of runs."""
    return {
        "control": AVERAGE,
        "of": [
            {"number": one.number, "state_hash": one.state_hash, "weight": float(weight)}
            for one, weight in zip(sources, weights, strict=True)
        ],
    }
