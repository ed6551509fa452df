"""The gauges of `validate` that say how versions stand: what the ledger says, and nothing else.

Set whenever the ledger has changed and when a process starts, so that a restart changes none of them; what
the ledger does not say has no series.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from checkpoints.entries import LedgerEntry, aliases, stop_in_force
from daemon.telemetry.metrics import ValidateMetrics
from daemon.validate.evaluator import OF_WEIGHTS
from daemon.validate.evidence import Standing
from daemon.validate.ledger import (
    BEST,
    BEST_BEFORE,
    BEST_DECISION,
    BEST_HOLDS,
    BEST_MEASURES,
    EVIDENCE,
    REFERENCE,
    REFUSED,
)
from daemon.versions.key_verdicts import COSINE, KEYS, LEARNED
from daemon.versions.verdict import ANSWER, NAMES

EXPORTED = ("decision", *NAMES, "macro_p10_full", "ndcg_shown", "loss", *OF_WEIGHTS)


def report(metrics: ValidateMetrics, entries: Sequence[LedgerEntry]) -> None:
    """Export what stands: the newest judged version, version 0, the order the user saw, the best version, the
    STOP in force and what is known.
    """
    metrics.stopped.set(stop_in_force(entries) is not None)
    judged = [one for one in entries if one.kind == "KEEP" and not one.measures.get(REFUSED)]
    newest = max(judged, key=lambda one: one.n, default=None)
    if newest is None or not isinstance(newest.measures.get(REFERENCE), Mapping):
        return
    measures, best = newest.measures, aliases(entries).get(BEST)
    metrics.record_measures("newest", newest.version, _exported(measures))
    metrics.record_measures("zero", 0, _exported(measures[REFERENCE]))
    seen = {"map_shown": measures["shown_order_map"], "ndcg_shown": measures["shown_order_ndcg"]}
    metrics.record_measures("shown_order", None, seen)
    if best in (0, newest.version):
        metrics.record_measures("best", best, _exported(measures if best else measures[REFERENCE]))
        metrics.best_holds.set(1)
    elif best is not None and best == measures.get(BEST_BEFORE):
        known = {**measures.get(BEST_MEASURES, {}), "decision": measures[BEST_DECISION]}
        metrics.record_measures("best", best, _exported(known))
        metrics.best_holds.set(bool(measures[BEST_HOLDS]))
    if KEYS in measures:
        counted = Counter(one["verdict"] for one in measures[KEYS].values())
        metrics.record_keys({verdict: counted[verdict] for verdict in (LEARNED, COSINE)})
    newest_first = sorted(entries, key=lambda one: -one.n)
    answer = next((one.measures[ANSWER] for one in newest_first if ANSWER in one.measures), None)
    if answer is not None:
        metrics.record_answer(answer["is_better"])
    evidence = next((one.measures[EVIDENCE] for one in newest_first if EVIDENCE in one.measures), None)
    if evidence is not None:
        capital = Standing.from_json(evidence["standing"]).line.above.log
        metrics.record_evidence(
            evidence.get("verdict", evidence["found"]), capital, evidence["lists_missing"]
        )


def _exported(measures: Mapping[str, Any]) -> dict[str, float | None]:
    return {name: measures.get(name) for name in EXPORTED}
