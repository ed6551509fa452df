"""What two readings of a role's metrics, some seconds apart, say: totals, means, quantiles. Pure.

A reading maps metric names with their labels to values, as `daemon.look.live` gives them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping

Reading = Mapping[str, float]

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
