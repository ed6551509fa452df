"""What running roles say at /status, and the live numbers that the page draws from it.

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

import http.client
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from daemon.text import span

FRESHNESS = "tripletd_event_to_served_seconds"
REQUESTS = "tripletd_http_seconds"
"""The histograms whose quantiles are shown: /status has their buckets."""
_TIMEOUT_S = 0.5


Reading = Mapping[str, float]
"""Metric name with its labels -> value: `tripletd_lag_events{partition="0"}`."""


@dataclass(frozen=True, slots=True)
class RoleStatus:
    """What a role says of itself at /status; see `daemon.telemetry.server.status_document`."""

    role: str | None
    checkpoints: str | None
    not_ready: str | None
    numbers: Reading
    buckets: Reading = field(default_factory=dict)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> RoleStatus:
        """From the document. KeyError or TypeError: it is of another program."""
        return cls(*(document[name] for name in ("role", "checkpoints", "not_ready", "numbers", "buckets")))

    def is_of(self, role: str, checkpoints: str) -> bool:
        """Whether it is that role's, with that checkpoint folder: another tripletd may hold the port."""
        return self.role == role and self.checkpoints in (None, checkpoints)


def role_status(host: str, port: int) -> RoleStatus | None:
    """What the role at host:port says; None when nobody answers there, or another program does."""
    if port == 0:
        return None
    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/status")
        return RoleStatus.of(json.loads(connection.getresponse().read()))
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return None
    finally:
        connection.close()


_LABELS = re.compile(r'(\w+)="([^"]*)"')


def labelled(reading: Reading, name: str) -> Iterator[tuple[dict[str, str], float]]:
    """(labels, value) of every child of one metric."""
    for key, value in reading.items():
        head, _, tail = key.partition("{")
        if head == name:
            yield dict(_LABELS.findall(tail)), value


def total(reading: Reading, name: str, leave_out: Mapping[str, str] | None = None) -> float:
    """Sum over the children of a metric but those with all of the labels `leave_out`; nan without any."""
    wanted = (leave_out or {"": ""}).items()
    values = [value for labels, value in labelled(reading, name) if not wanted <= labels.items()]
    return sum(values) if values else math.nan


def was_reset(before: Reading, now: Reading) -> bool:
    """Whether a counter went back: another process answers there now."""
    return any(now.get(name, value) < value for name, value in before.items() if _is_counter(name))


def mean_between(before: Reading, now: Reading, histogram: str) -> float:
    """Mean of what a histogram was told between two readings; nan for nothing."""
    count = total(now, f"{histogram}_count") - total(before, f"{histogram}_count")
    told = total(now, f"{histogram}_sum") - total(before, f"{histogram}_sum")
    return told / count if count > 0 else math.nan


def quantile_between(
    before: Reading, now: Reading, histogram: str, labels: Mapping[str, str], q: float
) -> float:
    """The q-quantile of what a histogram was told between two readings; nan for nothing.

    Linear inside a bucket, as Prometheus' histogram_quantile. In the last, open bucket: its lower edge.
    """
    old = _buckets(before, histogram, labels)
    new = _buckets(now, histogram, labels)
    cumulated = [(edge, new[edge] - old[edge]) for edge in sorted(new)]
    wanted = q * (cumulated[-1][1] if cumulated else 0.0)
    low = below = 0.0
    for edge, count in cumulated:
        if count >= wanted and count > below:
            return low if math.isinf(edge) else low + (edge - low) * (wanted - below) / (count - below)
        low, below = edge, count
    return math.nan


def _buckets(reading: Reading, histogram: str, labels: Mapping[str, str]) -> Counter[float]:
    """Upper edge -> cumulative count, of all children with these labels together."""
    found: Counter[float] = Counter()
    for own, value in labelled(reading, f"{histogram}_bucket"):
        if labels.items() <= own.items():
            found[float(own["le"])] += value  # type: ignore[assignment]  # counts come as floats
    return found


def _is_counter(name: str) -> bool:
    return name.partition("{")[0].endswith(("_total", "_count"))


QUESTIONS = ({"route": "/v1/similar"}, {"route": "/v1/similar/batch"})
"""What is counted of the requests; probes and the page itself are not."""
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


def serving_lines(page: Reading, now_s: float) -> list[tuple[str, str]]:
    """(alias, what it answers with, how fresh that is, what was refused), in the order of the page."""
    return [
        (labels["alias"], "; ".join(_told(page, labels["alias"], value, now_s)))
        for labels, value in labelled(page, "tripletd_serving")
    ]


def _told(page: Reading, alias: str, answers: float, now_s: float) -> Iterator[str]:
    if answers:
        version = _of(page, "tripletd_served_version", alias) or 0
        records = _of(page, "tripletd_served_records", alias) or 0
        yield f"answers with version {version:.0f}, {records:,.0f} records"
    else:
        yield "answers nothing yet"
    newest = _of(page, "tripletd_served_watermark_seconds", alias)
    if newest is not None:
        yield f"newest click in it {span(max(0.0, now_s - newest))} ago"
    count = _of(page, f"{FRESHNESS}_count", alias)
    if count:
        mean = (_of(page, f"{FRESHNESS}_sum", alias) or 0) / count
        yield f"a click was in an answer after {mean:.2f} s on average"
    refused = {
        labels["reason"]: count
        for labels, count in labelled(page, "tripletd_refused_swaps_total")
        if labels["alias"] == alias and count
    }
    if refused:
        yield "refused: " + ", ".join(f"{reason} {count:.0f}" for reason, count in sorted(refused.items()))


def _of(page: Reading, name: str, alias: str) -> float | None:
    return next((value for labels, value in labelled(page, name) if labels.get("alias") == alias), None)
