"""Judgements as metrics, and what the ledger could not tell as a warning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import structlog

from checkpoints.errors import CheckpointError
from daemon.telemetry import ValidateMetrics
from daemon.validate.decide import History
from daemon.validate.history import REFERENCE, REFUSED
from daemon.validate.rules import Standing
from daemon.validate.yardstick import SYMMETRY
from daemon.versions.key_verdicts import COSINE, LEARNED, verdicts_from_json

log = structlog.get_logger("tripletd.validate")

EXPORTED = (
    "decision",
    "map_full",
    "p10_full",
    "macro_map_full",
    "macro_p10_full",
    "balanced_hop",
    "position_balanced",
    "hop_auc",
    "map_shown",
    "ndcg_shown",
    "map_clicks",
    "clicked_vs_random",
    "loss",
    SYMMETRY,
)


def passed_over(error: CheckpointError) -> None:
    """One warning for a verdict that cannot be read; the ledger tells each once."""
    log.warning("verdict passed over", error=str(error))


def report(metrics: ValidateMetrics, history: History, number: int, measures: Mapping[str, Any]) -> None:
    """Export what was judged: the version, version 0, the order the user saw, and the best when it is one of
    the two.
    """
    metrics.stopped.set(history.stopped)
    if measures.get(REFUSED):
        return
    metrics.record_measures("newest", number, _exported(measures))
    verdicts = verdicts_from_json(measures)
    if verdicts is not None:
        found = Counter(one.verdict for one in verdicts.values())
        metrics.record_keys({verdict: found[verdict] for verdict in (LEARNED, COSINE)})
    metrics.record_measures("zero", 0, _exported(measures[REFERENCE]))
    if history.promoted in (0, number):
        of_best = measures if history.promoted else measures[REFERENCE]
        metrics.record_measures("best", history.promoted, _exported(of_best))
        metrics.best_holds.set(1)
    seen = {"map_shown": measures["shown_order_map"], "ndcg_shown": measures["shown_order_ndcg"]}
    metrics.record_measures("shown_order", None, seen)


def report_best(metrics: ValidateMetrics, best: Standing, measures: Mapping[str, Any]) -> None:
    """Export the best version as it stands on the newest window."""
    metrics.record_measures("best", best.version, _exported({**measures, "decision": best.value}))
    metrics.best_holds.set(best.holds)


def _exported(measures: Mapping[str, Any]) -> dict[str, float | None]:
    return {name: measures.get(name) for name in EXPORTED}
