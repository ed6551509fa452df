"""The live numbers that the page draws, made of one role's newest readings. Pure.

| name | unit | over |
|---|---|---|
| `learn.events` | events/s, those sent again left out | 10 s |
| `learn.lag_events`, `learn.lag_seconds` | events, of all partitions; seconds, of the last of them | now |
| `learn.loss` | mean hinge loss before the step | 10 s |
| `learn.dead.REASON` | dead letters since the role began | now |
| `validate.holdout_loss`, `validate.drifts` | of the best version; drifts since the role began | now |
| `serve.requests` | questions/s, single and batches | 10 s |
| `serve.latency_p50`, `serve.latency_p99` | seconds of a single question | 60 s |
| `serve.dead.REASON` | item records refused since the role began | now |
| `serve.fresh_p50.ALIAS`, `serve.fresh_p99.ALIAS` | seconds, event to first answer that used it | 60 s |

A number that nothing is known of is left out. Readings are of one process, oldest first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from daemon.look.rates import Reading, labelled, mean_between, quantile_between, total

FRESHNESS = "tripletd_event_to_served_seconds"
REQUESTS = "tripletd_http_seconds"
QUESTIONS = ({"route": "/v1/similar"}, {"route": "/v1/similar/batch"})
"""What is counted of the requests; probes and the page itself are not."""
BUCKETS = frozenset({FRESHNESS, REQUESTS})
"""Histograms whose buckets a reading needs."""
RATE_SECONDS = 10.0
QUANTILE_SECONDS = 60.0

Readings = Sequence[tuple[float, Reading]]
"""(Unix seconds, reading), at least one."""


def numbers_of(role: str, readings: Readings) -> dict[str, float]:
    """Finite numbers by name, of a role among learn, validate, serve."""
    makers = {"learn": _learn, "validate": _validate, "serve": _serve}
    told = makers[role](readings) if role in makers else ()
    return {f"{role}.{name}": value for name, value in told if math.isfinite(value)}


def _learn(readings: Readings) -> Iterator[tuple[str, float]]:
    now = readings[-1][1]
    yield "events", _rate(readings, "tripletd_events_total", {"outcome": "duplicate"})
    yield "lag_events", total(now, "tripletd_lag_events")
    lags = [value for _, value in labelled(now, "tripletd_lag_seconds")]
    yield "lag_seconds", max(lags, default=math.nan)
    yield "loss", mean_between(_since(readings, RATE_SECONDS)[1], now, "tripletd_loss")
    for labels, count in labelled(now, "tripletd_dead_letters_total"):
        yield f"dead.{labels.get('reason', '')}", count


def _validate(readings: Readings) -> Iterator[tuple[str, float]]:
    now = readings[-1][1]
    if total(now, "tripletd_judged_versions_total") > 0:  # before that it is a zero that nobody measured
        yield "holdout_loss", total(now, "tripletd_holdout_loss")
    yield "drifts", total(now, "tripletd_drift_total")


def _serve(readings: Readings) -> Iterator[tuple[str, float]]:
    now, before = readings[-1][1], _since(readings, QUANTILE_SECONDS)[1]
    yield "requests", _asked(readings)
    for labels, count in labelled(now, "tripletd_item_dead_letters_total"):
        yield f"dead.{labels.get('reason', '')}", count
    aliases = sorted({labels.get("alias", "") for labels, _ in labelled(now, f"{FRESHNESS}_count")})
    for name, q in (("p50", 0.5), ("p99", 0.99)):
        yield f"latency_{name}", quantile_between(before, now, REQUESTS, QUESTIONS[0], q)
        for alias in aliases:
            yield f"fresh_{name}.{alias}", quantile_between(before, now, FRESHNESS, {"alias": alias}, q)


def _asked(readings: Readings) -> float:
    """Questions per second over the newest RATE_SECONDS."""
    (at, before), (now_at, now) = _since(readings, RATE_SECONDS), readings[-1]
    told = [
        sum(value for labels, value in labelled(one, f"{REQUESTS}_count") if labels in QUESTIONS)
        for one in (before, now)
    ]
    return (told[1] - told[0]) / (now_at - at) if now_at > at else math.nan


def _since(readings: Readings, seconds: float) -> tuple[float, Reading]:
    """The newest reading at least `seconds` old, else the oldest."""
    now = readings[-1][0]
    return next((one for one in reversed(readings) if now - one[0] >= seconds), readings[0])


def _rate(readings: Readings, counter: str, leave_out: dict[str, str] | None = None) -> float:
    at, before = _since(readings, RATE_SECONDS)
    now, seconds = readings[-1][1], readings[-1][0] - at
    risen = total(now, counter, leave_out) - total(before, counter, leave_out)
    return risen / seconds if seconds > 0 else math.nan
