"""What a running role says of itself on its metrics page, if one answers."""

from __future__ import annotations

import http.client
from collections.abc import Container, Mapping

from prometheus_client.parser import text_string_to_metric_families

_TIMEOUT_S = 0.5
_PLACE = 'tripletd_place_info{checkpoints="'


def live_metrics(host: str, port: int, buckets: Container[str] = ()) -> dict[str, float] | None:
    """Metric name with its labels -> value of the role at host:port; None when nobody answers there.

    Only `tripletd_*`; names as on the page: `tripletd_lag_events{partition="0"}`. Buckets are left out but
    for the histograms named in `buckets`.
    """
    try:
        page = _get(host, port, "/metrics")
        return None if page is None else parsed(page[1], buckets)
    except ValueError:
        return None  # somebody who does not speak this format


def not_ready(host: str, port: int) -> str | None:
    """Why the role at host:port is not ready; None when it is, or nobody answers there."""
    page = _get(host, port, "/readyz")
    return page[1].strip() if page is not None and page[0] == http.client.SERVICE_UNAVAILABLE else None


def _get(host: str, port: int, path: str) -> tuple[int, str] | None:
    """Status and text; None when nobody answers, or not in HTTP and UTF-8."""
    if port == 0:
        return None
    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


def is_role(metrics: Mapping[str, float] | None, role: str, checkpoints: str = "") -> bool:
    """Whether the page really is that role's, with that checkpoint folder ("": with any).

    Another program may hold the port, or another tripletd.
    """
    if not metrics or not any(f'role="{role}"' in name for name in metrics):
        return False
    return not checkpoints or place_of(metrics) in (None, checkpoints)


def place_of(metrics: Mapping[str, float]) -> str | None:
    """The checkpoint folder of the role that has this page; None where it does not say."""
    for name in metrics:
        if name.startswith(_PLACE):
            return name.removeprefix(_PLACE).removesuffix('"}')
    return None


def parsed(text: str, buckets: Container[str] = ()) -> dict[str, float]:
    """The numbers of one metrics page, as `live_metrics` gives them. ValueError for another format."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            left_out = sample.name.endswith("_bucket") and family.name not in buckets
            if sample.name.startswith("tripletd_") and not (left_out or sample.name.endswith("_created")):
                labels = ",".join(f'{key}="{value}"' for key, value in sorted(sample.labels.items()))
                found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found
